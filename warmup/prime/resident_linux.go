package prime

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// window is how much of a file is mapped at a time to ask about its pages.
const window = 1 << 30

// resident says how many bytes of a file are in the page cache. Nothing is
// read: the file is mapped and the kernel is asked which pages it has.
func resident(f *os.File, size int64) (int64, error) {
	if !toldOf(f) {
		return 0, fmt.Errorf("asking which pages of %s are resident: %w", f.Name(), os.ErrPermission)
	}
	page := int64(os.Getpagesize())
	var total int64
	for off := int64(0); off < size; off += window {
		length := min(window, size-off)
		m, err := unix.Mmap(int(f.Fd()), off, int(length), unix.PROT_READ, unix.MAP_SHARED)
		if err != nil {
			return 0, fmt.Errorf("mapping %s: %w", f.Name(), err)
		}
		pages := make([]byte, (length+page-1)/page)
		//nolint:gosec // the kernel is given the addresses of two live slices
		_, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&m[0])), uintptr(length), uintptr(unsafe.Pointer(&pages[0])))
		err = unix.Munmap(m)
		switch {
		case errno != 0:
			return 0, fmt.Errorf("asking which pages of %s are resident: %w", f.Name(), errno)
		case err != nil:
			return 0, fmt.Errorf("unmapping %s: %w", f.Name(), err)
		}
		for i, p := range pages {
			if p&1 != 0 {
				total += min(page, length-int64(i)*page)
			}
		}
	}
	return total, nil
}

// toldOf reports whether the kernel tells us the truth: it does so only to those
// who own the file or may write it. To others every page looks resident.
func toldOf(f *os.File) bool {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return false
	}
	me := unix.Geteuid()
	return me == 0 || int64(st.Uid) == int64(me) || unix.Access(f.Name(), unix.W_OK) == nil
}

// readAhead tells the kernel that a file is read from front to back.
func readAhead(f *os.File) {
	_ = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_SEQUENTIAL) // a hint
}
