package volume

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
)

// Root is the part of *os.Root that files need.
type Root interface {
	OpenFile(name string, flag int, perm fs.FileMode) (*os.File, error)
	Open(name string) (*os.File, error)
	Chmod(name string, mode fs.FileMode) error
}

// How says how files are written. The zero value is plain buffered writes.
type How struct {
	// Direct goes past the page cache where the file system can.
	Direct bool
	// Bounded keeps at most DirtyWindow of a file dirty when it is not direct.
	Bounded bool
	// Drop also takes written pages out of the cache (network file systems).
	Drop bool
}

// How returns the way of writing that a choice asks for.
func (c Choice) How() How {
	if c.Durability != Durable {
		return How{}
	}
	return How{Direct: !c.Network, Bounded: true, Drop: c.Network}
}

// String is for the log.
func (h How) String() string {
	switch {
	case h.Direct:
		return "direct"
	case h.Bounded:
		return "bounded"
	}
	return "buffered"
}

// cachePiece is how much goes to the page cache at once, in bytes. More asks the
// kernel for larger pages, which on a virtual machine are those that the host has
// taken back: 4 GiB in pieces of 1 MiB took 11 s where 16 KiB took 4 s.
const cachePiece = 16 << 10

// allocateFrom is the size above which a file's blocks are reserved, in bytes. A
// smaller one is written at once, and that write finds the disk full as well.
const allocateFrom = 1 << 20

// File is a file of known size that is being written, by several goroutines at
// once, each at its own offsets.
type File struct {
	root Root
	name string
	size int64
	how  How
	file *os.File

	direct atomic.Bool  // the descriptor bypasses the page cache
	dirty  atomic.Int64 // bytes since the last push, in bounded mode

	mu     sync.Mutex
	reader *os.File // opened for ReadAt
}

// Create makes a new file and allocates its size if it is large, or opens the one that an
// earlier run left when again is set.
func Create(root Root, name string, size int64, how How, again bool) (*File, error) {
	flag := os.O_WRONLY | os.O_CREATE
	if again {
		// An earlier run may have finished it.
		if err := root.Chmod(name, 0o644); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("opening %s again: %w", name, err)
		}
	} else {
		flag |= os.O_EXCL
	}
	f := &File{root: root, name: name, size: size, how: how}
	var err error
	if how.Direct && size > 0 && directFlag != 0 {
		if f.file, err = root.OpenFile(name, flag|directFlag, 0o644); err == nil {
			f.direct.Store(true)
		} else if !errors.Is(err, syscall.EINVAL) && !errors.Is(err, syscall.ENOTSUP) {
			return nil, fmt.Errorf("creating %s: %w", name, err)
		}
		flag &^= os.O_EXCL // Linux creates the file before it refuses the flag
	}
	if f.file == nil {
		if f.file, err = root.OpenFile(name, flag, 0o644); err != nil {
			return nil, fmt.Errorf("creating %s: %w", name, err)
		}
	}
	if size <= allocateFrom {
		return f, nil
	}
	if err := allocate(f.file, size); err != nil {
		return nil, errors.Join(fmt.Errorf("allocating %d bytes for %s: %w", size, name, err), f.file.Close())
	}
	return f, nil
}

// Direct reports whether writes go past the page cache.
func (f *File) Direct() bool { return f.direct.Load() }

// WriteAt writes p at off. For direct writes p begins at an address, and off is
// a multiple, of Align; p's length is one too, except at the end of the file,
// where the capacity of p must reach to the next multiple: what lies between is
// overwritten.
func (f *File) WriteAt(p []byte, off int64) (int, error) {
	data := p
	if f.direct.Load() {
		if pad := -len(p) & (Align - 1); pad > 0 && off+int64(len(p)) == f.size && len(p)+pad <= cap(p) {
			data = p[:len(p)+pad]
			clear(data[len(p):])
		}
		_, err := f.file.WriteAt(data, off)
		if err == nil {
			return len(p), nil
		}
		if !errors.Is(err, syscall.EINVAL) {
			return 0, fmt.Errorf("writing %s: %w", f.name, err)
		}
		// The file system takes the flag, but not this write.
		if err := bypassOff(f.file); err != nil {
			return 0, fmt.Errorf("writing %s: %w", f.name, err)
		}
		f.direct.Store(false)
	}
	for i := 0; i < len(p); i += cachePiece {
		if _, err := f.file.WriteAt(p[i:min(len(p), i+cachePiece)], off+int64(i)); err != nil {
			return 0, fmt.Errorf("writing %s: %w", f.name, err)
		}
	}
	return len(p), f.bound(off, int64(len(p)))
}

// bound starts to write out what was just written and, once a window is full,
// waits for all of it.
func (f *File) bound(off, n int64) error {
	if !f.how.Bounded {
		return nil
	}
	full := f.dirty.Add(n) >= DirtyWindow
	if full {
		f.dirty.Store(0)
	}
	if err := push(f.file, off, n, full, f.how.Drop); err != nil {
		return fmt.Errorf("writing out %s: %w", f.name, err)
	}
	return nil
}

// ReadAt reads back what was written.
func (f *File) ReadAt(p []byte, off int64) (int, error) {
	f.mu.Lock()
	if f.reader == nil {
		r, err := f.root.Open(f.name)
		if err != nil {
			f.mu.Unlock()
			return 0, fmt.Errorf("reading back %s: %w", f.name, err)
		}
		f.reader = r
	}
	r := f.reader
	f.mu.Unlock()
	n, err := r.ReadAt(p, min(off, f.size))
	if err != nil && !errors.Is(err, io.EOF) {
		return n, fmt.Errorf("reading back %s: %w", f.name, err)
	}
	if off+int64(n) > f.size { // a padded block that is still to be cut off
		return int(max(0, f.size-off)), io.EOF
	}
	return n, err // io.EOF must stay itself
}

// Finish gives the file its exact size, lets nobody write to it and closes it.
// It is durable only after [Sync].
func (f *File) Finish() error {
	if f.size%Align != 0 || f.size == 0 {
		if err := f.file.Truncate(f.size); err != nil {
			return errors.Join(fmt.Errorf("setting the size of %s: %w", f.name, err), f.Close())
		}
	}
	if err := f.file.Chmod(0o444); err != nil {
		return errors.Join(fmt.Errorf("setting the mode of %s: %w", f.name, err), f.Close())
	}
	return f.Close()
}

// Close closes an unfinished file.
func (f *File) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	var errs []error
	if f.reader != nil {
		errs = append(errs, f.reader.Close())
	}
	if err := errors.Join(append(errs, f.file.Close())...); err != nil {
		return fmt.Errorf("closing %s: %w", f.name, err)
	}
	return nil
}

// Sync makes a finished file durable.
func Sync(root Root, name string) error {
	f, err := root.Open(name)
	if err != nil {
		return fmt.Errorf("syncing %s: %w", name, err)
	}
	err = f.Sync()
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return fmt.Errorf("syncing %s: %w", name, err)
	}
	return nil
}
