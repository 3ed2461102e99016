package transfer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/pilotlight-dev/pilotlight/fetcher/checksum"
	"github.com/pilotlight-dev/pilotlight/internal/retry"
)

// perform does one task.
func (e *engine) perform(ctx context.Context, t task) error {
	if n := int64(e.board.inUseNow()); n > e.peak.Load() {
		e.peak.Store(n) // a race loses a peak, which is for information
	}
	switch {
	case t.prepare:
		return e.prepare(ctx, t.obj)
	case t.class == small:
		return e.whole(ctx, t.obj)
	}
	return e.part(ctx, t.obj, t.span)
}

// repeat does a step until it succeeds or no other attempt can help.
func (e *engine) repeat(ctx context.Context, path string, step func(context.Context) error) error {
	policy := e.Backoff
	policy.Retryable = limited()
	policy.OnRetry = func(attempt int, wait time.Duration, err error) {
		e.took(path, err)
		if errors.Is(err, ErrThrottled) {
			e.slowed.Add(1)
			e.meter.refused.Add(int64(wait))
			e.board.slowDown(time.Now())
		} else {
			e.meter.read.Add(int64(wait))
		}
		e.Logger.DebugContext(ctx, "will be fetched again", "object", path, "attempt", attempt, "wait", wait, "error", err)
	}
	return retry.Do(ctx, policy, func(ctx context.Context, _ int) error { return step(ctx) }) // the caller names the object
}

// took counts a retry.
func (e *engine) took(path string, err error) {
	e.retries.Add(1)
	e.last.Store(&err)
	e.Observer.Retried(path, err)
}

// advance counts bytes that are on disk, or no longer are.
func (e *engine) advance(n int64) {
	e.fetched.Add(n)
	e.Observer.Advanced(n)
}

// prepare finds out how an object is verified and what of it is there already.
func (e *engine) prepare(ctx context.Context, o *object) error {
	if done, err := e.resumeWhole(o); done || err != nil {
		return err
	}
	var facts Facts
	err := e.repeat(ctx, o.Path, func(ctx context.Context) (err error) {
		ctx, watch := newWatchdog(ctx, e.Stall)
		defer watch.stop()
		start := time.Now()
		facts, err = e.Source.Facts(ctx, o.Object)
		timed(&e.meter.read, start)
		return err
	})
	if err != nil {
		return err // the caller names the object
	}
	o.verify = newPlan(o.Object, facts)
	if o.file == nil {
		if o.file, err = e.Sink.Create(o.Object); err != nil {
			return err // the sink names the file
		}
	}
	have, todo, err := e.resumePieces(o)
	if err != nil {
		return err // as above
	}
	if e.board.opened(o, have, todo) {
		return e.complete(ctx, o, large, nil)
	}
	return nil
}

// part reads one range. What is on disk of it stays when the connection breaks.
func (e *engine) part(ctx context.Context, o *object, s span) error {
	t := tally{plan: o.verify, off: s.off}
	end := s.off + s.n
	err := e.repeat(ctx, o.Path, func(ctx context.Context) error {
		if t.off == end {
			return nil // only what came behind it was wrong
		}
		ctx, watch := newWatchdog(ctx, e.Stall)
		defer watch.stop()
		body, err := e.get(ctx, o, t.off, end-t.off)
		if err != nil {
			return err
		}
		defer func() { _ = body.Close() }() // only read from; its content is verified
		return e.copy(ctx, watch, body, o, &t, end)
	})
	if err != nil {
		return err // the caller names the object
	}
	if e.Journal != nil {
		p := checksum.Piece{Off: s.off, Len: s.n, CRC: checksum.Join(t.plan.algorithm, t.pieces)}
		if err := e.Journal.Piece(o.Path, t.plan.algorithm, p); err != nil {
			return err // the journal names itself
		}
	}
	if e.board.arrived(o, t.pieces) {
		return e.complete(ctx, o, large, nil)
	}
	return nil
}

