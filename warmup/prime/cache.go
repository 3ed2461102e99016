package prime

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	// DefaultReaders is enough to keep a network file system busy; a local disk
	// needs no more.
	DefaultReaders = 4

	scratchSize = 1 << 20  // of a reader
	pieceSize   = 32 << 20 // read by one reader before the guard looks again
	maxFiles    = 100_000
)

// Cache reads a folder into the page cache. Only Dir is required.
type Cache struct {
	Dir     string // a symbolic link is followed once, at the beginning
	Readers int    // files or pieces read at the same time; 0: DefaultReaders
	Reserve int64  // bytes of memory to leave alone; 0: DefaultReserve

	// Memory says what there is; nil: ReadMemory("/").
	Memory func() (Memory, error)
}

// CacheReport says what Warm has done, in bytes.
type CacheReport struct {
	Files  int   `json:"files"`
	Size   int64 `json:"size"`   // of all files
	Before int64 `json:"before"` // resident before; -1: cannot be told
	After  int64 `json:"after"`  // resident after; -1: cannot be told
	Read   int64 `json:"read"`   // read by us
	// Stopped says why not everything was read: memory, cancelled or error.
	Stopped string        `json:"stopped,omitempty"`
	Took    time.Duration `json:"took"` // nanoseconds
}

// Reasons of CacheReport.Stopped.
const (
	StoppedMemory    = "memory"
	StoppedCancelled = "cancelled"
	StoppedError     = "error"
)

// errNoRoom ends the reading; it is not an error of Warm.
var errNoRoom = errors.New("the memory guard stopped it")

// A file to warm.
type file struct {
	path     string
	size     int64
	resident int64 // -1: cannot be told
}

// A piece of a file is read at once.
type piece struct {
	path        string
	off, length int64
}

// Warm reads until everything is resident, memory runs short or ctx ends; none
// of the three is an error. The report is filled in whatever happened. Errors
// are those of reading the folder.
func (c Cache) Warm(ctx context.Context) (CacheReport, error) {
	if c.Readers <= 0 {
		c.Readers = DefaultReaders
	}
	if c.Reserve <= 0 {
		c.Reserve = DefaultReserve
	}
	if c.Memory == nil {
		c.Memory = func() (Memory, error) { return ReadMemory("/") }
	}
	began := time.Now()
	report := CacheReport{Before: -1, After: -1}
	fail := func(err error) (CacheReport, error) {
		report.Stopped, report.Took = StoppedError, time.Since(began)
		return report, fmt.Errorf("warming %s: %w", c.Dir, err)
	}
	dir, err := filepath.EvalSymlinks(c.Dir)
	if err != nil {
		return fail(err)
	}
	files, err := list(ctx, dir)
	if err != nil && ctx.Err() == nil {
		return fail(err)
	}
	memory, err := c.Memory()
	if err != nil {
		return fail(err)
	}
	report.Files = len(files)
	report.Size, report.Before = total(files)
	pieces, fits := plan(files, Budget(memory, c.Reserve))
	report.Read, err = c.read(ctx, pieces)
	switch {
	case ctx.Err() != nil:
		report.Stopped = StoppedCancelled
	case errors.Is(err, errNoRoom), err == nil && !fits:
		report.Stopped = StoppedMemory
	case err != nil:
		return fail(err)
	}
	if ctx.Err() == nil {
		for i := range files {
			files[i].resident = residency(files[i].path, files[i].size)
		}
		_, report.After = total(files)
	}
	report.Took = time.Since(began)
	return report, nil
}

// list finds the regular files below dir, by name.
func list(ctx context.Context, dir string) ([]file, error) {
	var out []file
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		case !entry.Type().IsRegular():
			return nil
		case len(out) >= maxFiles:
			return fmt.Errorf("more than %d files", maxFiles)
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		if info.Size() > 0 {
			out = append(out, file{path, info.Size(), residency(path, info.Size())})
		}
		return nil
	})
	slices.SortFunc(out, func(a, b file) int { return cmp.Compare(a.path, b.path) })
	return out, err
}

// residency is -1 where it cannot be told.
func residency(path string, size int64) int64 {
	f, err := os.Open(path) //nolint:gosec // found below the folder that the caller named
	if err != nil {
		return -1
	}
	defer f.Close() //nolint:errcheck // nothing was written
	n, err := resident(f, size)
	if err != nil {
		return -1
	}
	return n
}

// total adds up sizes and what is resident, -1 if that cannot be told of one.
func total(files []file) (size, resident int64) {
	for _, f := range files {
		size += f.size
		if resident >= 0 && f.resident >= 0 {
			resident += f.resident
		} else {
			resident = -1
		}
	}
	return size, resident
}

// plan cuts what is not resident into pieces, file by file in the order of the
// names, until the budget is used up; fits is false if it was. A file that is
// resident in part is read as a whole but costs only what is missing.
//
//	a 10 (resident), b 10, c 10 (4 resident), budget 12 -> b, and 2 of c
func plan(files []file, budget int64) (out []piece, fits bool) {
	for _, f := range files {
		missing := f.size - max(f.resident, 0)
		if missing == 0 {
			continue
		}
		length := f.size
		if missing > budget {
			length = budget // the resident part may lie anywhere
		}
		for off := int64(0); off < length; off += pieceSize {
			out = append(out, piece{f.path, off, min(pieceSize, length-off)})
		}
		if missing > budget {
			return out, false
		}
		budget -= missing
	}
	return out, true
}

// read goes through the pieces with a few readers, each with a scratch buffer
// whose content nobody looks at, and asks the guard before every piece.
func (c Cache) read(ctx context.Context, pieces []piece) (int64, error) {
	var done atomic.Int64
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(c.Readers)
	buffers := sync.Pool{New: func() any { b := make([]byte, scratchSize); return &b }}
	for _, p := range pieces {
		if ctx.Err() != nil {
			break
		}
		group.Go(func() error {
			memory, err := c.Memory()
			if err != nil {
				return err
			}
			if Budget(memory, c.Reserve) == 0 {
				return errNoRoom
			}
			buf, _ := buffers.Get().(*[]byte)
			defer buffers.Put(buf)
			n, err := readPiece(ctx, p, *buf)
			done.Add(n)
			return err
		})
	}
	err := group.Wait()
	return done.Load(), err
}

func readPiece(ctx context.Context, p piece, buf []byte) (n int64, err error) {
	f, err := os.Open(p.path)
	if err != nil {
		return 0, err
	}
	defer f.Close() //nolint:errcheck // nothing was written
	readAhead(f)
	for n < p.length && ctx.Err() == nil {
		got, err := f.ReadAt(buf[:min(int64(len(buf)), p.length-n)], p.off+n)
		n += int64(got)
		if errors.Is(err, io.EOF) {
			return n, nil // it has become shorter, which is none of our business
		}
		if err != nil {
			return n, err
		}
	}
	return n, ctx.Err()
}
