package fetcher

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/pilotlight-dev/pilotlight/registry"
)

// Peeker is what a Resolver may offer beside Resolve: which version a reference
// names now, in one request and without finding out where its files are. A
// version that the root has recorded then needs no further question.
//
// id tells apart two versions that were given the same number, one after the
// other was deleted (the time of its creation, for one); it may be empty.
type Peeker interface {
	Peek(ctx context.Context, ref registry.Ref) (name, version, id string, err error)
}

// Pointer is what a reference means at a moment, as far as it was cheap to find
// out. It is comparable: two equal Pointers mean that nothing has moved.
type Pointer struct {
	Name, Version string
	// ID is that of Peeker, or the digest that a pointer object records.
	ID string
	// Location is zero when only the version was asked for.
	Location registry.Location
}

// Look asks once, without patience, what the reference (or the pinned version)
// means now: one request where the Resolver is a Peeker, none for a fixed
// place. It does not touch the object store.
func Look(ctx context.Context, opts Options) (Pointer, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return Pointer{}, err
	}
	ref, err := opts.wanted()
	if err != nil {
		return Pointer{}, err
	}
	r := &run{Options: opts}
	return r.look(ctx, ref)
}

func (r *run) look(ctx context.Context, ref registry.Ref) (Pointer, error) {
	if res, ok := registry.Fixed(ref); ok {
		return Pointer{Location: res.Location}, nil
	}
	if peeker, ok := r.Resolver.(Peeker); ok && ref.Kind != registry.KindLoggedModel && ref.Kind != registry.KindPointer {
		name, version, id, err := peeker.Peek(ctx, ref)
		if err != nil {
			return Pointer{}, err // the resolver names itself and the reference
		}
		return Pointer{Name: name, Version: version, ID: id}, nil
	}
	return r.resolve(ctx, ref)
}

// resolve asks for everything.
func (r *run) resolve(ctx context.Context, ref registry.Ref) (Pointer, error) {
	res, err := r.Resolver.Resolve(ctx, ref)
	if err != nil {
		return Pointer{}, err // as in look
	}
	return Pointer{Name: res.Name, Version: res.Version, ID: res.Digest, Location: res.Location}, nil
}

// Means reports whether the manifest is of the version that the pointer names.
func (m Manifest) Means(p Pointer) bool {
	switch {
	case p.Name != m.Name || p.Version != m.Version:
		return false
	case p.ID != "" && m.PointerID != "" && p.ID != m.PointerID:
		return false
	case p.Location == registry.Location{}:
		return p.Version != "" // a name alone does not say which version
	}
	return p.Location.String() == m.Location
}

// wanted returns the reference to resolve: the pinned version, if there is one,
// else the reference itself.
func (o Options) wanted() (registry.Ref, error) {
	if o.Pin == "" {
		return o.Ref, nil
	}
	wrong := func(want string) (registry.Ref, error) {
		return registry.Ref{}, fmt.Errorf("%w: pinned version %q of %s: want %s", ErrUsage, oneLine(o.Pin), o.Ref, want)
	}
	switch o.Ref.Kind {
	case registry.KindAlias, registry.KindLatest, registry.KindStage, registry.KindVersion:
		ref, err := registry.ParseRef("models:/" + o.Ref.Name + "/" + o.Pin)
		if err != nil || ref.Kind != registry.KindVersion {
			return wrong("a version number, such as 7")
		}
		return ref, nil
	case registry.KindPointer, registry.KindObject:
		ref, err := registry.ParseRef(o.Pin)
		if err != nil || ref.Kind != registry.KindObject {
			return wrong("a place, such as s3://bucket/llama/7")
		}
		return ref, nil
	default:
		return wrong("no pin: the reference names one version by itself")
	}
}

