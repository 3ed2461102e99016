//go:build !linux

package transfer

import "unsafe"

// slab is slabSize bytes, aligned to pages.
type slab struct{ data []byte }

func newSlab() (slab, error) {
	raw := make([]byte, slabSize+bufferAlign)
	skip := -int(uintptr(unsafe.Pointer(&raw[0]))) & (bufferAlign - 1) //nolint:gosec // only the address is looked at
	return slab{raw[skip : skip+slabSize : skip+slabSize]}, nil
}

func (slab) release() error { return nil }
