package bolt

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

const (
	fileMode = 0o600
	dirMode  = 0o700

	othersWrite = 0o002
)

// errPlanted means that a file may be somebody else's trap.
var errPlanted = errors.New("it belongs to another user, or has other names, in a directory that everybody can write to;" +
	" put the cache file into a directory of its own")

// openRegular opens a regular file, which it creates if flag says so, and nothing
// else: a link is not followed, a pipe not waited for. In a directory that others
// can write to, a link would make us overwrite the file that they choose.
func openRegular(name string, flag int) (*os.File, error) {
	file, err := os.OpenFile(name, flag|unix.O_NOFOLLOW|unix.O_NONBLOCK, fileMode)
	if errors.Is(err, unix.ELOOP) {
		return nil, fmt.Errorf("%s: it is a symbolic link, which is not followed", name)
	}
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s: it is not a regular file", name)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// refusePlanted returns an error for a file that somebody else may have put in
// our way, to read what we write to it, to have us believe what is in it, or to
// have us overwrite the file that it is another name of. That takes a directory
// in which everybody can create files. A volume whose files belong to the user
// of an earlier pod is not one.
func refusePlanted(file *os.File) error {
	var dir, stat unix.Stat_t
	err := errors.Join(
		unix.Stat(filepath.Dir(file.Name()), &dir),
		unix.Fstat(int(file.Fd()), &stat))
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", file.Name(), err)
	case dir.Mode&othersWrite != 0 && (foreign(stat.Uid) || stat.Nlink > 1):
		return fmt.Errorf("%s: %w", file.Name(), errPlanted)
	}
	return nil
}

// foreign says whether a user is one whose files we cannot rely on. Root could
// do anything anyway.
func foreign(uid uint32) bool { return uid != 0 && int(uid) != os.Geteuid() }

// makePrivate takes away the access of others to every file of the database,
// which a copy, a restore or a volume's fsGroup may have given them. What it
// cannot do is logged: a cache that does not start helps nobody.
func (db *DB) makePrivate() {
	names := []string{db.path, lockPath(db.path)}
	for _, infix := range []string{quarantineInfix, backupInfix} {
		// An error shows again where it matters.
		more, _ := siblings(db.path, infix)
		names = append(names, more...)
	}
	for _, name := range names {
		if err := db.makeFilePrivate(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			db.log.Error(err, "Cannot make a cache file private", "path", name)
		}
	}
}

func (db *DB) makeFilePrivate(name string) error {
	file, err := openRegular(name, os.O_RDONLY)
	if err != nil {
		return err
	}
	defer file.Close()
	var stat unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &stat); err != nil {
		return err
	}
	if foreign(stat.Uid) {
		db.log.Info("A cache file belongs to another user, who can read and change it", "path", name, "uid", stat.Uid)
	}
	mode := fs.FileMode(stat.Mode) & fs.ModePerm
	if mode&^fileMode == 0 {
		return nil
	}
	if err := file.Chmod(mode & fileMode); err != nil {
		return err
	}
	db.log.Info("Made a cache file private that others had access to", "path", name, "mode", mode.String())
	return nil
}

// warnAboutPlace logs what is wrong with the directory of the file. It is not
// refused: often nobody can choose another one.
func (db *DB) warnAboutPlace() {
	dir := filepath.Dir(db.path)
	if info, err := os.Stat(dir); err == nil && info.Mode().Perm()&othersWrite != 0 && info.Mode()&fs.ModeSticky == 0 {
		db.log.Info("Everybody can replace the cache file; put it into a directory of its own", "directory", dir, "mode", info.Mode().String())
	}
	if name, err := db.options.fileSystem(dir); err == nil && name != "" {
		db.log.Info("The cache file is on a file system that is not local: two hosts may open it at the same time,"+
			" and what was written may be lost or read wrongly; use a local disk, one for each replica",
			"directory", dir, "fileSystem", name)
	}
}
