package fetcher

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"

	"github.com/pilotlight-dev/pilotlight/fetcher/checksum"
	"github.com/pilotlight-dev/pilotlight/fetcher/transfer"
	"github.com/pilotlight-dev/pilotlight/fetcher/volume"
	"github.com/pilotlight-dev/pilotlight/internal/retry"
)

// fetch downloads, verifies and installs a version. It returns the manifest
// with the checksums that were verified. What an earlier run left of the same
// version is taken over, and files that other versions on the volume have are
// linked.
func (r *run) fetch(ctx context.Context, claim *claim, plan Plan) (m Manifest, err error) {
	choice := volume.Choose(claim.store.dir, r.Durability)
	r.Logger.InfoContext(ctx, "chose how to write", "durability", string(choice.Durability), "writes", choice.How().String(),
		"filesystem", choice.FS, "reason", choice.Why)
	staged, err := claim.stage(ctx, plan, choice)
	if err != nil {
		return Manifest{}, err
	}
	defer func() {
		if err != nil && !worthResuming(ctx, err) && claim.check() == nil {
			err = errors.Join(err, staged.journal.discard())
		}
		err = errors.Join(err, staged.close())
	}()
	r.Progress.Planned(plan)
	linked, err := r.linkEqual(ctx, staged, plan)
	if err != nil {
		return Manifest{}, err
	}
	plan.Space -= staged.allocated(plan, linked)
	if err := r.makeRoom(ctx, claim.store, plan); err != nil {
		return Manifest{}, err
	}
	sums, err := r.transfer(ctx, staged, plan, linked)
	if err == nil {
		err = claim.check()
	}
	if err != nil {
		return Manifest{}, err
	}
	m = plan.Manifest
	m.Objects = sortedByPath(m.Objects) // a copy: the plan's stay as they are
	for i, o := range m.Objects {
		m.Objects[i].Checksum = sums[o.Path]
	}
	if choice.Durability == volume.Ephemeral {
		m.BootID = volume.BootID()
		m.Ephemeral = true
	}
	if err := checkModelFiles(staged.root.Root, m.Objects); err != nil {
		return Manifest{}, err
	}
	if m.Layout, err = r.layout(staged, m.Objects); err != nil {
		return Manifest{}, err
	}
	if ctx.Err() != nil {
		return Manifest{}, context.Cause(ctx)
	}
	return m, staged.commit(ctx, m)
}

// worthResuming reports whether another run can go on where this one ended: it
// was not the content or the volume that was wrong.
func worthResuming(ctx context.Context, err error) bool {
	return ctx.Err() != nil || errors.Is(err, ErrStoreUnreachable)
}

// transfer moves what is not linked and returns the checksums of everything.
func (r *run) transfer(ctx context.Context, staged *staging, plan Plan, linked map[string]string) (map[string]string, error) {
	var objects []transfer.Object
	pins := map[string]Object{}
	for _, o := range plan.Fetch {
		if _, ok := linked[o.Path]; ok {
			r.linked += o.Size
			continue
		}
		pins[o.Path] = o
		objects = append(objects, transfer.Object{Path: o.Path, Size: o.Size})
	}
	r.source.setPins(pins)
	memory := r.Memory
	if memory > 0 && !staged.how.Direct {
		// Two files are usually open at once, each with a window of dirty pages.
		memory = max(1, memory-2*volume.DirtyWindow)
	}
	opts := transfer.Options{
		Source: r.source, Sink: sink{staged, r.hooks}, Journal: staged.journal,
		Connections: r.Connections, Memory: memory, Bandwidth: r.Bandwidth, Stall: r.Stall, ETags: r.ETags,
		Backoff:  retry.Policy{Base: r.RetryBase, Max: r.RetryMax},
		Observer: r.Progress, Logger: r.Logger,
	}
	if err := r.limit(ctx, &opts, plan.Fetch); err != nil {
		return nil, err
	}
	if r.hooks.tune != nil {
		r.hooks.tune(&opts)
	}
	report, err := transfer.Run(ctx, opts, objects)
	r.stats = report.Stats
	r.retries.Add(report.Stats.Retries)
	if err != nil {
		return nil, fmt.Errorf("transfer from %s: %w", r.source.place(), localError(err))
	}
	sums := maps.Clone(linked)
	for i, o := range objects {
		if sum := report.Sums[i]; sum.Algorithm != "" {
			sums[o.Path] = sum.String()
		}
	}
	return sums, nil
}

// limit gives a transfer the bounds of the origin.
func (r *run) limit(ctx context.Context, opts *transfer.Options, objects []Object) error {
	var l limits
	err := r.patiently(ctx, func(ctx context.Context) (err error) {
		l, err = r.source.limits(ctx, objects)
		return err
	})
	if err != nil {
		return fmt.Errorf("transfer from %s: %w", r.source.place(), err)
	}
	if l.whole {
		opts.WholeMax = math.MaxInt64
	}
	if l.connections > 0 && (opts.Connections == 0 || opts.Connections > l.connections) {
		opts.Connections = l.connections
	}
	opts.Stall = max(opts.Stall, l.stall)
	return nil
}

// sink makes the files of a transfer in a staging folder.
type sink struct {
	staged *staging
	hooks  hooks
}

// Create implements transfer.Sink.
func (s sink) Create(o transfer.Object) (transfer.File, error) {
	f, err := s.staged.create(o.Path, o.Size)
	if err != nil {
		return nil, err // names the file
	}
	return &stagedFile{File: f, path: o.Path, write: s.hooks.write}, nil
}

// stagedFile lets tests stand between the transfer and the disk.
type stagedFile struct {
	*volume.File
	path  string
	write func(path string) error
}

// WriteAt implements io.WriterAt.
func (f *stagedFile) WriteAt(p []byte, off int64) (int, error) {
	if f.write != nil {
		if err := f.write(f.path); err != nil {
			return 0, err
		}
	}
	return f.File.WriteAt(p, off) // names the file
}

// hooks are seams for tests.
type hooks struct {
	write     func(path string) error                        // before each write
	freeBytes func(root string) (available int64, err error) // instead of statfs
	tune      func(*transfer.Options)                        // the transfer
	step      func(op, name string) error                    // before each change of the root's folders
}

// parseChecksum reads what a manifest records; zero if it records nothing.
func parseChecksum(text string) checksum.Sum {
	s, err := checksum.Parse(text)
	if err != nil {
		return checksum.Sum{}
	}
	return s
}