// target finds out which files are meant, with as few questions as the root
// allows. The recorded manifest is the one of the version on disk that the
// pointer names, if there is one.
func (r *run) target(ctx context.Context, store *Store) (p Pointer, recorded *Manifest, err error) {
	ref, err := r.wanted()
	if err != nil {
		return Pointer{}, nil, err
	}
	if r.Offline && ref.Kind == registry.KindVersion {
		// Nothing has to be asked about a version that is recorded.
		p = Pointer{Name: ref.Name, Version: ref.Selector}
		if recorded, err = store.recorded(p, r.SubPath, r.filters); err != nil || recorded != nil {
			return p, recorded, err
		}
	}
	err = r.patiently(ctx, func(ctx context.Context) (err error) {
		p, err = r.look(ctx, ref)
		return err
	})
	if err != nil {
		return Pointer{}, nil, err
	}
	if recorded, err = store.recorded(p, r.SubPath, r.filters); err != nil {
		return Pointer{}, nil, err
	}
	if r.records = r.ofPinned(ctx, p); recorded == nil && r.records.ID != "" {
		if recorded, err = store.recorded(r.records, r.SubPath, r.filters); err != nil {
			return Pointer{}, nil, err
		}
	}
	if recorded != nil && p.Location == (registry.Location{}) {
		if p.Location, err = registry.ParseLocation(recorded.Location); err != nil {
			return Pointer{}, nil, fmt.Errorf("%w: the manifest of %s names no place: %w", ErrIntegrity, recorded.Short(), err)
		}
		if r.allowed(p.Location) != nil { // any more: what lies behind a proxy may be reached otherwise now
			p.Location, recorded = registry.Location{}, nil
		}
	}
	if p.Location == (registry.Location{}) {
		peeked := p
		err = r.patiently(ctx, func(ctx context.Context) (err error) {
			p, err = r.resolve(ctx, ref)
			return err
		})
		if err != nil {
			return Pointer{}, nil, err
		}
		if p.Name == peeked.Name && p.Version == peeked.Version {
			p.ID = peeked.ID // else the pointer moved in between
		}
	}
	if err := r.allowed(p.Location); err != nil {
		return Pointer{}, nil, err
	}
	r.Logger.InfoContext(ctx, "resolved the model", "ref", r.Ref.String(), "version", p.Version, "location", p.Location.String(), "recorded", recorded != nil)
	return p, recorded, nil
}

// recorded returns the manifest of the version on disk that a pointer names,
// the latest published where there are several (a prefix that was overwritten),
// or nil. The store may be nil.
func (s *Store) recorded(p Pointer, subPath string, filters []string) (*Manifest, error) {
	if s == nil {
		return nil, nil
	}
	shorts, err := s.versions()
	if err != nil {
		return nil, err
	}
	var found []Manifest
	for _, short := range shorts {
		m, err := s.Manifest(short)
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, ErrIntegrity):
			continue // damaged: it will be fetched again if it is needed
		case err != nil:
			return nil, err
		}
		if m.Means(p) && m.SubPath == subPath && slices.Equal(m.Filters, filters) {
			found = append(found, m)
		}
	}
	if len(found) == 0 {
		return nil, nil
	}
	ranks := s.State().ranks()
	best := slices.MinFunc(found, func(a, b Manifest) int {
		return cmp.Or(cmp.Compare(ranks.of(a.Short()), ranks.of(b.Short())), b.CreatedAt.Compare(a.CreatedAt), strings.Compare(a.Digest, b.Digest))
	})
	return &best, nil
}

// versions lists the folders of versions/.
func (s *Store) versions() ([]string, error) {
	names, err := s.list(versionsDir)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(names, func(name string) bool { return !isOurs(path.Join(versionsDir, name)) }), nil
}

// list returns the names in a folder of the root, sorted; none when there is no
// folder.
func (s *Store) list(name string) ([]string, error) {
	dir, err := s.root.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, localError(fmt.Errorf("opening %s in %s: %w", name, s.dir, err))
	}
	names, err := dir.Readdirnames(-1)
	if err = errors.Join(err, dir.Close()); err != nil {
		return nil, localError(fmt.Errorf("reading %s in %s: %w", name, s.dir, err))
	}
	slices.Sort(names)
	return names, nil
}

// ranks orders versions by their last publication, 0 the latest.
type ranks map[string]int

func (st State) ranks() ranks {
	r := ranks{}
	for i, p := range st.Published {
		short := Manifest{Digest: p.Digest}.Short()
		if _, ok := r[short]; !ok {
			r[short] = i
		}
	}
	return r
}

// of returns the rank of a version; those not on record come last.
func (r ranks) of(short string) int {
	if rank, ok := r[short]; ok {
		return rank
	}
	return maxHistory
}

// asOn returns the manifest of a version that is on disk as the pointer names
// it now: the same content may have been registered under several numbers.
func (m Manifest) asOn(onDisk Manifest) Manifest {
	onDisk.Ref, onDisk.Name, onDisk.Version, onDisk.PointerID, onDisk.Location = m.Ref, m.Name, m.Version, m.PointerID, m.Location
	return onDisk
}
