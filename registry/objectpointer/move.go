package objectpointer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/pilotlight-dev/pilotlight/registry"
	"github.com/pilotlight-dev/pilotlight/registry/internal/outlive"
)

// grace bounds the look at what came of a write whose answer was lost.
const grace = 10 * time.Second

// Init makes a pointer that names change.To at change.Location; an object that
// exists already, whatever it is, is registry.ErrExists.
func (c *Client) Init(ctx context.Context, ref registry.Ref, change registry.Change) (registry.Position, error) {
	change.Action = registry.ActionInit
	pos, err := c.init(ctx, ref, change)
	if err != nil {
		return registry.Position{}, fmt.Errorf("making %s: %w", ref, err)
	}
	return pos, nil
}

func (c *Client) init(ctx context.Context, ref registry.Ref, change registry.Change) (registry.Position, error) {
	if ref.Kind != registry.KindPointer {
		return registry.Position{}, fmt.Errorf("%w: it is not a pointer object (pointer+s3://bucket/key)", registry.ErrUnsupported)
	}
	if err := checkChange(change); err != nil {
		return registry.Position{}, err
	}
	// Asked first for the sake of stores that ignore If-None-Match.
	switch _, _, err := c.get(ctx, ref.Location, ""); {
	case err == nil:
		return registry.Position{}, fmt.Errorf("%w: promote moves it", registry.ErrExists)
	case !errors.Is(err, registry.ErrNotFound):
		return registry.Position{}, err
	}
	pos, err := c.write(ctx, registry.Position{Ref: ref}, change)
	if errors.Is(err, registry.ErrConflict) {
		return registry.Position{}, fmt.Errorf("%w: somebody made it this very moment (%w)", registry.ErrExists, err)
	}
	return pos, err
}

// Move points a pointer to another version, with its record, if it still stands
// where change.Expect says: change.Expect.Tag is compared when it is set, and
// change.Expect.Version always. Else it is registry.ErrConflict and nothing was
// written; registry.ErrOvertaken when ours was, and another followed. change needs To, Location and Digest. A pointer that names all three
// already is left alone.
//
// When the answer of the write was lost and the object cannot be read either,
// the error wraps registry.ErrUncertain. ErrNoConditions means that the store
// let two movers overwrite each other, or has no such writes at all.
func (c *Client) Move(ctx context.Context, ref registry.Ref, change registry.Change) (registry.Position, error) {
	pos, err := c.move(ctx, ref, change)
	if err != nil {
		return registry.Position{}, fmt.Errorf("moving %s to version %s: %w", ref, change.To, err)
	}
	return pos, nil
}

func (c *Client) move(ctx context.Context, ref registry.Ref, change registry.Change) (registry.Position, error) {
	if err := checkChange(change); err != nil {
		return registry.Position{}, err
	}
	cur, err := c.read(ctx, ref)
	if err != nil {
		return registry.Position{}, err
	}
	switch {
	case cur.Version != change.Expect.Version:
		return registry.Position{}, fmt.Errorf("%w: it names version %q, expected was %q", registry.ErrConflict, cur.Version, change.Expect.Version)
	case change.Expect.Tag != "" && cur.Tag != change.Expect.Tag:
		return registry.Position{}, fmt.Errorf("%w: it names version %q, but was moved since it was read", registry.ErrConflict, cur.Version)
	case cur.Version == change.To && cur.Location == change.Location && cur.Digest == change.Digest:
		return cur, nil
	case cur.Tag == "":
		return registry.Position{}, fmt.Errorf("%w: %w: it sends no ETag", registry.ErrUnsupported, ErrNoConditions)
	}
	return c.write(ctx, cur, change)
}

func checkChange(change registry.Change) error {
	if err := check(change.To, change.Location, change.Digest); err != nil {
		return fmt.Errorf("%w: %w", registry.ErrSyntax, err)
	}
	return nil
}

// write replaces the object that cur was read from, or makes one when cur has no
// tag, and finds out what came of it.
func (c *Client) write(ctx context.Context, cur registry.Position, change registry.Change) (registry.Position, error) {
	if err := c.requireConditions(ctx, cur.Ref.Location); err != nil {
		return registry.Position{}, err
	}
	ours := registry.NewEntry(change, cur.Version, c.opts.Now(), registry.StateDone)
	next := registry.Position{
		Ref: cur.Ref, Version: change.To, Location: change.Location, Digest: change.Digest,
		History: slices.Insert(slices.Clone(cur.History), 0, ours),
	}
	data, err := encode(next)
	if err != nil {
		return registry.Position{}, err
	}
	put := c.put(ctx, cur.Ref.Location, data, cur.Tag)
	if put != nil && (errors.Is(put, registry.ErrDenied) || errors.Is(put, registry.ErrUnsupported)) {
		return registry.Position{}, put // refused: nothing was written
	}
	after, cancel := outlive.Context(ctx, grace)
	defer cancel()
	now, err := c.read(after, cur.Ref)
	if err != nil {
		return registry.Position{}, unread(put, err)
	}
	return outcome(put, cur, now, ours)
}

// unread is what is known when the object could not be read after a write.
func unread(put, err error) error {
	switch {
	case put == nil:
		return fmt.Errorf("%w: it was written, but reading it back: %w", registry.ErrUncertain, err)
	case errors.Is(put, registry.ErrConflict), errors.Is(put, registry.ErrNotFound) && errors.Is(err, registry.ErrNotFound):
		return put
	}
	return fmt.Errorf("%w: %w; reading it back: %w", registry.ErrUncertain, put, err)
}

// outcome judges a write by what is there now.
func outcome(put error, cur, now registry.Position, ours registry.Entry) (registry.Position, error) {
	mine := slices.IndexFunc(now.History, func(e registry.Entry) bool { return e.ID == ours.ID })
	switch {
	case mine == 0: // whatever the answer was
		return now, nil
	case mine > 0:
		return registry.Position{}, fmt.Errorf("%w: it was moved to %q and then to %q", registry.ErrOvertaken, ours.To, now.Version)
	case put == nil:
		return registry.Position{}, fmt.Errorf("%w: %w: it accepted the move to %q and the pointer names %q without a trace of it", registry.ErrConflict, ErrNoConditions, ours.To, now.Version)
	case errors.Is(put, registry.ErrConflict), now.Tag != cur.Tag:
		return registry.Position{}, fmt.Errorf("%w: it names version %q by now", registry.ErrConflict, now.Version)
	}
	return registry.Position{}, put // nothing has changed
}

// impossible is an ETag that no object has.
const impossible = `"00000000000000000000000000000000"`

// requireConditions asks the store, where Options want it, whether it refuses a
// write whose condition cannot hold: once for a bucket.
func (c *Client) requireConditions(ctx context.Context, at registry.Location) error {
	if !c.opts.RequireConditions {
		return nil
	}
	c.mu.Lock()
	known := c.probed[at.Bucket]
	c.mu.Unlock()
	if known {
		return nil
	}
	at.Prefix += ".pilotlight-probe"
	err := c.put(ctx, at, nil, impossible)
	switch {
	case err == nil:
		return fmt.Errorf("%w: %w: it accepted a write whose If-Match cannot hold: use a store that has them, or an MLflow alias", registry.ErrUnsupported, ErrNoConditions)
	case !errors.Is(err, registry.ErrConflict) && !errors.Is(err, registry.ErrNotFound):
		return fmt.Errorf("asking the store for conditional writes: %w", err)
	}
	c.mu.Lock()
	c.probed[at.Bucket] = true
	c.mu.Unlock()
	return nil
}
