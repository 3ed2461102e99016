package fetcher

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/pilotlight-dev/pilotlight/fetcher/checksum"
	"github.com/pilotlight-dev/pilotlight/fetcher/transfer"
	"github.com/pilotlight-dev/pilotlight/internal/retry"
)

const (
	// linkFrom is the smallest file worth a question to the store, in bytes.
	linkFrom = 1 << 20
	// askTwin is how often the question is asked: one answer that fails would
	// cost the download of a shard that is there, and its space a second time.
	askTwin = 3
)

// twin is a file of another version that may be the same.
type twin struct {
	version, path string
	sum           checksum.Sum
}

// twins indexes the files of the versions on the volume by size and ETag. Files
// whose checksum is not known cannot be proven equal.
func (s *Store) twins(except string) (map[string]twin, error) {
	shorts, err := s.versions()
	if err != nil {
		return nil, err
	}
	out := map[string]twin{}
	for _, short := range shorts {
		m, err := s.Manifest(short)
		if short == except || errors.Is(err, fs.ErrNotExist) || errors.Is(err, ErrIntegrity) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, o := range m.Objects {
			if sum := parseChecksum(o.Checksum); o.Size >= linkFrom && sum.Algorithm != "" && sum.Parts == 0 {
				out[twinKey(o)] = twin{version: short, path: o.Path, sum: sum}
			}
		}
	}
	return out, nil
}

func twinKey(o Object) string { return fmt.Sprintf("%d %s", o.Size, o.ETag) }

// linkEqual gives the new version the files that another one on the volume has:
// the same size and ETag, the same checksum by the store's word now, and the
// same by reading the file. It returns the checksums of the files it linked.
// What goes wrong with one of them costs a download and nothing else.
func (r *run) linkEqual(ctx context.Context, staged *staging, plan Plan) (map[string]string, error) {
	store := staged.claim.store
	candidates, err := store.twins(plan.Manifest.Short())
	if err != nil {
		return nil, err
	}
	linked := map[string]string{}
	var mu sync.Mutex
	group, gctx := errgroup.WithContext(ctx)
	group.SetLimit(4) // disks like a few readers
	pins := make(map[string]Object, len(plan.Fetch))
	for _, o := range plan.Fetch {
		pins[o.Path] = o
	}
	r.source.setPins(pins)
	for _, o := range plan.Fetch {
		t, ok := candidates[twinKey(o)]
		if !ok {
			continue
		}
		group.Go(func() error {
			if err := r.linkOne(gctx, staged, o, t); err != nil {
				r.Logger.InfoContext(gctx, "cannot take a file from another version, will fetch it", "object", o.Path, "version", t.version, "error", err)
				return gctx.Err() // an error of one file does not end the run
			}
			mu.Lock()
			defer mu.Unlock()
			linked[o.Path] = t.sum.String()
			return nil
		})
	}
	if group.Wait() != nil {
		return nil, context.Cause(ctx)
	}
	return linked, nil
}

// errDiffers marks a file that is not the object's content after all.
var errDiffers = errors.New("the content differs")

func (r *run) linkOne(ctx context.Context, staged *staging, o Object, t twin) error {
	var facts transfer.Facts
	policy := retry.Policy{
		Base: r.RetryBase, Max: r.RetryMax, Attempts: askTwin,
		Retryable: func(err error) bool { return passes(err) || errors.Is(err, transfer.ErrCredentials) },
	}
	err := retry.Do(ctx, policy, func(ctx context.Context, _ int) (err error) {
		facts, err = r.source.Facts(ctx, transfer.Object{Path: o.Path, Size: o.Size})
		return err // the caller logs it with the object's name
	})
	if err != nil {
		return err // as above
	}
	known := false
	for _, s := range facts.Sums {
		known = known || s.Equal(t.sum)
	}
	if !known {
		return fmt.Errorf("%w: the store does not confirm %s", errDiffers, t.sum)
	}
	store := staged.claim.store
	name := path.Join(versionsDir, t.version, t.path)
	got, err := store.sumFile(ctx, name, t.sum.Algorithm)
	if err != nil {
		return err // it names the file
	}
	if !got.Equal(t.sum) {
		return fmt.Errorf("%w: %s has %s, its manifest says %s", errDiffers, name, got, t.sum)
	}
	if err := staged.vacate(o.Path); err != nil {
		return err // it names the file
	}
	if err := store.root.Link(name, path.Join(staged.claim.path(""), o.Path)); err != nil {
		return localError(err)
	}
	r.Progress.Advanced(o.Size)
	return nil
}
