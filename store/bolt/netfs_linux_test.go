package bolt

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

func TestFileSystem_Table(t *testing.T) {
	for magic, want := range map[uint32]string{
		0x6969: "NFS", 0x517B: "SMB", 0xFE534D42: "SMB", 0xFF534D42: "CIFS", 0x65735546: "FUSE", 0x01021997: "9p",
		0x00C36400: "Ceph", 0x5346414F: "AFS", 0x6B414653: "AFS",
		// Local ones: ext4, xfs, btrfs, tmpfs, overlayfs, zfs, f2fs.
		0xEF53: "", 0x58465342: "", 0x9123683E: "", 0x01021994: "", 0x794C7630: "", 0x2FC12FC1: "", 0xF2F52010: "",
	} {
		if got := notLocal[magic]; got != want {
			t.Errorf("%#x: got %q, want %q", magic, got, want)
		}
	}
}

// TestFileSystemOf_Real asks the kernel about a file system that every machine
// has, and about what is not there.
func TestFileSystemOf_Real(t *testing.T) {
	notLocal[unix.PROC_SUPER_MAGIC] = "proc"
	defer delete(notLocal, unix.PROC_SUPER_MAGIC)
	if got, err := fileSystemOf("/proc/self"); err != nil || got != "proc" {
		t.Errorf("got %q, %v", got, err)
	}
	if _, err := fileSystemOf("/proc/no such directory"); !os.IsNotExist(err) {
		t.Errorf("got %v", err)
	}
}
