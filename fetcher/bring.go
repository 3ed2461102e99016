package fetcher

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
)

// reach asks the pointer and brings what it names. When another process has
// published meanwhile and the pointer has moved on, it begins again, so that the
// last to publish is always one that has asked since.
func (r *run) reach(ctx context.Context, store *Store, link *podLink, before string) (Result, error) {
	const attempts = 3
	var downloaded int64
	r.found = before
	for attempt := 1; ; attempt++ {
		r.settled = attempt == attempts
		plan, err := r.plan(ctx, store)
		if err != nil {
			return Result{}, err
		}
		res := Result{Manifest: plan.Manifest, Path: store.CurrentPath(), Reused: plan.Reuse, Changed: !r.Prefetch && before != plan.Manifest.Short()}
		err = r.bring(ctx, store, link, plan, &res)
		downloaded += res.Downloaded
		if err == nil {
			res.Downloaded = downloaded
			return res, nil
		}
		if !errors.Is(err, errMoved) {
			return Result{}, err
		}
		r.Logger.InfoContext(ctx, "the pointer moved while its version was brought: beginning again", "root", r.Root, "had", plan.Manifest.Version)
		if r.found, err = store.Current(); err != nil {
			return Result{}, err
		}
	}
}

// errMoved: another process published meanwhile, and the pointer names another
// version than this run has brought.
var errMoved = errors.New("the pointer moved meanwhile")

// overtaken asks the pointer again and reports whether it names another version
// than the one brought. A pointer that does not answer changes nothing.
func (r *run) overtaken(ctx context.Context, m Manifest) bool {
	ref, err := r.wanted()
	if err != nil || r.settled || r.Offline || r.Pin != "" {
		return false
	}
	p, err := r.look(ctx, ref)
	if err != nil {
		r.Logger.WarnContext(ctx, "another process publishes too, and the pointer cannot be asked again", "root", r.Root, "error", err)
		return false
	}
	return !m.Means(p)
}

// bring makes the planned version the published one, downloading it if need be,
// and sets the pod's link. Between the two a collector elsewhere may take the
// version away again, if retention is short; then it is brought once more, as it
// is when another process has taken the download over.
func (r *run) bring(ctx context.Context, store *Store, link *podLink, plan Plan, res *Result) error {
	const attempts = 3
	needed := !plan.Reuse || !r.Prefetch && (r.found != plan.Manifest.Short() || store.State().Ref != r.Ref.String())
	for attempt := 1; ; attempt++ {
		var err error
		if needed {
			err = r.bringOnce(ctx, store, plan, res)
		}
		if err == nil {
			err = link.set(ctx, res)
		}
		if !errors.Is(err, errVanished) && !errors.Is(err, errTakenOver) || attempt == attempts {
			return err
		}
		needed = true
		r.Logger.WarnContext(ctx, "will bring the version again", "root", r.Root, "error", err)
	}
}

// bringOnce announces the version by a claim on its name before it looks whether
// it is there, so that no collector takes it away in between.
func (r *run) bringOnce(ctx context.Context, store *Store, plan Plan, res *Result) (err error) {
	claim, err := store.claim(plan.Manifest.Short())
	if err != nil {
		return err
	}
	ctx, claim.abort = context.WithCancelCause(ctx)
	defer claim.abort(nil)
	defer func() {
		if lost := claim.check(); err != nil && lost != nil && !errors.Is(err, errTakenOver) {
			err = fmt.Errorf("%w: %w", lost, err) // files that are gone, for one
		}
		if rerr := claim.release(); rerr != nil {
			r.Logger.WarnContext(ctx, "could not remove temporary files", "root", r.Root, "error", rerr)
		}
	}()
	if err := store.claimRef(claim, r.Ref, r.AdoptRoot); err != nil {
		return err
	}
	if err := store.settled(ctx, plan.Manifest.Short()); err != nil {
		return err
	}
	ready := func() (bool, error) {
		onDisk, complete, err := store.find(ctx, plan.Manifest)
		if complete {
			res.Manifest = plan.Manifest.asOn(onDisk)
		}
		return complete, err
	}
	lease, done, err := r.turn(ctx, store, claim, plan, ready)
	if err != nil {
		return err
	}
	defer lease.release()
	if res.Reused = done; !done {
		// The plan may have hoped for a version that is gone by now.
		if res.Manifest, err = r.fetch(ctx, claim, NewPlan(plan.Manifest, false)); err != nil {
			return err
		}
		res.Downloaded = r.stats.Fetched
	}
	if r.Prefetch {
		return nil
	}
	if now, err := store.Current(); err == nil && now != r.found && now != res.Manifest.Short() && r.overtaken(ctx, res.Manifest) {
		return errMoved
	}
	contended, err := store.publish(ctx, claim, res.Manifest, r.by())
	if err == nil && contended && r.overtaken(ctx, res.Manifest) {
		return errMoved
	}
	return err
}

