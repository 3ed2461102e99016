package fetcher

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/pilotlight-dev/pilotlight/fetcher/transfer"
	"github.com/pilotlight-dev/pilotlight/registry"
)

const (
	// firstRead is how much of a safetensors file is read before the length of
	// its header is known, in bytes. Most headers of a shard fit.
	firstRead = 256 << 10
	// inspectAtOnce is how many objects are looked into at once.
	inspectAtOnce = 8
)

// Inspection is what could be learned of a version in the store.
type Inspection struct {
	// Pointer is what the reference means now, with its location.
	Pointer Pointer
	// Manifest is what Init would fetch; its digest names the version.
	Manifest Manifest
}

// Inspect resolves and lists like [Init], and then proves from afar what Init
// proves after the download: every shard that a safetensors index names is
// there, and the header of every safetensors object describes exactly as many
// bytes as the object has. Content is not read beyond headers and indexes, and
// nothing is written; Root is not looked at.
//
// Errors are those of Init. Options.Deadline bounds the whole.
func Inspect(ctx context.Context, opts Options) (Inspection, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return Inspection{}, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, opts.Deadline, fmt.Errorf("%w (%v)", errDeadline, opts.Deadline))
	defer cancel()
	r := &run{Options: opts}
	out, err := r.listed(ctx)
	if err == nil {
		err = r.inspect(ctx, out.Manifest.Objects)
	}
	if err != nil {
		return Inspection{}, ended(ctx, err)
	}
	return out, nil
}

// List resolves and lists like [Init], and tells by the digest which version it
// would fetch; it reads no object. Errors are those of Init.
func List(ctx context.Context, opts Options) (Inspection, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return Inspection{}, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, opts.Deadline, fmt.Errorf("%w (%v)", errDeadline, opts.Deadline))
	defer cancel()
	out, err := (&run{Options: opts}).listed(ctx)
	if err != nil {
		return Inspection{}, ended(ctx, err)
	}
	return out, nil
}

func (r *run) listed(ctx context.Context) (Inspection, error) {
	pointer, _, err := r.target(ctx, nil)
	if err != nil {
		return Inspection{}, err
	}
	m, err := r.list(ctx, pointer)
	if err != nil {
		return Inspection{}, err
	}
	return Inspection{Pointer: pointer, Manifest: m}, nil
}

// inspect looks into the listed objects that say something about the others or
// about themselves.
func (r *run) inspect(ctx context.Context, objects []Object) error {
	have := make(map[string]bool, len(objects))
	pins := make(map[string]Object, len(objects))
	for _, o := range objects {
		have[o.Path], pins[o.Path] = true, o
	}
	r.source.setPins(pins)
	var bound limits
	err := r.patiently(ctx, func(ctx context.Context) (err error) {
		bound, err = r.source.limits(ctx, objects)
		return err
	})
	if err != nil {
		return fmt.Errorf("checking %s: %w", r.source.place(), err)
	}
	group, gctx := errgroup.WithContext(ctx)
	group.SetLimit(inspectAtOnce)
	if bound.connections > 0 {
		group.SetLimit(min(inspectAtOnce, bound.connections))
	}
	for _, o := range objects {
		var look func(context.Context) error
		switch {
		case strings.HasSuffix(o.Path, ".safetensors") && bound.lookMax > 0 && o.Size > bound.lookMax:
			r.Logger.InfoContext(ctx, "not looked into: the tracking server would have to fetch all of it", "object", o.Path, "size", o.Size)
			continue
		case strings.HasSuffix(o.Path, ".safetensors"):
			look = func(ctx context.Context) error { return r.inspectWeights(ctx, o) }
		case strings.HasSuffix(o.Path, ".safetensors.index.json"):
			look = func(ctx context.Context) error { return r.inspectIndex(ctx, o, have) }
		default:
			continue
		}
		group.Go(func() error {
			if err := r.patiently(gctx, look); err != nil {
				return fmt.Errorf("checking %s%s: %w", r.source.place(), o.Path, err)
			}
			return nil
		})
	}
	err = group.Wait() // each names its object
	if err != nil && ctx.Err() != nil {
		return errors.Join(context.Cause(ctx), err)
	}
	return err
}

func (r *run) inspectWeights(ctx context.Context, o Object) error {
	head, err := r.read(ctx, o, min(o.Size, firstRead))
	if err != nil {
		return err // inspect names the object
	}
	if len(head) >= 8 {
		// A header that is too long to be true is left for the check to refuse.
		length := binary.LittleEndian.Uint64(head)
		if want := 8 + int64(min(length, maxHeader)); length <= maxHeader && want > int64(len(head)) && want <= o.Size {
			if head, err = r.read(ctx, o, want); err != nil {
				return err // as above
			}
		}
	}
	return checkSafetensors(bytes.NewReader(head), o.Size)
}

func (r *run) inspectIndex(ctx context.Context, o Object, have map[string]bool) error {
	if o.Size > maxIndex {
		return fmt.Errorf("%w: an index of %d bytes", ErrIntegrity, o.Size)
	}
	data, err := r.read(ctx, o, o.Size)
	if err != nil {
		return err // as above
	}
	return checkIndex(bytes.NewReader(data), path.Dir(o.Path), have)
}

// read returns the first n bytes of an object.
func (r *run) read(ctx context.Context, o Object, n int64) ([]byte, error) {
	if n == 0 {
		return nil, nil
	}
	body, err := r.source.Get(ctx, transfer.Object{Path: o.Path, Size: o.Size}, 0, n)
	if err != nil {
		return nil, err // as above
	}
	data := make([]byte, n)
	_, err = io.ReadFull(body, data)
	if cerr := body.Close(); err == nil {
		err = cerr
	}
	if err != nil && ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if errors.Is(err, ErrIntegrity) {
		return nil, err // as above
	}
	if err != nil {
		return nil, fmt.Errorf("%w: reading the first %d bytes: %w", ErrStoreUnreachable, n, err)
	}
	return data, nil
}

// Fixed is a Resolver whose answer to every reference is known already.
type Fixed registry.Resolution

// Resolve implements Resolver.
func (f Fixed) Resolve(_ context.Context, ref registry.Ref) (registry.Resolution, error) {
	res := registry.Resolution(f)
	res.Ref = ref
	return res, nil
}
