package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"
)

// lockFile takes an exclusive lock on the file at path, which other processes
// respect, and returns the function that gives it back. The kernel gives it
// back too when the process dies, so the file may stay.
func lockFile(ctx context.Context, path string, progress io.Writer) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("locking the server binaries: %w", err)
	}
	if err := waitForLock(ctx, file, progress); err != nil {
		return nil, errors.Join(fmt.Errorf("locking %s: %w", path, err), file.Close())
	}
	// Closing the only descriptor releases the lock.
	return func() { _ = file.Close() }, nil
}

func waitForLock(ctx context.Context, file *os.File, progress io.Writer) error {
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for waiting := false; ; waiting = true {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return err
		}
		if !waiting {
			fmt.Fprintln(progress, "controlplane: waiting for another process that builds the servers")
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
