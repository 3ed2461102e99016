package transfer

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// slab is slabSize bytes, aligned to slabSize so that one huge page can hold
// them.
type slab struct{ data, mapping []byte }

func newSlab() (slab, error) {
	m, err := unix.Mmap(-1, 0, 2*slabSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return slab{}, fmt.Errorf("allocating transfer buffers: %w", err)
	}
	skip := -int(uintptr(unsafe.Pointer(&m[0]))) & (slabSize - 1) //nolint:gosec // only the address is looked at
	s := slab{data: m[skip : skip+slabSize : skip+slabSize], mapping: m}
	_ = unix.Madvise(s.data, unix.MADV_HUGEPAGE) // a hint: small pages do as well
	return s, nil
}

func (s slab) release() error {
	if err := unix.Munmap(s.mapping); err != nil {
		return fmt.Errorf("releasing transfer buffers: %w", err)
	}
	return nil
}
