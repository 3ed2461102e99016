package fetcher

import (
	"context"
	"time"
)

// Lease times, for tests that wait for them.
const (
	LeaseTTL  = leaseTTL
	LeaseFile = leaseFile
)

// TakeLease claims a version and waits for the lease, as a run does. ready says
// whether the work has been done meanwhile.
func TakeLease(ctx context.Context, s *Store, short string, ready func() (bool, error)) (release func() error, done bool, err error) {
	c, err := s.claim(short)
	if err != nil {
		return nil, false, err
	}
	l, done, err := s.awaitTurn(ctx, c, ready)
	if err != nil {
		return nil, false, err
	}
	return func() error { l.release(); return c.release() }, done, nil
}

// HoldLease takes the lease for a run that lost ends.
func HoldLease(ctx context.Context, s *Store, short string, lost context.CancelCauseFunc) (release func() error, err error) {
	c, err := s.claim(short)
	if err != nil {
		return nil, err
	}
	c.abort = lost
	l, _, err := s.awaitTurn(ctx, c, func() (bool, error) { return false, nil })
	return func() error { l.release(); return c.release() }, err
}

// MarkForCollection is a collector between its mark and the removal.
func MarkForCollection(s *Store, short string) (end func() error, err error) {
	c, err := s.claim(short)
	if err != nil {
		return nil, err
	}
	return c.release, s.createExclusive(c.path(collectMark), nil)
}

// SetStep stands before every change of the root's folders.
func (s *Store) SetStep(step func(op, name string) error) { s.root.step = step }

// SetNow gives a collector another clock.
func (c *Collector) SetNow(now func() time.Time) { c.now = now }
