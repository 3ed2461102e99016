package fetcher

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/pilotlight-dev/pilotlight/internal/retry"
	"github.com/pilotlight-dev/pilotlight/registry"
)

// ErrNotPublished: the writer of the root has not published what a read-only
// run waits for.
var ErrNotPublished = errors.New("nothing is published")

const followEvery = time.Second

// follow is a read-only run: it waits until a writer has published the version,
// says in the root that this pod uses it, and sets the pod's link. It asks
// neither the registry nor the store.
func (r *run) follow(ctx context.Context) (res Result, err error) {
	store, err := r.awaitRoot(ctx)
	if err != nil {
		return Result{}, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	store.verify = r.Verify
	link, err := r.openLink(store)
	if err != nil {
		return Result{}, err
	}
	defer func() { err = errors.Join(err, link.close()) }()
	if res, frozen, err := link.loaded(ctx); frozen || err != nil {
		return res, err
	}
	for said := false; ; said = true {
		m, reason, err := r.published(ctx, store)
		if err != nil {
			return Result{}, err
		}
		if reason == "" {
			res = Result{Manifest: m, Path: store.CurrentPath(), Reused: true}
			err = link.set(ctx, &res)
			if !errors.Is(err, errVanished) {
				return res, err
			}
			reason = "it was collected a moment ago"
		}
		if !said {
			r.Logger.InfoContext(ctx, "waiting for the writer", "root", r.Root, "reason", reason)
		}
		if err := retry.Sleep(ctx, followEvery); err != nil {
			return Result{}, fmt.Errorf("waiting for %s: %w in %s (%s): is the writer (pilotlight-fetcher agent --writer) running? %w", r.Ref, ErrNotPublished, r.Root, reason, err)
		}
	}
}

// awaitRoot waits for the folder, which a reader does not make.
func (r *run) awaitRoot(ctx context.Context) (*Store, error) {
	for {
		_, err := os.Stat(r.Root)
		if err == nil {
			return OpenStore(r.Root, r.Logger)
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%w: looking at the root: %w", ErrUsage, err)
		}
		if serr := retry.Sleep(ctx, followEvery); serr != nil {
			return nil, fmt.Errorf("waiting for the root: %w: %s does not exist: %w", ErrNotPublished, r.Root, serr)
		}
	}
}

// published returns the version to load: the pinned one if there is a pin, else
// the current one. The reason says why there is none yet.
func (r *run) published(ctx context.Context, store *Store) (m Manifest, reason string, err error) {
	if err := store.checkRef(r.Ref); err != nil {
		return Manifest{}, "", err
	}
	if r.Pin != "" {
		return r.pinned(ctx, store)
	}
	short, err := store.Current()
	if err != nil {
		return Manifest{}, "", err
	}
	if short == "" {
		return Manifest{}, "current is not there", nil
	}
	m, err = store.Manifest(short)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, ErrIntegrity):
		return Manifest{}, "the version of current is not readable", nil
	case err != nil:
		return Manifest{}, "", err
	case !store.whole(ctx, m):
		return Manifest{}, "the version of current is damaged", nil
	}
	return m, "", nil
}

func (r *run) pinned(ctx context.Context, store *Store) (m Manifest, reason string, err error) {
	ref, err := r.wanted()
	if err != nil {
		return Manifest{}, "", err
	}
	p := Pointer{Name: ref.Name, Version: ref.Selector}
	if ref.Kind == registry.KindObject {
		p = Pointer{Location: ref.Location}
	}
	found, err := store.recorded(p, r.SubPath, r.filters)
	switch {
	case err != nil:
		return Manifest{}, "", err
	case found == nil || !store.whole(ctx, *found):
		return Manifest{}, "the pinned version " + r.Pin + " is not there", nil
	}
	return *found, "", nil
}

// podLink is the frozen link of a run, or nothing at all.
type podLink struct {
	run    *run
	store  *Store
	target *Frozen
	reader string
}

func (r *run) openLink(store *Store) (*podLink, error) {
	l := &podLink{run: r, store: store, reader: r.Reader}
	if r.Link == "" {
		return l, nil
	}
	if l.reader == "" {
		l.reader = DefaultReader()
	}
	if err := CheckReader(l.reader); err != nil {
		return nil, err
	}
	var err error
	l.target, err = OpenFrozen(store, r.Link)
	return l, err
}

func (l *podLink) close() error {
	if l.target == nil {
		return nil
	}
	return l.target.Close()
}

func (l *podLink) frozen() *Frozen { return l.target }

// loaded reports whether the pod has its version already: then there is nothing
// to resolve and nothing to fetch, however far the pointer has moved.
func (l *podLink) loaded(ctx context.Context) (res Result, frozen bool, err error) {
	if l.target == nil {
		return Result{}, false, nil
	}
	short, err := l.target.Version()
	if err != nil || short == "" {
		return Result{}, false, err
	}
	if mark, err := l.target.Thawed(); err != nil || mark != "" {
		return Result{}, false, err
	}
	m, err := l.store.Manifest(short)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, ErrIntegrity) || err == nil && !l.store.whole(ctx, m) {
		return Result{}, false, nil
	}
	if err != nil {
		return Result{}, false, err
	}
	l.run.Logger.InfoContext(ctx, "this pod has its version already, and keeps it for its life", "link", l.target.Path(), "digest", short, "version", m.Version)
	res = Result{Manifest: m, Path: l.store.CurrentPath(), Reused: true}
	return res, true, l.set(ctx, &res)
}

// set makes the link, if there is one, name the version of the result.
func (l *podLink) set(ctx context.Context, res *Result) error {
	if l.target == nil {
		return nil
	}
	named, err := l.target.Freeze(ctx, l.reader, res.Manifest.Short(), HoldWithoutAgent)
	if err != nil {
		return err
	}
	if named != res.Manifest.Short() { // somebody in this pod was faster
		m, err := l.store.Manifest(named)
		if err != nil {
			return fmt.Errorf("reading the version that %s names: %w", l.target.Path(), err)
		}
		res.Manifest = m
	}
	res.Link = l.target.Path()
	return nil
}
