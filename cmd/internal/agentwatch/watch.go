package agentwatch

import (
	"context"
	"time"
)

// DefaultEvery is how often Watch asks: an engine's start takes many seconds.
const DefaultEvery = 2 * time.Second

// Round is one look at all pods.
type Round struct {
	At      time.Time
	Pods    []Pod
	Verdict Verdict
	// Err: the pods could not be listed; Pods are those of the round before, of
	// which none is known any more.
	Err error
}

// WatchOptions says what to wait for. Source and Digest are required.
type WatchOptions struct {
	Source Source
	// Digest is the whole digest that all pods have to serve.
	Digest string
	// Every is the time between rounds; 0 means DefaultEvery.
	Every time.Duration
	// Seen is told about each round, and ends the wait with the error that it
	// returns; nil is told nothing.
	Seen func(Round) error
}

// Watch asks until the version is served (then the error is nil), the context
// ends (then it is the context's cause) or Seen has seen enough. It returns the
// last round in every case.
func Watch(ctx context.Context, opts WatchOptions) (Round, error) {
	every := opts.Every
	if every == 0 {
		every = DefaultEvery
	}
	var last Round
	for {
		round := look(ctx, opts, last.Pods)
		if ctx.Err() != nil {
			return last, context.Cause(ctx) // what was cut short says nothing
		}
		last = round
		if opts.Seen != nil {
			if err := opts.Seen(last); err != nil {
				return last, err
			}
		}
		if last.Verdict.Done() {
			return last, nil
		}
		timer := time.NewTimer(every)
		select {
		case <-ctx.Done():
			timer.Stop()
			return last, context.Cause(ctx)
		case <-timer.C:
		}
	}
}

func look(ctx context.Context, opts WatchOptions, before []Pod) Round {
	pods, err := opts.Source.Pods(ctx)
	if err != nil && len(pods) == 0 {
		for _, p := range before {
			p.Status, p.Unknown = nil, reason(err)
			pods = append(pods, p)
		}
	}
	return Round{At: time.Now(), Pods: pods, Verdict: Judge(pods, opts.Digest), Err: err}
}
