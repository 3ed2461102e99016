package fetcher

import (
	"context"
	"errors"
	"io"
	"log/slog"

	"github.com/pilotlight-dev/pilotlight/fetcher/transfer"
	"github.com/pilotlight-dev/pilotlight/fetcher/volume"
	"github.com/pilotlight-dev/pilotlight/registry"
)

// WithWriteFault returns opts whose writes to disk fail as fault says.
func WithWriteFault(opts Options, fault func(path string) error) Options {
	opts.hooks.write = fault
	return opts
}

// WithFreeBytes returns opts that believe in so much free space.
func WithFreeBytes(opts Options, free int64) Options {
	opts.hooks.freeBytes = func(string) (int64, error) { return free, nil }
	return opts
}

// CheckSafetensors exposes the header check.
func CheckSafetensors(r io.ReaderAt, size int64) error { return checkSafetensors(r, size) }

// HoldClaim makes a live run's leftovers in a root and returns how to end it.
func HoldClaim(root, short string) (end func() error, err error) {
	s, err := OpenStore(root, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	c, err := s.claim(short)
	if err != nil {
		return nil, err
	}
	if _, err := c.stage(context.Background(), Plan{Dirs: []string{"dir"}}, volume.Choice{}); err != nil {
		return nil, err
	}
	return c.lock.Close, nil // like a crash: the lock goes, the files stay
}

// WithSizes returns opts under which objects above whole bytes are read in
// ranges of least to most bytes.
func WithSizes(opts Options, whole, least, most int64) Options {
	opts.hooks.tune = func(o *transfer.Options) { o.WholeMax, o.RangeMin, o.RangeMax = whole, least, most }
	return opts
}

// WithStep returns opts that ask step before each change of the root's folders.
func WithStep(opts Options, step func(op, name string) error) Options {
	opts.hooks.step = step
	return opts
}

// ReadRange reads a range of one object and returns how many bytes came.
func ReadRange(ctx context.Context, api S3API, size, off, n int64) (int64, error) {
	s := newSource(api, registry.Location{Bucket: "bucket"}, "")
	s.pins = map[string]Object{"x": {Path: "x", Size: size, ETag: "e"}}
	body, err := s.Get(ctx, transfer.Object{Path: "x", Size: size}, off, n)
	if err != nil {
		return 0, err
	}
	got, err := io.Copy(io.Discard, body)
	return got, errors.Join(err, body.Close())
}

// ProxiedSource reads files below a folder behind an artifact proxy.
func ProxiedSource(api Artifacts, dir string) transfer.Source {
	return newArtifactSource(api, registry.Location{Scheme: registry.SchemeArtifacts, Prefix: dir}, "", slog.New(slog.DiscardHandler))
}
