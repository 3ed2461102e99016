// Package outlive makes contexts that last a little longer than their caller's.
//
// Whoever has sent a write has to learn what became of it, also when the caller
// gave up meanwhile: a user who pressed Ctrl-C wants to know whether the pointer
// moved. But no wait is unbounded.
package outlive

import (
	"context"
	"time"
)

// Context returns a context with the values of ctx that ends at most grace after
// ctx does (so after grace when ctx has ended already), or when cancel is called,
// which has to happen.
func Context(ctx context.Context, grace time.Duration) (after context.Context, cancel context.CancelFunc) {
	after, end := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		timer := time.NewTimer(grace)
		defer timer.Stop()
		select {
		case <-timer.C:
			end()
		case <-after.Done():
		}
	})
	return after, func() { stop(); end() }
}
