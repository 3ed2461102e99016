package agent

import (
	"context"
	"fmt"
	"time"

	"github.com/pilotlight-dev/pilotlight/fetcher"
)

// watch is the reader's loop: it asks nobody but the volume.
func (a *Agent) watch(ctx context.Context) error {
	var last string
	if p := a.published(); p != nil {
		last = p.Digest
		if err := a.act(ctx, false); err != nil {
			return err
		}
	}
	for {
		changed, err := a.watchOnce(ctx, &last)
		if err != nil {
			return err
		}
		if changed {
			a.touch(ctx)
			if err := a.act(ctx, true); err != nil {
				return err
			}
		}
		timer := time.NewTimer(jitter(a.opts.Poll))
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-a.nudged:
			if !a.settle(ctx) {
				return nil
			}
		case <-timer.C:
		}
		timer.Stop()
	}
}

// settle spaces nudges.
func (a *Agent) settle(ctx context.Context) bool { return sleep(ctx, NudgeEvery) }

// errNothing: the writer has published nothing that can be read.
var errNothing = fmt.Errorf("%w on the volume yet", fetcher.ErrNotPublished)

func watched(ok bool, err error) error {
	if err == nil && !ok {
		return errNothing
	}
	return err
}

// watchOnce compares what is published with what was; only a `current` that
// Pilotlight did not make is an error, all else may pass.
func (a *Agent) watchOnce(ctx context.Context, last *string) (changed bool, err error) {
	m, ok, err := a.current()
	a.learnPointer(watched(ok, err))
	switch {
	case isUsage(err):
		return false, fmt.Errorf("watching the root: %w", err)
	case err != nil:
		a.metrics.polls.WithLabelValues("failed").Inc()
		a.log.WarnContext(ctx, "could not see what is published", "error", err)
		return false, nil
	case !ok || m.Digest == *last:
		a.metrics.polls.WithLabelValues("unchanged").Inc()
		return false, nil
	}
	a.metrics.polls.WithLabelValues("changed").Inc()
	first := *last == ""
	*last = m.Digest
	a.learnPublished(m, false)
	return !first, nil
}
