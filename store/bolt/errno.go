package bolt

import (
	"errors"
	"strings"
	"syscall"
)

// lastErrno is beyond the numbers that systems have.
const lastErrno = 256

// systemError is an error that is known to be caused by the system's error errno, and
// says so in its text only.
type systemError struct {
	error
	errno syscall.Errno
}

func (e *systemError) Unwrap() []error { return []error{e.error, e.errno} }

// withErrno gives err back what bbolt takes from it when the file cannot grow: it
// wraps the text of the system's error, not the error (bbolt's db.go, grow), so that
// nobody could ask whether the disk is full.
func withErrno(err error) error {
	var errno syscall.Errno
	if err == nil || errors.As(err, &errno) {
		return err
	}
	for errno = 1; errno < lastErrno; errno++ {
		if strings.HasSuffix(err.Error(), ": "+errno.Error()) {
			return &systemError{err, errno}
		}
	}
	return err
}
