package scaler

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/pilotlight-dev/pilotlight/internal/trigger"
	"github.com/pilotlight-dev/pilotlight/internal/workload"
)

// ErrTooMany is returned for a target beyond MaxTargets or PerObject.
var ErrTooMany = errors.New("too many targets")

// target returns the target of a request, starting its loop if it is new. The
// error is that of the metadata, or ErrTooMany.
func (s *Scaler) target(ref workload.Ref, metadata map[string]string) (*target, error) {
	hash := trigger.Hash(metadata)
	now := time.Now()
	if t := s.known(key{ref, hash}, now); t != nil {
		return t, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if t, ok := s.targets[ref][hash]; ok { // somebody else was quicker
		t.touch(now)
		return t, nil
	}
	parsed, err := s.parse(ref, metadata)
	if err != nil {
		return nil, err
	}
	if err := s.room(ref); err != nil {
		return nil, err
	}
	ctx, end := context.WithCancel(s.ctx)
	t := newTarget(key{ref, hash}, parsed, s.opts, s.metrics)
	t.names, t.marker.costs, t.apart = s.names, s.costs, s.loops.Go
	t.ended, t.end = ctx.Done(), end
	t.touch(now)
	if s.ctx.Err() != nil {
		end()
		return t, nil
	}
	if s.targets[ref] == nil {
		s.targets[ref] = map[string]*target{}
	}
	s.targets[ref][hash] = t
	s.count++
	s.loops.Go(func() {
		defer end()
		t.run(ctx, s.expire)
		s.clear(t)
	})
	return t, nil
}

// known returns a target that there is already, and counts the question.
func (s *Scaler) known(k key, now time.Time) *target {
	s.mu.RLock()
	defer s.mu.RUnlock()
	t := s.targets[k.Ref][k.hash]
	if t != nil {
		t.touch(now)
	}
	return t
}

// room makes room for one more trigger of ref. Each ordinary edit of a
// ScaledObject begins a target, so that the one that was asked about longest ago
// gives way, unless a stream holds it.
func (s *Scaler) room(ref workload.Ref) error {
	triggers := s.targets[ref]
	if len(triggers) >= s.opts.PerObject {
		var oldest *target
		for _, t := range triggers {
			if t.streams() == 0 && (oldest == nil || t.used.Load() < oldest.used.Load()) {
				oldest = t
			}
		}
		if oldest == nil {
			return fmt.Errorf("%w: it has %d triggers already, and a stream is open on each", ErrTooMany, len(triggers))
		}
		s.remove(oldest)
		oldest.evicted.Store(true)
		oldest.end()
	}
	if s.count >= s.opts.MaxTargets {
		return fmt.Errorf("%w: %d triggers are served already", ErrTooMany, s.count)
	}
	return nil
}

// remove takes t out of what is served.
func (s *Scaler) remove(t *target) {
	delete(s.targets[t.key.Ref], t.key.hash)
	s.count--
	if len(s.targets[t.key.Ref]) == 0 {
		delete(s.targets, t.key.Ref)
	}
}

// clear removes the series of a target whose loop has ended, unless it has been
// asked about anew in the meantime.
func (s *Scaler) clear(t *target) {
	s.mu.RLock() // nobody can begin it anew until it is forgotten
	defer s.mu.RUnlock()
	if s.targets[t.key.Ref][t.key.hash] == nil {
		s.metrics.forget(t.key)
	}
}

// superseded reports whether KEDA goes on asking about the ScaledObject of t,
// but not about t: it has been edited.
func (s *Scaler) superseded(t *target, now time.Time) bool {
	used := t.used.Load()
	patience := min(max(s.opts.Superseded, 3*time.Duration(t.pause.Load())), s.opts.IdleAfter)
	if t.streams() > 0 || now.UnixNano()-used <= int64(patience) {
		return false
	}
	for _, other := range s.targets[t.key.Ref] {
		if other.used.Load()-used > int64(patience)/2 { // two triggers are asked about together
			return true
		}
	}
	return false
}

// expire forgets a target that nobody asks about any more, and reports whether
// it did. Asking and forgetting exclude each other.
func (s *Scaler) expire(t *target) bool {
	if s.wanted(t) {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.targets[t.key.Ref][t.key.hash] != t { // it had to give way
		return true
	}
	if now := time.Now(); !t.idle(now) && !s.superseded(t, now) { // asked about in between
		return false
	}
	s.remove(t)
	t.log.Info("target ended: nobody asks about it any more")
	return true
}

// wanted reports whether t is served, and is to be.
func (s *Scaler) wanted(t *target) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	now := time.Now()
	return s.targets[t.key.Ref][t.key.hash] == t && !t.idle(now) && !s.superseded(t, now)
}

// all returns every target.
func (s *Scaler) all() []*target {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var out []*target
	for _, triggers := range s.targets {
		out = slices.AppendSeq(out, maps.Values(triggers))
	}
	return out
}
