package engine

import (
	"context"
	"slices"
	"sync"
	"time"
)

// slots hands out a fixed number of places in the order they are asked for and
// knows how many are taken and wanted, now or some time ago.
type slots struct {
	lag time.Duration

	mu      sync.Mutex
	free    int
	running int
	queue   []*waiter
	history []point // oldest first; only kept with a lag
}

type waiter struct{ granted chan struct{} }

// point is the load from a moment on.
type point struct {
	at               time.Time
	running, waiting int
}

// acquire waits for a place until ctx ends (its error) or stop is closed
// (errAborted).
func (s *slots) acquire(ctx context.Context, stop <-chan struct{}) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	if s.free > 0 {
		s.free--
		s.running++
		s.record()
		s.mu.Unlock()
		return nil
	}
	w := &waiter{granted: make(chan struct{})}
	s.queue = append(s.queue, w)
	s.record()
	s.mu.Unlock()

	err := errAborted
	select {
	case <-w.granted:
		return nil
	case <-ctx.Done():
		err = ctx.Err()
	case <-stop:
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.queue, w); i >= 0 {
		s.queue = slices.Delete(s.queue, i, i+1)
		s.record()
	} else { // granted meanwhile: pass it on
		s.releaseLocked()
	}
	return err
}

// release gives a place back, to the first who waits if there is one.
func (s *slots) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.releaseLocked()
}

func (s *slots) releaseLocked() {
	if len(s.queue) > 0 {
		close(s.queue[0].granted)
		s.queue = slices.Delete(s.queue, 0, 1)
	} else {
		s.free++
		s.running--
	}
	s.record()
}

// record notes the load for load; s.mu is held.
func (s *slots) record() {
	if s.lag <= 0 {
		return
	}
	now := time.Now()
	s.history = append(s.history, point{now, s.running, len(s.queue)})
	s.forget(now)
}

// forget drops what no later load will ask for; s.mu is held.
func (s *slots) forget(now time.Time) {
	old := 0
	for old+1 < len(s.history) && now.Sub(s.history[old+1].at) >= s.lag {
		old++
	}
	s.history = slices.Delete(s.history, 0, old)
}

// load gives what ran and waited one lag ago.
func (s *slots) load() (running, waiting int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lag <= 0 {
		return s.running, len(s.queue)
	}
	now := time.Now()
	s.forget(now)
	if len(s.history) == 0 || now.Sub(s.history[0].at) < s.lag {
		return 0, 0
	}
	return s.history[0].running, s.history[0].waiting
}