// turn waits for this run's turn to download; done says that nothing is left
// to download. What is complete on disk needs no turn.
func (r *run) turn(ctx context.Context, store *Store, claim *claim, plan Plan, ready func() (bool, error)) (*lease, bool, error) {
	if plan.Reuse {
		if done, err := ready(); done || err != nil {
			return nil, done, err
		}
		if r.Offline {
			return nil, false, fmt.Errorf("%w: the version %s in %s was removed meanwhile and --offline forbids to fetch it again", ErrIntegrity, plan.Manifest.Short(), r.Root)
		}
	}
	return store.awaitTurn(ctx, claim, ready)
}

// makeRoom demands the space that a plan needs. When there is too little, the
// versions go that only their number keeps: the current one, those in use and
// those replaced a short while ago stay.
func (r *run) makeRoom(ctx context.Context, store *Store, plan Plan) error {
	for attempt := 1; ; attempt++ {
		free, err := r.free(store)
		if err != nil {
			return localError(err)
		}
		if free >= plan.Space {
			return nil
		}
		if attempt > 1 || r.Prefetch {
			return fmt.Errorf("%w: %s has %d bytes free, the version needs %d; enlarge the volume or remove old versions", ErrNoSpace, store.dir, free, plan.Space)
		}
		link, err := r.openLink(store)
		if err != nil {
			return err
		}
		r.Logger.InfoContext(ctx, "too little space: looking for old versions to remove", "root", r.Root, "free", free, "needed", plan.Space)
		collector, err := r.collector(store, link)
		if err == nil {
			_, err = collector.keeping(1).Collect(ctx, plan.Manifest.Short())
		}
		if err = errors.Join(err, link.close()); err != nil {
			r.Logger.WarnContext(ctx, "could not remove old versions", "root", r.Root, "error", err)
		}
	}
}

// free is what may still be written: what the file system has, and what is left
// of the limit over which the kubelet evicts the pod, which no file system tells.
func (r *run) free(store *Store) (int64, error) {
	free, err := r.hooks.freeBytes(store.dir)
	if err != nil || r.SizeLimit == 0 {
		return free, err
	}
	used := int64(0)
	seen := map[FileMark]bool{} // hard links count once
	err = fs.WalkDir(store.root.FS(), ".", func(_ string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // collected or swept meanwhile
		}
		if err != nil {
			return err
		}
		if info, err := d.Info(); err == nil && !seen[markOf(info)] {
			seen[markOf(info)] = info.Mode().IsRegular()
			used += diskUsage(info)
		}
		return nil
	})
	return min(free, r.SizeLimit-used), err
}

// layout finds the model in the staged version and makes the links to it.
func (r *run) layout(staged *staging, objects []Object) (*Layout, error) {
	layout := Layout{Kind: LayoutAny, Model: ".", Tokenizer: "."}
	if !r.AnyLayout {
		var err error
		if layout, err = detectLayout(staged.root.Root, objects, r.SubPath != ""); err != nil {
			return nil, fmt.Errorf("looking for the model in %s: %w", r.source.place(), err)
		}
	}
	return &layout, writeLayout(staged.root, layout)
}
