package fetcher

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/pilotlight-dev/pilotlight/fetcher/transfer"
	"github.com/pilotlight-dev/pilotlight/internal/retry"
	"github.com/pilotlight-dev/pilotlight/registry"
)

// run is one call of Init or DryRun.
type run struct {
	Options
	// found is what `current` named when the pointer was asked.
	found string
	// settled: whatever the pointer does now, this run ends with what it has.
	settled bool
	// records is what the pointer object says of the pinned place; zero where it
	// names another one, or none is pinned.
	records Pointer
	source  origin
	retries atomic.Int64
	linked  int64
	stats   transfer.Stats
}

// Init makes <root>/current name the complete, verified version that the
// reference means now, or leaves everything as it was and returns an error of
// one of the classes of this package or of package registry. An unreachable
// registry or store and a pending version are tried again until the deadline.
func Init(ctx context.Context, opts Options) (Result, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return Result{}, err
	}
	start := time.Now()
	ctx, cancel := context.WithTimeoutCause(ctx, opts.Deadline, fmt.Errorf("%w (%v)", errDeadline, opts.Deadline))
	defer cancel()
	r := &run{Options: opts}
	res, err := r.init(ctx)
	res.Retries, res.Duration = r.retries.Load(), time.Since(start)
	res.Transfer, res.Linked = r.stats, r.linked
	if err != nil {
		return res, ended(ctx, err)
	}
	return res, nil
}

// DryRun computes the plan of Init and writes nothing, not even the root.
func DryRun(ctx context.Context, opts Options) (Plan, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return Plan{}, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, opts.Deadline, fmt.Errorf("%w (%v)", errDeadline, opts.Deadline))
	defer cancel()
	var store *Store
	if _, err := os.Stat(opts.Root); !errors.Is(err, fs.ErrNotExist) {
		if store, err = OpenStore(opts.Root, opts.Logger); err != nil {
			return Plan{}, err
		}
		defer func() { _ = store.Close() }() // nothing was written
		store.verify = opts.Verify
		if _, err := store.Current(); err != nil {
			return Plan{}, err
		}
	} else if abs, err := filepath.Abs(opts.Root); err == nil {
		if err := checkOutside(abs); err != nil {
			return Plan{}, err
		}
	}
	plan, err := (&run{Options: opts}).plan(ctx, store)
	if err != nil {
		return Plan{}, ended(ctx, err)
	}
	return plan, nil
}

// ended gives the deadline's error a class when nothing else went wrong: we
// were waiting for, or reading from, the store.
func ended(ctx context.Context, err error) error {
	if errors.Is(context.Cause(ctx), errDeadline) && errors.Is(err, errDeadline) && !passes(err) && !errors.Is(err, ErrNotPublished) {
		return fmt.Errorf("%w: %w", ErrStoreUnreachable, err)
	}
	return err
}

