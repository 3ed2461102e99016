package transfer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/fetcher/checksum"
	"github.com/pilotlight-dev/pilotlight/internal/retry"
)

// request is one Get that the store saw.
type request struct {
	path   string
	off, n int64
	nth    int // of all requests for this path, from 1
}

// store is a Source in memory.
type store struct {
	data  map[string][]byte
	facts map[string]Facts
	// spoil may replace the answer to a request; nil leaves it.
	spoil func(ctx context.Context, r request, body io.Reader) (io.Reader, error)

	mu       sync.Mutex
	requests []request
	nth      map[string]int
	now, top int // requests under way, and the most there were
}

func newStore(objects map[string][]byte) *store {
	s := &store{data: objects, facts: map[string]Facts{}, nth: map[string]int{}}
	for path, data := range objects {
		s.facts[path] = Facts{Sums: []checksum.Sum{sumOf(checksum.CRC64NVME, data)}}
	}
	return s
}

func sumOf(a checksum.Algorithm, data []byte) checksum.Sum {
	h := a.New()
	_, _ = h.Write(data)
	return checksum.Sum{Algorithm: a, Value: h.Sum(nil)}
}

func (s *store) Facts(_ context.Context, o Object) (Facts, error) { return s.facts[o.Path], nil }

func (s *store) Get(ctx context.Context, o Object, off, n int64) (Body, error) {
	s.mu.Lock()
	s.nth[o.Path]++
	r := request{o.Path, off, n, s.nth[o.Path]}
	s.requests = append(s.requests, r)
	s.now++
	s.top = max(s.top, s.now)
	s.mu.Unlock()
	var body io.Reader = bytes.NewReader(s.data[o.Path][off : off+n])
	if s.spoil != nil {
		var err error
		if body, err = s.spoil(ctx, r, body); err != nil {
			s.done()
			return Body{}, err
		}
	}
	return Body{ReadCloser: &closer{Reader: body, done: s.done}, Facts: s.facts[o.Path]}, nil
}

func (s *store) done() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now--
}

type closer struct {
	io.Reader
	done func()
	once sync.Once
}

func (c *closer) Close() error { c.once.Do(c.done); return nil }

// disk is a Sink in memory.
type disk struct {
	mu    sync.Mutex
	files map[string]*memFile
}

func newDisk() *disk { return &disk{files: map[string]*memFile{}} }

func (d *disk) Create(o Object) (File, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f := d.files[o.Path]
	if f == nil {
		f = &memFile{data: make([]byte, o.Size)}
		d.files[o.Path] = f
	}
	f.open++
	return f, nil
}

type memFile struct {
	mu       sync.Mutex
	data     []byte
	open     int
	finished bool
	unfit    int // writes that direct I/O could not do
}

func (f *memFile) WriteAt(p []byte, off int64) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if off%bufferAlign != 0 || len(p)%bufferAlign != 0 && off+int64(len(p)) != int64(len(f.data)) {
		f.unfit++
	}
	return copy(f.data[off:], p), nil
}

func (f *memFile) ReadAt(p []byte, off int64) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return bytes.NewReader(f.data).ReadAt(p, off)
}

func (f *memFile) Finish() error { f.finished = true; return f.Close() }
func (f *memFile) Close() error  { f.open--; return nil }

// notes is a Journal in memory.
type notes struct {
	mu   sync.Mutex
	left map[string]Record
	new  map[string]Record
}

func (n *notes) Left(path string) Record { return n.left[path] }

func (n *notes) Piece(path string, a checksum.Algorithm, p checksum.Piece) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	r := n.new[path]
	r.Algorithm, r.Pieces = a, append(r.Pieces, p)
	n.new[path] = r
	return nil
}

func (n *notes) Whole(path string, sum checksum.Sum, _ int64) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	r := n.new[path]
	r.Whole = sum
	n.new[path] = r
	return nil
}

// counting is an Observer.
type counting struct {
	mu             sync.Mutex
	bytes, retries int64
}

func (c *counting) Advanced(n int64)      { c.mu.Lock(); c.bytes += n; c.mu.Unlock() }
func (c *counting) Retried(string, error) { c.mu.Lock(); c.retries++; c.mu.Unlock() }

// random returns n bytes that no two calls with different seeds share.
func random(seed uint64, n int) []byte {
	out := make([]byte, n)
	rng := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	_, _ = rng.Read(out)
	return out
}

// tiny are options under which a few hundred KiB are a large object.
func tiny(s *store, d *disk) Options {
	return Options{
		Source: s, Sink: d, WholeMax: 64 << 10, RangeMin: 64 << 10, RangeMax: 256 << 10,
		Backoff: retry.Policy{Base: time.Millisecond, Max: 2 * time.Millisecond},
	}
}

func objectsOf(s *store) []Object {
	var out []Object
	for path, data := range s.data {
		out = append(out, Object{Path: path, Size: int64(len(data))})
	}
	return out
}

// requireOnDisk demands every byte, every file finished and closed, and only
// writes that direct I/O can do.
func requireOnDisk(t *testing.T, s *store, d *disk) {
	t.Helper()
	for path, want := range s.data {
		f := d.files[path]
		require.NotNil(t, f, path)
		require.True(t, bytes.Equal(want, f.data), path)
		require.True(t, f.finished, path)
		require.Zero(t, f.open, path)
		require.Zero(t, f.unfit, path)
	}
}

var errBroken = fmt.Errorf("%w: connection reset", ErrUnreachable)

// breaksAfter delivers n bytes and then the error.
func breaksAfter(r io.Reader, n int64, err error) io.Reader {
	return io.MultiReader(io.LimitReader(r, n), &failing{err})
}

type failing struct{ err error }

func (f *failing) Read([]byte) (int, error) { return 0, f.err }

// hanging delivers nothing until its context ends, like a silent connection.
type hanging struct {
	ctx context.Context //nolint:containedctx // a reader has no other way to be told
}

func (h hanging) Read([]byte) (int, error) {
	<-h.ctx.Done()
	return 0, errors.New("use of closed network connection")
}
