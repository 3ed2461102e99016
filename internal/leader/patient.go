package leader

import (
	"context"
	"log/slog"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// patient is a lock that waits for its rights: while one is missing it tries on
// and says so once, where client-go would write a line a second. A holder whose
// rights are taken away waits no longer than it has to renew.
type patient struct {
	resourcelock.Interface

	Every time.Duration // between tries; above 0
	log   *slog.Logger

	mu   sync.Mutex
	said bool
}

// Get implements resourcelock.Interface.
func (p *patient) Get(ctx context.Context) (record *resourcelock.LeaderElectionRecord, raw []byte, err error) {
	err = p.try(ctx, "get", func() error { record, raw, err = p.Interface.Get(ctx); return err })
	return record, raw, err
}

// Create implements resourcelock.Interface.
func (p *patient) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return p.try(ctx, "create", func() error { return p.Interface.Create(ctx, record) })
}

// Update implements resourcelock.Interface.
func (p *patient) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return p.try(ctx, "update", func() error { return p.Interface.Update(ctx, record) })
}

// try does something until it is allowed or ctx ends.
func (p *patient) try(ctx context.Context, verb string, do func() error) error {
	for {
		err := do()
		if !apierrors.IsForbidden(err) && !apierrors.IsUnauthorized(err) {
			if err == nil || apierrors.IsNotFound(err) {
				p.say(verb, nil)
			}
			return err
		}
		p.say(verb, err)
		select {
		case <-ctx.Done():
			return err
		case <-time.After(p.Every):
		}
	}
}

func (p *patient) say(verb string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil && !p.said {
		p.log.Warn("a right is missing, and no replica can become the active one: grant get, create and update on leases", "verb", verb, "error", err)
	}
	p.said = err != nil
}