func (r *run) init(ctx context.Context) (res Result, err error) {
	if r.ReadOnly {
		return r.follow(ctx)
	}
	store, err := OpenStore(r.Root, r.Logger)
	if err != nil {
		return Result{}, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	store.root.step, store.verify = r.hooks.step, r.Verify
	before, err := store.Current()
	if err != nil {
		return Result{}, err
	}
	if !r.AdoptRoot {
		if err := store.checkRef(r.Ref); err != nil {
			return Result{}, err
		}
	}
	link, err := r.openLink(store)
	if err != nil {
		return Result{}, err
	}
	defer func() { err = errors.Join(err, link.close()) }()
	if res, frozen, err := link.loaded(ctx); frozen || err != nil {
		return res, err
	}
	if swept, err := store.Sweep(); err != nil {
		r.Logger.WarnContext(ctx, "could not sweep leftovers of earlier runs", "root", r.Root, "error", err)
	} else if swept > 0 {
		r.Logger.InfoContext(ctx, "swept leftovers of earlier runs", "root", r.Root, "runs", swept)
	}
	if res, err = r.reach(ctx, store, link, before); err != nil {
		return Result{}, err
	}
	if !r.Prefetch {
		r.collect(ctx, store, link, res.Manifest.Short())
	}
	return res, nil
}

// collect removes old versions; that it could not is no failure of the run.
func (r *run) collect(ctx context.Context, store *Store, link *podLink, published string) {
	collector, err := r.collector(store, link)
	if err == nil {
		_, err = collector.Collect(ctx, published)
	}
	if err != nil && ctx.Err() == nil {
		r.Logger.WarnContext(ctx, "could not remove old versions", "root", r.Root, "error", err)
	}
}

func (r *run) collector(store *Store, link *podLink) (*Collector, error) {
	if r.Collector != nil {
		return r.Collector, nil
	}
	return NewCollector(store, r.Retention, link.frozen())
}

// plan resolves, lists and decides; store may be nil when there is no root.
func (r *run) plan(ctx context.Context, store *Store) (Plan, error) {
	pointer, recorded, err := r.target(ctx, store)
	if err != nil {
		return Plan{}, err
	}
	var manifest Manifest
	switch {
	case !r.Offline:
		manifest, err = r.list(ctx, pointer)
		if errors.Is(err, errNotAsRecorded) && recorded != nil && recorded.isRecordedBy(r.demanded(pointer)) {
			r.Logger.WarnContext(ctx, "the store holds something else by now: using the version on disk, which is the recorded one", "root", r.Root, "error", err)
			manifest, err = *recorded, nil
		}
		if err != nil {
			return Plan{}, err
		}
	case recorded != nil:
		manifest = *recorded
	default:
		return Plan{}, fmt.Errorf("%w: %s is not in %s and --offline forbids to fetch it from %s", ErrStoreUnreachable, r.Ref, r.Root, pointer.Location)
	}
	if store == nil {
		return NewPlan(manifest, false), nil
	}
	onDisk, complete, err := store.find(ctx, manifest)
	if err != nil {
		return Plan{}, err
	}
	if r.Offline && !complete {
		return Plan{}, fmt.Errorf("%w: the version %s in %s is damaged and --offline forbids to fetch it again", ErrIntegrity, manifest.Short(), r.Root)
	}
	if complete {
		manifest = manifest.asOn(onDisk)
	}
	return NewPlan(manifest, complete), nil
}

// allowed refuses places outside of AllowLocations: the registry's answer is
// data of somebody else, and our credentials would be sent there.
func (r *run) allowed(loc registry.Location) error {
	if len(r.AllowLocations) == 0 {
		return nil
	}
	for _, outer := range r.AllowLocations {
		if loc.Within(outer) {
			return nil
		}
	}
	return fmt.Errorf("resolving %s: %w: it leads to %s, which no --allow-location permits", r.Ref, registry.ErrBroken, loc)
}

// list freezes what the location holds now.
func (r *run) list(ctx context.Context, res Pointer) (Manifest, error) {
	var err error
	if r.source, err = r.open(ctx, res.Location); err != nil {
		return Manifest{}, err
	}
	var objects []Object
	err = r.patiently(ctx, func(ctx context.Context) (err error) {
		objects, err = r.source.list(ctx)
		return err
	})
	if err != nil {
		return Manifest{}, err
	}
	if len(objects) == 0 {
		return Manifest{}, fmt.Errorf("listing %s: %w: there are no objects below it", r.source.place(), registry.ErrBroken)
	}
	all := objects
	if objects, err = r.filter(ctx, objects); err != nil {
		return Manifest{}, err
	}
	if err := CheckKeys(objects); err != nil {
		return Manifest{}, fmt.Errorf("listing %s: %w", r.source.place(), err)
	}
	if !r.AnyLayout {
		if err := checkWeightsListed(objects, r.SubPath != ""); err != nil {
			return Manifest{}, fmt.Errorf("listing %s: %w", r.source.place(), err)
		}
	}
	objects = sortedByPath(objects)
	digest, err := Digest(r.SubPath, r.filters, objects)
	if err != nil {
		return Manifest{}, err
	}
	if err := r.checkRecorded(ctx, res, digest, all); err != nil {
		return Manifest{}, err
	}
	return Manifest{
		V: manifestVersion, Digest: digest, Ref: r.Ref.String(), Name: res.Name, Version: res.Version, PointerID: r.demanded(res).ID,
		Location: res.Location.String(), SubPath: r.SubPath, Filters: r.filters, CreatedAt: time.Now().UTC(), Objects: objects,
	}, nil
}

// patiently repeats a step while its error may pass, until the deadline.
func (r *run) patiently(ctx context.Context, step func(context.Context) error) error {
	policy := retry.Policy{
		Base: r.RetryBase, Max: r.RetryMax, Retryable: passes,
		OnRetry: func(attempt int, wait time.Duration, err error) {
			r.retries.Add(1)
			r.Logger.WarnContext(ctx, "will try again", "attempt", attempt, "wait", wait.Round(time.Millisecond).String(), "error", err)
		},
	}
	var last error
	err := retry.Do(ctx, policy, func(ctx context.Context, _ int) error {
		err := step(ctx)
		if passes(err) {
			last = err
		}
		return err // the steps name themselves
	})
	// Time that ran out in the middle of a step says less than what it ran out on.
	if err != nil && last != nil && ctx.Err() != nil && !errors.Is(err, last) {
		err = fmt.Errorf("%w: %w", err, last)
	}
	return err
}

// by names the program and its host for .state.json.
func (r *run) by() string {
	name := r.By
	if name == "" {
		name = "fetcher"
	}
	if host, err := os.Hostname(); err == nil {
		name += "@" + host
	}
	return name
}
