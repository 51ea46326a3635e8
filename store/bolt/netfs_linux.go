package bolt

import "golang.org/x/sys/unix"

// notLocal are the file systems, by the magic number that statfs(2) returns, on
// which two things that a database needs cannot be relied on: that flock excludes
// a process on another host, and that a mapped page shows what was written.
//
// FUSE is among them because GlusterFS, sshfs, s3fs and the like are behind it.
// Those without a name in package unix are from statfs(2) or the file system's
// own source. File systems that only forget (tmpfs, a container's overlayfs) are
// not listed: losing a cache is harmless.
var notLocal = map[uint32]string{
	unix.NFS_SUPER_MAGIC:   "NFS",
	unix.SMB_SUPER_MAGIC:   "SMB",
	unix.SMB2_SUPER_MAGIC:  "SMB",
	unix.CIFS_SUPER_MAGIC:  "CIFS",
	unix.FUSE_SUPER_MAGIC:  "FUSE",
	unix.V9FS_MAGIC:        "9p",
	unix.CEPH_SUPER_MAGIC:  "Ceph",
	unix.AFS_SUPER_MAGIC:   "AFS",
	unix.AFS_FS_MAGIC:      "AFS",
	unix.CODA_SUPER_MAGIC:  "Coda",
	unix.NCP_SUPER_MAGIC:   "NCP",
	unix.OCFS2_SUPER_MAGIC: "OCFS2",
	0x01161970:             "GFS2",
	0x0BD00BD0:             "Lustre",
	0x47504653:             "GPFS",
	0x786F4256:             "vboxsf",
}

// fileSystemOf returns the name of the file system of dir if it is one of
// notLocal, and "" otherwise.
func fileSystemOf(dir string) (string, error) {
	var stat unix.Statfs_t
	if err := unix.Statfs(dir, &stat); err != nil {
		return "", err
	}
	// The field is signed and of another size on some machines.
	return notLocal[uint32(stat.Type)], nil
}
