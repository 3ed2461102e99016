package fetcher

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/pilotlight-dev/pilotlight/internal/retry"
)

// Defaults of Retention's zero values.
const (
	DefaultKeep    = 2
	DefaultKeepFor = time.Hour
)

// Retention says which versions stay on the volume.
type Retention struct {
	// Keep is how many of the latest published versions stay, the current one
	// included; 0 means DefaultKeep, the current one and that before it.
	Keep int
	// KeepFor is how long a version stays after another took its place; 0
	// means DefaultKeepFor. A reader of another node may see the old link for
	// a minute (NFS), and an engine may take minutes to open all its files.
	KeepFor time.Duration
}

func (r Retention) withDefaults() (Retention, error) {
	if r.Keep < 0 || r.KeepFor < 0 {
		return r, fmt.Errorf("%w: keep %d versions for %v: neither may be negative", ErrUsage, r.Keep, r.KeepFor)
	}
	if r.Keep == 0 {
		r.Keep = DefaultKeep
	}
	if r.KeepFor == 0 {
		r.KeepFor = DefaultKeepFor
	}
	return r, nil
}

// Retained is what is known about a version on disk when Decide is asked.
type Retained struct {
	Short string
	// Rank orders by the last publication, 0 the latest.
	Rank int
	// Until is when another version took its place, or when it was downloaded
	// if it never was published. Zero means unknown.
	Until time.Time
	// Use says who uses it, "" nobody: it is current, somebody's link names
	// it, a reader holds it, a run is publishing it.
	Use string
}

// Verdict is what happens to a version, and why.
type Verdict struct {
	Short  string
	Keep   bool
	Reason string
}

// Decide applies the rules in this order; the first that speaks for a version
// keeps it:
//
//	used:     somebody uses it
//	latest:   it is among the Keep latest
//	young:    it was replaced less than KeepFor ago, at an unknown time, or in
//	          the future (a clock was set back)
//
// Example with Keep 2, KeepFor 1h and versions d (current), c, b (replaced 10
// minutes ago) and a (replaced yesterday): d is used, c latest, b young; a goes.
func (r Retention) Decide(versions []Retained, now time.Time) []Verdict {
	sorted := slices.SortedStableFunc(slices.Values(versions), func(a, b Retained) int {
		return cmp.Or(cmp.Compare(a.Rank, b.Rank), b.Until.Compare(a.Until), strings.Compare(a.Short, b.Short))
	})
	out := make([]Verdict, 0, len(sorted))
	for i, v := range sorted {
		verdict := Verdict{Short: v.Short, Keep: true}
		switch {
		case v.Use != "":
			verdict.Reason = v.Use
		case i < r.Keep:
			verdict.Reason = fmt.Sprintf("among the latest %d", r.Keep)
		case v.Until.IsZero():
			verdict.Reason = "it is not known when it was replaced"
		case now.Sub(v.Until) < r.KeepFor:
			verdict.Reason = fmt.Sprintf("replaced less than %v ago", r.KeepFor)
		default:
			verdict.Keep, verdict.Reason = false, fmt.Sprintf("unused, replaced %v ago", now.Sub(v.Until).Round(time.Second))
		}
		out = append(out, verdict)
	}
	return out
}

// Collector removes versions that nothing retains. A process that lives long
// keeps one, since it remembers since when readers have been silent.
type Collector struct {
	store *Store
	keep  Retention
	// Link is the pod's own, nil if it has none.
	link    *Frozen
	watch   *watch
	now     func() time.Time
	removed *atomic.Int64
}

// NewCollector returns a collector for a store. link may be nil. Errors wrap
// ErrUsage.
func NewCollector(store *Store, keep Retention, link *Frozen) (*Collector, error) {
	keep, err := keep.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Collector{store: store, keep: keep, link: link, watch: newWatch(), now: time.Now, removed: new(atomic.Int64)}, nil
}

// Removed is how many versions this collector has removed so far.
func (c *Collector) Removed() int64 { return c.removed.Load() }

// keeping is the collector with another number of versions to keep.
func (c *Collector) keeping(n int) *Collector {
	other := *c
	other.keep.Keep = n
	return &other
}

// Collect removes what may go and returns the versions that went. protect names
// versions that stay in any case. Files that readers hold open on NFS are left
// for a later sweep and are no error.
func (c *Collector) Collect(ctx context.Context, protect ...string) (removed []string, err error) {
	versions, err := c.survey(protect)
	if err != nil {
		return nil, fmt.Errorf("looking for old versions in %s: %w", c.store.dir, err)
	}
	var errs []error
	for _, v := range c.keep.Decide(versions, c.now()) {
		if v.Keep {
			c.store.log.DebugContext(ctx, "a version stays", "version", v.Short, "reason", v.Reason)
			continue
		}
		if ctx.Err() != nil {
			return removed, context.Cause(ctx)
		}
		gone, err := c.remove(v.Short)
		if err != nil {
			errs = append(errs, fmt.Errorf("removing the version %s from %s: %w", v.Short, c.store.dir, err))
		}
		if gone {
			c.store.log.InfoContext(ctx, "removed an old version", "root", c.store.dir, "version", v.Short, "reason", v.Reason)
			removed = append(removed, v.Short)
			c.removed.Add(1)
		}
	}
	return removed, errors.Join(errs...)
}

