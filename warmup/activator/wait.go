package activator

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// heldTotals counts what waits for all targets together. Half of the memory
// for bodies is kept for requests that do not wait, so that a flood for one
// sleeping model leaves the others their room.
type heldTotals struct {
	maxCount, maxBytes int64
	count, bytes       atomic.Int64
}

// enter counts one in; false when there is no room. One that had been in
// before (again) always finds room.
func (h *heldTotals) enter(size int64, again bool) bool {
	if count, bytes := h.count.Add(1), h.bytes.Add(size); !again && (count > h.maxCount || bytes > h.maxBytes) {
		h.leave(size)
		return false
	}
	return true
}

func (h *heldTotals) leave(size int64) {
	h.count.Add(-1)
	h.bytes.Add(-size)
}

// wait returns a place on a Ready pod for the request, which must be given
// back, and waits for it within the hold budget. A client that leaves gives
// its place in line up at once.
func (a *Activator) wait(ctx context.Context, way *passage) (*backend, error) {
	b, w, err := way.pool.join(way)
	if b != nil || err != nil {
		return b, err
	}
	way.waited = true
	began := time.Now()
	defer func() { way.held += time.Since(began) }()
	timer := time.NewTimer(time.Until(way.until))
	defer timer.Stop()
	var comment <-chan time.Time
	if a.opts.Comments > 0 && way.stream {
		tick := time.NewTicker(a.opts.Comments)
		defer tick.Stop()
		comment = tick.C
	}
	for {
		select {
		case b, ok := <-w.place:
			if !ok {
				return nil, w.err
			}
			if ctx.Err() != nil { // it left in the same moment
				way.pool.giveUp(b)
				return nil, ctx.Err()
			}
			return b, nil
		case <-ctx.Done():
			way.pool.leave(w, way)
			return nil, ctx.Err()
		case <-timer.C:
			way.pool.leave(w, way)
			return nil, way.pool.late()
		case <-comment:
			if err := way.writer.comment("waiting for a replica"); err != nil {
				way.pool.leave(w, way)
				return nil, errors.Join(errClientWrite, err)
			}
		}
	}
}

// errClientWrite marks a comment that could not be sent.
var errClientWrite = errors.New("writing to the client")
