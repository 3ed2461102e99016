package demo

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// burst is the number of requests sent at once: four replicas' worth at a
// target of four, less one, so that three pods are wanted.
const (
	burst       = 12
	burstTokens = 100
	firstTokens = 60 // three seconds: by them the scaler learns how long a request takes
)

// A script plays a user and checks every step.
type script struct {
	*stage
	move sync.Mutex
	last move // the latest change of the replicas
}

// A step is one line of the story. It returns what it saw, and an error if
// that is not as it should be.
type step struct {
	title string
	limit time.Duration // the step fails when it takes longer
	run   func(context.Context) (string, error)
}

func (s *script) steps() []step {
	var v1Gets int
	return []step{
		{"two versions are registered, " + alias + " is version 1", 10 * time.Second, s.registered},
		{"nobody asks: zero replicas, inactive", 10 * time.Second, s.asleep},
		{"a request at zero is held, and KEDA's push wakes 0 -> 1", 10 * time.Second, s.wake},
		{"the fetcher follows the pointer, the engine loads, the request is answered by version 1", 30 * time.Second, s.answered("1")},
		{fmt.Sprintf("a burst of %d streams scales out, none is lost", burst), 40 * time.Second, s.burst},
		{"idle: back to zero", 40 * time.Second, s.idle},
		{alias + " is moved to version 2", 5 * time.Second, s.point("2")},
		{"the next start serves version 2", 40 * time.Second, s.served("2")},
		{"idle: back to zero", 40 * time.Second, s.idle},
		{"rollback: " + alias + " is moved back to version 1", 5 * time.Second, func(ctx context.Context) (string, error) {
			v1Gets = s.store.Count("GetObject")
			return s.point("1")(ctx)
		}},
		{"the next start serves version 1 again, without a download", 40 * time.Second, func(ctx context.Context) (string, error) {
			saw, err := s.served("1")(ctx)
			if n := s.store.Count("GetObject") - v1Gets; err == nil && n != 0 {
				err = fmt.Errorf("%d objects were downloaded again", n)
			}
			return saw + ", 0 objects downloaded", err
		}},
	}
}

// ErrInterrupted is returned when the user has stopped the demo.
var ErrInterrupted = errors.New("interrupted")

// play runs every step, and stops at the first that is not as it should be.
func (s *script) play(ctx context.Context) error {
	for i, st := range s.steps() {
		began := time.Now()
		bounded, cancel := context.WithTimeout(ctx, st.limit)
		saw, err := st.run(bounded)
		cancel()
		if err == nil {
			err = s.node.err()
		}
		took := time.Since(began)
		if err != nil && s.interrupted() {
			return ErrInterrupted
		}
		if err != nil {
			s.recorder.event("failed", "%d. %s: %v", i+1, st.title, err)
			return fmt.Errorf("step %d (%s): %w", i+1, st.title, err)
		}
		s.recorder.event("step", "%d. %s (%.1f s): %s", i+1, st.title, took.Seconds(), saw)
	}
	return nil
}

func (s *script) registered(context.Context) (string, error) {
	return fmt.Sprintf("registry %s, store %s", s.registryURL, s.storeURL), nil
}

func (s *script) asleep(ctx context.Context) (string, error) {
	err := s.until(ctx, "an inactive decision", func() bool {
		samples, _ := s.recorder.timeline()
		return len(samples) > 0 && samples[len(samples)-1].Reason == "idle"
	})
	if c := s.node.counts(); err == nil && c != (counts{}) {
		err = fmt.Errorf("something runs: %+v", c)
	}
	return "nothing runs, nothing is paid for", err
}

// wake sends the first request; the answer is read by the next step. It is sent
// just after a poll: one that falls between the scaler's decision and its push
// would wake the model first.
func (s *script) wake(ctx context.Context) (string, error) {
	polls := s.loop.polls.Load()
	if err := s.until(ctx, "KEDA's next poll", func() bool { return s.loop.polls.Load() > polls }); err != nil {
		return "", err
	}
	began := time.Now()
	s.first = make(chan firstReply, 1)
	go func() {
		r, err := chat(s.life, s.activatorURL, firstTokens)
		s.first <- firstReply{r, err}
	}()
	if err := s.until(ctx, "0 -> 1", func() bool { return s.lastMove().to == 1 }); err != nil {
		return "", err
	}
	woken := time.Since(began)
	if m := s.lastMove(); m.by != "push" {
		return "", fmt.Errorf("woken by %s after %v, not by push", m.by, woken)
	}
	if err := s.until(ctx, "the held request in the scaler's view", func() bool { return s.recorder.held() == 1 }); err != nil {
		return "", err
	}
	return fmt.Sprintf("%d ms from the request to the replica", woken.Milliseconds()), nil
}

type firstReply struct {
	reply
	err error
}

func (s *script) answered(version string) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		select {
		case r := <-s.first:
			return check(r.reply, r.err, version)
		case <-ctx.Done():
			return "", errors.New("no answer in time")
		}
	}
}

func check(r reply, err error, version string) (string, error) {
	switch {
	case err != nil:
		return "", err
	case r.version != version:
		return "", fmt.Errorf("answered by version %q, want %q", r.version, version)
	}
	return fmt.Sprintf("first token from version %s after %.1f s, held all the while", r.version, r.first.Seconds()), nil
}

func (s *script) burst(ctx context.Context) (string, error) {
	since := time.Since(s.recorder.began)
	var group errgroup.Group
	for range burst {
		group.Go(func() error {
			_, err := chat(ctx, s.activatorURL, burstTokens)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return "", fmt.Errorf("a request was lost: %w", err)
	}
	peak := s.recorder.peak(since)
	if want := burst / targetRequests; peak < want {
		return "", fmt.Errorf("scaled out to %d replicas, want %d", peak, want)
	}
	return fmt.Sprintf("%d of %d answered, %d replicas at the peak", burst, burst, peak), nil
}

func (s *script) idle(ctx context.Context) (string, error) {
	err := s.until(ctx, "zero replicas", func() bool { return s.node.counts() == counts{} })
	return "the last replica stayed for its keep-alive, then left", err
}

func (s *script) point(version string) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		return "one call to the registry", moveAlias(ctx, s.registryURL, version)
	}
}

func (s *script) served(version string) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		r, err := chat(ctx, s.activatorURL, 16)
		return check(r, err, version)
	}
}

// until waits for a condition, and fails early when a part has failed.
func (s *script) until(ctx context.Context, what string, ok func() bool) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if ok() {
			return nil
		}
		if err := s.node.err(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("still waiting for %s: %w", what, context.Cause(ctx))
		case <-tick.C:
		}
	}
}

func (s *script) moved(m move) {
	s.move.Lock()
	s.last = m
	s.move.Unlock()
	s.recorder.event("scale", "%d -> %d replicas (%s)", m.from, m.to, m.by)
}

func (s *script) lastMove() move {
	s.move.Lock()
	defer s.move.Unlock()
	return s.last
}
