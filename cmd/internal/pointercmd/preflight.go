package pointercmd

import (
	"context"
	"errors"
	"fmt"

	"github.com/pilotlight-dev/pilotlight/cmd/internal/modelsource"
	"github.com/pilotlight-dev/pilotlight/fetcher"
	"github.com/pilotlight-dev/pilotlight/registry"
)

// proven is a version that may be moved to.
type proven struct {
	version  string
	location registry.Location
	digest   string // of what pods fetch
	record   string // what the pointer is to record of it: digest, or that of the whole
	objects  int
	bytes    int64
}

// pin is how a pod template names the version: a number where the registry
// counts, else its place.
func (p proven) pin(ref registry.Ref) string {
	if ref.Kind == registry.KindAlias {
		return p.version
	}
	return p.location.String()
}

// prove demands of a version that it is where it is allowed to be, and whole:
// every object is listed, no key is hostile, every shard that an index names is
// there, every safetensors header fits its object. ctx is the signal's; timed
// is it with the command's bound, whose rest is what the store gets.
func (a *app) prove(ctx, timed context.Context, ref registry.Ref, res registry.Resolution, recorded string, connect modelsource.Connect) (proven, error) {
	opts, err := a.fetchOptions(timed, ref, fetcher.Fixed(res), connect)
	if err != nil {
		return proven{}, err
	}
	got, err := fetcher.Inspect(ctx, opts)
	if err != nil {
		return proven{}, fmt.Errorf("version %s of %s cannot be served, nothing was moved: %w", res.Version, ref, err)
	}
	m := got.Manifest
	record, err := a.recordable(timed, opts, m.Digest, recorded)
	if err != nil {
		return proven{}, fmt.Errorf("version %s of %s cannot be compared with what is recorded, nothing was moved: %w", res.Version, ref, err)
	}
	if record == "" {
		return proven{}, classify(errors.Join(fetcher.ErrIntegrity), "version %s of %s is not what it was, nothing was moved: its files in %s have the digest %s, recorded is %s (were they overwritten, or is --sub-path, --include or --exclude another one?)",
			res.Version, ref, res.Location, short(m.Digest), short(recorded))
	}
	return proven{version: res.Version, location: res.Location, digest: m.Digest, record: record, objects: len(m.Objects), bytes: m.Bytes()}, nil
}

// recordable returns what a pointer is to record of files with a digest, when it
// has recorded something of them before: the same, or "" if they are not those.
// As with fetchers, a part (a sub-path, filters) counts when the whole is what is
// recorded. That stays recorded: it is what those demand who fetch it all.
func (a *app) recordable(ctx context.Context, opts fetcher.Options, digest, recorded string) (string, error) {
	if recorded == "" || recorded == digest {
		return digest, nil
	}
	if opts.SubPath == "" && len(opts.Include)+len(opts.Exclude) == 0 {
		return "", nil
	}
	opts.SubPath, opts.Include, opts.Exclude, opts.AnyLayout = "", nil, nil, true
	whole, err := fetcher.List(ctx, opts)
	if err != nil || whole.Manifest.Digest != recorded {
		return "", err
	}
	return recorded, nil
}
