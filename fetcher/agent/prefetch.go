package agent

import (
	"context"
	"time"

	"github.com/pilotlight-dev/pilotlight/fetcher"
)

// prefetch keeps on the disk what the pointer names, for the pod that comes after
// this pinned one. It concerns nobody now, so a failure is logged and counted and
// nothing else.
func (a *Agent) prefetch(ctx context.Context) error {
	var have fetcher.Pointer
	done, failures := false, 0
	for {
		look, cancel := context.WithTimeout(ctx, lookTimeout)
		p, err := a.opts.Prefetcher.Look(look)
		cancel()
		if err == nil {
			a.learnNamed(p.Version)
		}
		if err == nil && (!done || p != have) {
			var res fetcher.Result
			if res, err = a.opts.Prefetcher.Pull(ctx); err == nil {
				have, done = p, true
				a.learnPrefetched(res.Manifest.Short())
				a.log.InfoContext(ctx, "the version that the pointer names is on the disk for the next pod", "version", res.Manifest.Version, "digest", res.Manifest.Short())
			}
		}
		if ctx.Err() != nil {
			return nil
		}
		wait := jitter(a.opts.Poll)
		if err != nil {
			failures++
			wait = max(wait, (&follower{Agent: a}).backoff(maxBackoff).Wait(failures))
			a.metrics.prefetches.WithLabelValues("failed").Inc()
			a.log.WarnContext(ctx, "could not prefetch what the pointer names", "next_in", wait.Round(time.Second).String(), "error", err)
		} else {
			failures = 0
			a.metrics.prefetches.WithLabelValues("ok").Inc()
		}
		if !sleep(ctx, wait) {
			return nil
		}
	}
}

func (a *Agent) learnPrefetched(short string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.known.prefetched = short
	offer(a.sweep)
}

// prefetched is what a collector must leave though nobody uses it yet.
func (a *Agent) prefetched() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.known.prefetched == "" {
		return nil
	}
	return []string{a.known.prefetched}
}