// whole fetches an object in one request, from its beginning at every attempt.
func (e *engine) whole(ctx context.Context, o *object) error {
	if o.failed == 0 {
		if done, err := e.resumeWhole(o); done || err != nil {
			return err
		}
	}
	var err error
	if o.file == nil {
		if o.file, err = e.Sink.Create(o.Object); err != nil {
			return err // the sink names the file
		}
	}
	var t tally
	err = e.repeat(ctx, o.Path, func(ctx context.Context) (err error) {
		defer func() {
			if err != nil {
				e.advance(-t.off)
			}
		}()
		t = tally{}
		ctx, watch := newWatchdog(ctx, e.Stall)
		defer watch.stop()
		body, err := e.get(ctx, o, 0, o.Size)
		if err != nil {
			return err
		}
		defer func() { _ = body.Close() }() // only read from; its content is verified
		t.plan = newPlan(o.Object, body.Facts)
		if t.plan.readsBack() && t.plan.want.Parts == 0 {
			t.whole = t.plan.want.Algorithm.New()
		}
		return e.copy(ctx, watch, body, o, &t, o.Size)
	})
	if err != nil {
		return err // the caller names the object
	}
	if o.verify, err = e.planWhole(ctx, o, t.plan); err != nil {
		return err // as above
	}
	o.pieces = t.pieces
	return e.complete(ctx, o, small, t.whole)
}

// planWhole asks for the parts of a whole object that has no other proof than
// their composite sum.
func (e *engine) planWhole(ctx context.Context, o *object, p plan) (plan, error) {
	if p.want.Algorithm != "" {
		return p, nil
	}
	var facts Facts
	err := e.repeat(ctx, o.Path, func(ctx context.Context) (err error) {
		facts, err = e.Source.Facts(ctx, o.Object)
		return err
	})
	if err != nil {
		return plan{}, err // the caller names the object
	}
	with := newPlan(o.Object, facts)
	if with.want.Algorithm == "" {
		return p, nil
	}
	// The pieces in hand were not cut at the parts: read the file once more.
	t := tally{plan: with}
	if err := readPiece(o.file, 0, o.Size, t.add); err != nil {
		return plan{}, err // the file names itself
	}
	o.pieces = t.pieces
	return with, nil
}

func (e *engine) get(ctx context.Context, o *object, off, n int64) (Body, error) {
	start := time.Now()
	body, err := e.Source.Get(ctx, o.Object, off, n)
	timed(&e.meter.read, start)
	return body, err // the source's errors name what happened
}

// copy moves bytes from the body to the file, from t.off to end, and demands
// the end of the body there. It advances t past whole buffers only, which keeps
// its offset fit for direct writes.
func (e *engine) copy(ctx context.Context, watch *watchdog, body io.Reader, o *object, t *tally, end int64) error {
	buf, err := e.buffers.get(e.bufferSize(o))
	if err != nil {
		return err // it names what failed
	}
	defer e.buffers.put(buf)
	fill := 0
	for {
		room := buf[fill:min(int64(len(buf)), end-t.off)]
		if len(room) == 0 { // everything is there: the body must end now
			room = buf[:1]
		}
		n, rerr := e.read(ctx, watch, body, room)
		if t.off+int64(fill+n) > end {
			return fmt.Errorf("%w: %w: the store sends more than it announced", ErrIntegrity, ErrDoubtful)
		}
		fill += n
		if fill > 0 && (fill == len(buf) || t.off+int64(fill) == end) {
			if err := e.flush(o, t, buf[:fill]); err != nil {
				return err
			}
			fill = 0
		}
		switch {
		case errors.Is(rerr, io.EOF) && t.off == end:
			return nil
		case errors.Is(rerr, io.EOF), errors.Is(rerr, io.ErrUnexpectedEOF):
			return fmt.Errorf("%w: %w, %d bytes before the end", ErrUnreachable, errShort, end-t.off-int64(fill))
		case rerr != nil && ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(rerr, ErrIntegrity):
			return rerr // the source says what is wrong
		case rerr != nil:
			return fmt.Errorf("%w: %w", ErrUnreachable, rerr)
		}
	}
}

func (e *engine) read(ctx context.Context, watch *watchdog, body io.Reader, p []byte) (int, error) {
	start := time.Now()
	n, err := watch.read(body, p)
	timed(&e.meter.read, start)
	e.meter.received.Add(int64(n))
	waited, perr := e.pace.wait(ctx, n)
	e.meter.capped.Add(int64(waited))
	if err == nil {
		err = perr
	}
	return n, err // io.EOF must stay itself
}

// flush writes a buffer and counts it in.
func (e *engine) flush(o *object, t *tally, p []byte) error {
	off := t.off
	t.add(p)
	start := time.Now()
	_, err := o.file.WriteAt(p, off)
	timed(&e.meter.write, start)
	if err != nil {
		return err // the file names itself
	}
	e.advance(int64(len(p)))
	return nil
}

// bufferSize is how much of an object is collected before it is written.
func (e *engine) bufferSize(o *object) int {
	if o.Size > e.WholeMax && e.board.limitOf(large) <= fewConnections {
		return largeBuffer
	}
	return smallBuffer
}
