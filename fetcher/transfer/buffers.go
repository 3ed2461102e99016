package transfer

import (
	"errors"
	"sync"
)

const (
	bufferAlign = 4096
	rangeAlign  = 1 << 20
	// Measured for direct writes: below 1 MiB they slow down, above it too.
	largeBuffer = 1 << 20
	// For whole objects, and for everything when there are many connections:
	// 256 of the large ones would take 256 MiB.
	smallBuffer = 256 << 10
	// Up to here ranges get large buffers.
	fewConnections = 64
	// slabSize is what is asked of the system at once: a huge page of amd64 and
	// arm64. Direct writes pin each page of a buffer.
	slabSize = 2 << 20
)

// buffers keeps page-aligned buffers for reuse, cut from slabs outside of the
// Go heap.
type buffers struct {
	mu    sync.Mutex
	free  map[int][][]byte
	slabs []slab
}

func newBuffers() *buffers { return &buffers{free: map[int][][]byte{}} }

// get returns a buffer of a size that divides slabSize, whose address is a
// multiple of bufferAlign.
func (b *buffers) get(size int) ([]byte, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.free[size]) == 0 {
		s, err := newSlab()
		if err != nil {
			return nil, err // it names what failed
		}
		b.slabs = append(b.slabs, s)
		for off := 0; off < slabSize; off += size {
			b.free[size] = append(b.free[size], s.data[off:off+size:off+size])
		}
	}
	list := b.free[size]
	buf := list[len(list)-1]
	b.free[size] = list[:len(list)-1]
	return buf, nil
}

func (b *buffers) put(buf []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	size := cap(buf)
	b.free[size] = append(b.free[size], buf[:size])
}

// close gives the slabs back. No buffer may be in use.
func (b *buffers) close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	var errs []error
	for _, s := range b.slabs {
		errs = append(errs, s.release())
	}
	b.free, b.slabs = map[int][][]byte{}, nil
	return errors.Join(errs...)
}