// survey gathers what Decide needs.
func (c *Collector) survey(protect []string) ([]Retained, error) {
	shorts, err := c.store.versions()
	if err != nil || len(shorts) < 2 {
		return nil, err // a single version always stays
	}
	state, err := c.store.readState()
	if err != nil {
		return nil, err
	}
	uses, all, err := c.uses(protect)
	if err != nil {
		return nil, err
	}
	ranks := state.ranks()
	versions := make([]Retained, 0, len(shorts))
	for _, short := range shorts {
		use := uses[short]
		if use == "" && all != "" {
			use = "the reader " + all + " may use it"
		}
		versions = append(versions, Retained{Short: short, Rank: ranks.of(short), Until: c.store.replaced(state, short), Use: use})
	}
	return versions, nil
}

// uses says of each version who uses it.
func (c *Collector) uses(protect []string) (uses map[string]string, all string, err error) {
	uses = map[string]string{}
	held, all, err := c.store.holds(c.watch, c.now())
	if err != nil {
		return nil, "", err
	}
	for short, reader := range held {
		uses[short] = "the reader " + reader + " uses it"
	}
	for _, short := range protect {
		uses[short] = "it is in use by this process"
	}
	if c.link != nil {
		short, err := c.link.Version()
		if err != nil {
			return nil, "", err
		}
		uses[short] = "the pod's link names it"
	}
	current, err := c.store.Current()
	if err != nil {
		return nil, "", err
	}
	uses[current] = "it is current"
	return uses, all, nil
}

// replaced returns when another version took the place of this one: the time of
// the publication after its last. One that has left the record was replaced
// before the oldest entry there; one that never was in it counts from its
// download.
func (s *Store) replaced(state State, short string) time.Time {
	rank := state.ranks().of(short)
	switch {
	case rank == 0:
		return time.Time{}
	case rank < len(state.Published):
		return state.Published[rank-1].At
	case len(state.Published) >= maxHistory:
		return state.Published[len(state.Published)-1].At
	}
	m, err := s.Manifest(short)
	if err != nil {
		return time.Time{}
	}
	return m.CreatedAt
}

const collectMark = ".collect"

// remove takes one version away. Between the decision and now somebody may have
// begun to publish or to load it, so both sides announce themselves before they
// look for the other: the collector with a mark, the publisher with its claim,
// the reader with its file. At least one of two sees the other, and it is the
// collector that gives way.
func (c *Collector) remove(short string) (gone bool, err error) {
	s := c.store
	claim, err := s.claim(short)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, claim.release()) }()
	if err := s.createExclusive(claim.path(collectMark), nil); err != nil {
		return false, localError(fmt.Errorf("marking %s: %w", short, err))
	}
	names, err := s.list(stagingDir)
	if err != nil {
		return false, err
	}
	for _, name := range names {
		if strings.HasPrefix(name, short+".") && !strings.HasPrefix(name, claim.base) {
			return false, nil // somebody works on it
		}
	}
	uses, all, err := c.uses(nil)
	if err != nil || uses[short] != "" || all != "" {
		return false, err
	}
	if err := s.root.Rename(path.Join(versionsDir, short), claim.path(".old")); err != nil {
		return false, localError(err)
	}
	if err := s.root.Remove(claim.path(collectMark)); err != nil {
		return true, localError(err)
	}
	return true, nil // release deletes it, which takes a while
}

// settled waits until no collector is about to take a version away. The caller
// has announced its use of the version before.
func (s *Store) settled(ctx context.Context, short string) error {
	const attempts = 200 // of 50 ms; a collector marks for some milliseconds
	for range attempts {
		marked, err := s.marked(short)
		if err != nil || !marked {
			return err
		}
		if err := retry.Sleep(ctx, 50*time.Millisecond); err != nil {
			return fmt.Errorf("waiting for the collector of %s: %w", short, err)
		}
	}
	return fmt.Errorf("%w: %s is being collected and does not go: look at %s/%s", ErrUsage, short, s.dir, stagingDir)
}

// marked reports whether a living collector works on a version. Marks of dead
// ones are swept.
func (s *Store) marked(short string) (bool, error) {
	names, err := s.list(stagingDir)
	if err != nil {
		return false, err
	}
	for _, name := range names {
		base, ok := strings.CutSuffix(name, collectMark)
		if !ok || !strings.HasPrefix(name, short+".") {
			continue
		}
		if gone, err := s.sweepOne(base); err != nil || !gone {
			return true, nil // an error (no locks there) does not say that it is dead
		}
	}
	return false, nil
}

// stillOpen recognises what an NFS client answers while a reader has a deleted
// file open: it lives on as .nfs*, and its folder cannot go.
func stillOpen(err error) bool {
	return errors.Is(err, syscall.EBUSY) || errors.Is(err, syscall.ENOTEMPTY)
}
