package activator

import (
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// small is how much of a body may be taken in while large ones have used up
// their share of the memory: ordinary requests go on whatever is uploaded
// beside them.
const small = 64 << 10

// A budget counts the bytes of all bodies in memory. The last quarter is for
// the first 64 KiB of each body.
type budget struct {
	total int64
	used  atomic.Int64
}

// take adds n bytes to a body that has had bytes already; false when there is
// no room.
func (b *budget) take(n, had int64) bool {
	limit := b.total
	if had+n > small {
		limit -= b.total / 4
	}
	if b.used.Add(n) > limit {
		b.used.Add(-n)
		return false
	}
	return true
}

// A payload is a request's body in memory: as long as it may have to be sent
// again, or is being sent.
type payload struct {
	memory *budget
	size   int64

	mu    sync.Mutex
	data  []byte
	taken int64
	users int  // readers that are open
	owned bool // may be sent again
}

// open returns a reader of the whole body; nil when it was given up.
func (p *payload) open() io.ReadCloser {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.owned {
		return nil
	}
	p.users++
	return &payloadReader{payload: p}
}

// bytes returns the body.
func (p *payload) bytes() []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.data
}

// drop says that the body will not be sent again.
func (p *payload) drop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.owned = false
	p.free()
}

// free gives the memory back once nobody needs it; p.mu is held.
func (p *payload) free() {
	if p.owned || p.users > 0 {
		return
	}
	p.memory.used.Add(-p.taken)
	p.data, p.taken = nil, 0
}

type payloadReader struct {
	payload *payload
	offset  int
	closed  bool
}

// Read implements io.Reader.
func (r *payloadReader) Read(to []byte) (int, error) {
	r.payload.mu.Lock()
	defer r.payload.mu.Unlock()
	if r.closed {
		return 0, os.ErrClosed
	}
	if r.offset >= len(r.payload.data) {
		return 0, io.EOF
	}
	n := copy(to, r.payload.data[r.offset:])
	r.offset += n
	return n, nil
}

// Close implements io.Closer. The transport calls it when it needs no more.
func (r *payloadReader) Close() error {
	r.payload.mu.Lock()
	defer r.payload.mu.Unlock()
	if !r.closed {
		r.closed = true
		r.payload.users--
		r.payload.free()
	}
	return nil
}

// read takes the body in, within the bound of one request, the bound of all
// bodies in memory together, and the bounds of time. The payload's drop must
// be called when the request has ended, whatever happened. early looks at the
// beginning of a large body and may refuse the rest.
func (a *Activator) read(w http.ResponseWriter, r *http.Request, early func(start []byte) error) (*payload, error) {
	p := &payload{memory: &a.memory, owned: true}
	if r.ContentLength > a.opts.MaxBody {
		return p, &http.MaxBytesError{Limit: a.opts.MaxBody}
	}
	if r.ContentLength == 0 {
		return p, nil
	}
	up := upload{control: http.NewResponseController(w), from: http.MaxBytesReader(w, r.Body, a.opts.MaxBody), pause: a.opts.Pause, rate: a.opts.UploadRate, early: early}
	err := up.into(p, r.ContentLength)
	p.size = int64(len(p.data))
	return p, err
}

// An upload is a body on its way in.
type upload struct {
	control *http.ResponseController
	from    io.Reader
	pause   time.Duration
	rate    int64 // bytes per second
	early   func(start []byte) error
}

// into reads to the end. length is what the client announced, -1 = nothing.
// Memory is taken as the body grows, four times what has come at most: an
// announcement costs a client nothing.
func (u upload) into(p *payload, length int64) error {
	began := time.Now()
	more := int64(4 << 10)
	if length > 0 {
		more = min(length, small)
	}
	for {
		if len(p.data) == cap(p.data) && (length < 0 || int64(len(p.data)) < length) {
			if rest := length - int64(len(p.data)); length > 0 && (more > rest || int64(len(p.data)) >= length/4) {
				more = rest // at once: each step leaves a copy behind for the garbage collector
			}
			if p.taken <= small && p.taken+more > small {
				if err := u.early(p.data); err != nil {
					return err
				}
			}
			if !p.memory.take(more, p.taken) {
				return errMemory
			}
			p.taken += more
			grown := make([]byte, len(p.data), p.taken)
			copy(grown, p.data)
			p.data, more = grown, p.taken
		}
		// Where no deadline can be set, the server's own bounds hold.
		_ = u.control.SetReadDeadline(u.deadline(began, time.Now(), int64(len(p.data))))
		to := p.data[len(p.data):cap(p.data)]
		if len(to) == 0 {
			to = make([]byte, 1) // all that was announced is here: only the end can follow
		}
		n, err := u.from.Read(to)
		p.data = p.data[:min(len(p.data)+n, cap(p.data))]
		switch {
		case errors.Is(err, io.EOF):
			_ = u.control.SetReadDeadline(time.Time{})
			return nil
		case errors.Is(err, os.ErrDeadlineExceeded):
			return errSlow
		case err != nil:
			return err
		}
	}
}

const (
	mostReadOn   = 64 << 20         // bytes
	readOnWithin = 10 * time.Second // as a whole
)

// readOn throws away what a client still sends of a request that has been
// refused. Many read no answer before they have sent everything, and would find
// the connection reset instead. Whoever waits to be asked (Expect) must not
// come here: it sends nothing. HTTP/2 has a way to say it.
func readOn(w *writer, r *http.Request) {
	if w.h2 || w.FlushError() != nil {
		return
	}
	_ = w.control.SetReadDeadline(time.Now().Add(readOnWithin)) // where it cannot be set, the server's own bounds hold
	_, _ = io.CopyN(io.Discard, r.Body, mostReadOn)             // it is refused, whatever comes
	_ = w.control.SetReadDeadline(time.Time{})
}

// deadline is when the next byte has to be here: a pause after the last one,
// and no later than the average rate allows.
func (u upload) deadline(began, now time.Time, got int64) time.Time {
	byRate := began.Add(u.pause + time.Duration(float64(got)/float64(u.rate)*float64(time.Second)))
	if next := now.Add(u.pause); next.Before(byRate) {
		return next
	}
	return byRate
}
