package volume

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

const directFlag = unix.O_DIRECT

// allocate reserves the blocks of a file, so that a full disk is found now and
// writes do not extend the file, which serialises them.
func allocate(f *os.File, size int64) error {
	if size == 0 {
		return nil
	}
	return reserve(func() error { return unix.Fallocate(int(f.Fd()), 0, 0, size) })
}

// reserve makes the call of allocate. Where it does not work, the file grows as
// it is written: NFS before 4.2 and others do not know it, and tmpfs begins from
// the start after each signal, of which there may be too many.
func reserve(fallocate func() error) error {
	err := Repeat(fallocate)
	for _, without := range []error{unix.EOPNOTSUPP, unix.ENOSYS, unix.EINVAL, unix.EINTR} {
		if errors.Is(err, without) {
			return nil
		}
	}
	return err // the caller names the file
}

// bypassOff makes a descriptor go through the page cache again.
func bypassOff(f *os.File) error {
	flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0)
	if err == nil {
		_, err = unix.FcntlInt(f.Fd(), unix.F_SETFL, flags&^unix.O_DIRECT)
	}
	if err != nil {
		return fmt.Errorf("turning direct writes off: %w", err)
	}
	return nil
}

// push writes pages out: a hint for those just written, or, when a window is
// full, everything, waiting for it.
func push(f *os.File, off, n int64, full, drop bool) error {
	fd := int(f.Fd())
	if !full {
		if !drop {
			_ = unix.SyncFileRange(fd, off, n, unix.SYNC_FILE_RANGE_WRITE) // a hint
		}
		return nil
	}
	if !drop {
		const wait = unix.SYNC_FILE_RANGE_WAIT_BEFORE | unix.SYNC_FILE_RANGE_WRITE | unix.SYNC_FILE_RANGE_WAIT_AFTER
		err := Repeat(func() error { return unix.SyncFileRange(fd, 0, 0, wait) })
		if err == nil || !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.ESPIPE) && !errors.Is(err, unix.EINVAL) {
			return err // the caller names the file
		}
	}
	if err := Repeat(func() error { return unix.Fdatasync(fd) }); err != nil {
		return err // as above
	}
	if drop {
		_ = unix.Fadvise(fd, 0, 0, unix.FADV_DONTNEED) // a hint
	}
	return nil
}

func mountInfo() string {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return ""
	}
	return string(data)
}

// BootID names this start of the machine's kernel; empty if it cannot be known.
func BootID() string {
	data, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}
