package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pilotlight-dev/pilotlight/fetcher"
	"github.com/pilotlight-dev/pilotlight/internal/retry"
)

// follower is the state of the writer's loop. Only the loop touches it.
type follower struct {
	*Agent
	asked    time.Time // when the pointer was asked last
	next     time.Time // when it is asked next
	failures int       // in a row

	done     fetcher.Pointer // what the published version answers to
	hasDone  bool
	pulling  *pull // nil while none is under way
	failed   fetcher.Pointer
	attempts int       // of failed, in a row
	again    time.Time // when a pull of failed may start
}

// pull is a download under way.
type pull struct {
	of     fetcher.Pointer
	cancel context.CancelFunc
	over   chan struct{}
	began  time.Time
	result fetcher.Result
	err    error
	// dropped: the pointer has moved on, the outcome does not matter.
	dropped bool
}

// follow is the writer's loop.
func (a *Agent) follow(ctx context.Context) error {
	f := &follower{Agent: a}
	defer f.endPull()
	if err := f.act(ctx, false); err != nil { // a version from before may differ from the link's
		return err
	}
	for {
		timer := time.NewTimer(time.Until(f.next))
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-a.nudged:
			f.again = time.Time{}
			if soon := f.asked.Add(NudgeEvery); soon.Before(f.next) {
				f.next = soon
			}
		case <-timer.C:
			if err := f.poll(ctx); err != nil {
				return err
			}
		case <-f.over():
			if err := f.pulled(ctx); err != nil {
				return err
			}
		}
		timer.Stop()
	}
}

// over is closed when the pull under way has ended; nil, which never is ready,
// while there is none.
func (f *follower) over() chan struct{} {
	if f.pulling == nil {
		return nil
	}
	return f.pulling.over
}

// endPull ends a download and waits for it.
func (f *follower) endPull() {
	if f.pulling != nil {
		f.pulling.cancel()
		<-f.pulling.over
	}
}

// poll asks the pointer once and starts what follows from the answer.
func (f *follower) poll(ctx context.Context) error {
	look, cancel := context.WithTimeout(ctx, lookTimeout)
	p, err := f.opts.Puller.Look(look)
	cancel()
	f.asked = time.Now()
	f.next = f.asked.Add(jitter(f.opts.Poll))
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		f.metrics.polls.WithLabelValues("failed").Inc()
		return f.failure(ctx, fmt.Errorf("asking the pointer: %w", err), f.learnPointer)
	}
	f.learnPointer(nil)
	if !f.opts.Pinned { // then it is the pinned version that was asked about
		f.learnNamed(p.Version)
	}
	upToDate, err := f.upToDate(ctx, p)
	switch {
	case err != nil:
		return f.failure(ctx, err, f.learnPull)
	case f.pulling != nil && f.pulling.of == p && !f.pulling.dropped:
		return nil
	case f.pulling != nil: // moved on, or back
		f.log.InfoContext(ctx, "the pointer moved again: ending the download", "to", p.Version)
		f.pulling.dropped = true
		f.pulling.cancel()
		return nil
	case upToDate:
		f.metrics.polls.WithLabelValues("unchanged").Inc()
		f.success()
		return nil
	case f.failed == p && time.Now().Before(f.again):
		return nil
	}
	f.metrics.polls.WithLabelValues("changed").Inc()
	f.start(ctx, p)
	return nil
}

// upToDate reports whether what the pointer names is published, without asking
// the store.
func (f *follower) upToDate(ctx context.Context, p fetcher.Pointer) (bool, error) {
	m, ok, err := f.current()
	if err != nil || !ok {
		return false, err
	}
	published := f.published()
	if published == nil || published.Digest != m.Digest {
		f.hasDone = false // somebody else published, or nothing was whole so far
		whole, err := f.opts.Store.Complete(ctx, m)
		if err != nil || !whole {
			return false, err
		}
		f.learnPublished(m, false)
	}
	if f.hasDone {
		return p == f.done, nil
	}
	if !m.Means(p) {
		return false, nil
	}
	f.done, f.hasDone = p, true
	return true, nil
}

// start begins a pull beside the loop, which goes on asking.
func (f *follower) start(ctx context.Context, p fetcher.Pointer) {
	ctx, cancel := context.WithCancel(ctx)
	job := &pull{of: p, cancel: cancel, over: make(chan struct{}), began: time.Now()}
	f.pulling = job
	f.log.InfoContext(ctx, "the pointer names another version: bringing it", "version", p.Version)
	go func() {
		defer close(job.over)
		job.result, job.err = f.opts.Puller.Pull(ctx)
	}()
}

// pulled looks at what a pull has brought.
func (f *follower) pulled(ctx context.Context) error {
	job := f.pulling
	f.pulling = nil
	job.cancel()
	if ctx.Err() != nil {
		return nil
	}
	f.metrics.pulled(job)
	if job.err != nil {
		if job.dropped {
			f.next = time.Now() // at once for what the pointer names by now
			return nil
		}
		if f.failed != job.of {
			f.failed, f.attempts = job.of, 0
		}
		f.attempts++
		f.again = time.Now().Add(f.backoff(maxBackoff).Wait(f.attempts))
		return f.failure(ctx, fmt.Errorf("bringing version %s: %w", job.of.Version, job.err), f.learnPull)
	}
	f.failed, f.attempts = fetcher.Pointer{}, 0
	f.done, f.hasDone = job.of, true
	if job.dropped {
		f.next = time.Now()
	}
	f.learnPublished(job.result.Manifest, writtenNow(job.result))
	f.success()
	if job.result.Changed {
		f.touch(ctx)
	}
	return f.act(ctx, job.result.Changed)
}

// writtenNow reports whether a run has written all files of its version, and
// has left them in the page cache, as it does where nothing needs to last.
func writtenNow(res fetcher.Result) bool {
	return res.Manifest.Ephemeral && !res.Reused && res.Linked == 0
}

// success ends a row of failures.
func (f *follower) success() {
	f.failures = 0
	f.metrics.failures.Set(0)
	f.learnPull(nil)
	f.clearErrorFile()
}

// backoff paces repetitions: from Poll on, or, before anything is published,
// from a second on, since a pod waits for it.
func (f *follower) backoff(ceiling time.Duration) retry.Policy {
	base := f.opts.Poll
	if f.published() == nil {
		base = min(time.Second, base)
	}
	return retry.Policy{Base: base, Max: max(ceiling, base)}
}

// failure notes an error and keeps everything as it is; the error comes back
// when it is one too many. The pointer is asked on at the usual pace, so that
// moving it back helps at once.
func (f *follower) failure(ctx context.Context, err error, learn func(error)) error {
	f.failures++
	f.metrics.failures.Set(float64(f.failures))
	learn(err)
	f.writeErrorFile(ctx, err)
	if f.published() == nil {
		f.next = time.Now().Add(f.backoff(f.opts.Poll).Wait(f.failures))
	}
	if f.opts.MaxFailures > 0 && f.failures >= f.opts.MaxFailures {
		return fmt.Errorf("giving up after %d failures in a row: %w", f.failures, err)
	}
	f.log.WarnContext(ctx, "keeping the last good version", "failures", f.failures, "next_in", time.Until(f.next).Round(time.Second).String(), "error", err)
	return nil
}

// isUsage reports whether nothing but a hand on the configuration helps.
func isUsage(err error) bool { return errors.Is(err, fetcher.ErrUsage) }
