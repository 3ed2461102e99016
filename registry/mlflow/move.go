package mlflow

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/pilotlight-dev/pilotlight/internal/retry"
	"github.com/pilotlight-dev/pilotlight/registry"
	"github.com/pilotlight-dev/pilotlight/registry/internal/outlive"
)

// grace bounds what is done to learn and record the outcome of a move after
// the caller's context has ended.
const grace = 10 * time.Second

// Read says where an alias stands, and what is recorded of its moves. An alias
// that does not exist is registry.ErrNotFound. For one whose version was deleted
// the position is returned all the same, beside an error that wraps
// registry.ErrBroken: a Change that expects it moves the alias away. A record
// that cannot be read is Position.HistoryErr and no error.
func (c *Client) Read(ctx context.Context, ref registry.Ref) (registry.Position, error) {
	pos, err := c.position(ctx, ref)
	if err != nil {
		return pos, fmt.Errorf("reading %s at %s: %w", ref, c.Origin(), err)
	}
	return pos, nil
}

func (c *Client) position(ctx context.Context, ref registry.Ref) (registry.Position, error) {
	if err := movable(ref); err != nil {
		return registry.Position{}, err
	}
	mv, dangling := c.byAlias(ctx, ref)
	if dangling != nil && !errors.Is(dangling, errDangling) {
		return registry.Position{}, dangling
	}
	m, err := c.model(ctx, ref.Name)
	if err != nil {
		return registry.Position{}, err
	}
	pos := registry.Position{Ref: ref, Version: string(mv.Version)}
	if dangling != nil {
		pos.Version, _ = m.alias(ref.Selector)
	}
	if pos.Version == "" {
		return registry.Position{}, cmpOr(dangling, fmt.Errorf("%w: the answer for %s names no version", registry.ErrBroken, ref))
	}
	pos.History, pos.HistoryErr = c.history(ctx, ref, m)
	pos.History = registry.Settle(pos.History, pos.Version)
	return pos, dangling
}

// cmpOr is the first error that is one.
func cmpOr(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// movable accepts aliases that MLflow lets anybody set.
func movable(ref registry.Ref) error {
	if ref.Kind != registry.KindAlias {
		return fmt.Errorf("%w: %s does not move: only an alias does (models:/name@alias)", registry.ErrUnsupported, ref)
	}
	digits, isV := strings.CutPrefix(strings.ToLower(ref.Selector), "v")
	reserved := isV && digits != "" && strings.Trim(digits, "0123456789") == ""
	if reserved || strings.EqualFold(ref.Selector, "latest") {
		return fmt.Errorf("%w: %s is a name that MLflow keeps for itself, and no alias can be called so", registry.ErrUnsupported, ref.Selector)
	}
	return nil
}

// Init makes an alias that does not exist, of a model that does, and records it.
// An alias that exists, even one whose version was deleted, is
// registry.ErrExists. Otherwise it is like Move.
func (c *Client) Init(ctx context.Context, ref registry.Ref, change registry.Change) (registry.Position, error) {
	change.Action = registry.ActionInit
	pos, err := c.init(ctx, ref, change)
	if err != nil {
		return registry.Position{}, fmt.Errorf("making %s at %s: %w", ref, c.Origin(), err)
	}
	return pos, nil
}

func (c *Client) init(ctx context.Context, ref registry.Ref, change registry.Change) (registry.Position, error) {
	if err := movable(ref); err != nil {
		return registry.Position{}, err
	}
	switch mv, err := c.byAlias(ctx, ref); {
	case err == nil:
		return registry.Position{}, fmt.Errorf("%w: it names version %s: promote moves it", registry.ErrExists, mv.Version)
	case errors.Is(err, errDangling):
		return registry.Position{}, fmt.Errorf("%w: %s", registry.ErrExists, err.Error()) // one class only
	case !errors.Is(err, registry.ErrNotFound):
		return registry.Position{}, err
	}
	m, err := c.model(ctx, ref.Name)
	if err != nil {
		return registry.Position{}, err
	}
	cur := registry.Position{Ref: ref}
	cur.History, cur.HistoryErr = c.history(ctx, ref, m) // of an alias that was deleted
	return c.change(ctx, cur, change)
}

// Move points an alias to another version and records it. Nothing is written
// when the alias does not stand where change.Expect says, or when the version
// cannot be served (registry.ErrConflict, ErrNotFound, ErrPending, ErrBroken).
// An alias that stands at change.To already is left alone.
//
// MLflow has no compare-and-set and no transaction, so a move is four steps:
//
//  1. the record of it is written to the tag, as pending;
//  2. the alias is set, which MLflow does atomically;
//  3. the alias is read back: anything but change.To is registry.ErrConflict;
//  4. the record is completed.
//
// A crash before 2 leaves a pending entry of a move that did not happen, one
// after 2 a pending entry of one that did; readers tell them apart by where the
// alias stands (registry.Settle). A failure in 4 is Position.HistoryErr, since
// the move itself has happened. Somebody who moves the alias between our look
// and 2 is overwritten: the window is a few requests wide and cannot be closed.
//
// A set whose answer got lost is not sent again before the alias was read, even
// when ctx has ended by then. When it cannot be read either, the error wraps
// registry.ErrUncertain.
func (c *Client) Move(ctx context.Context, ref registry.Ref, change registry.Change) (registry.Position, error) {
	pos, err := c.move(ctx, ref, change)
	if err != nil {
		return registry.Position{}, fmt.Errorf("moving %s to version %s at %s: %w", ref, change.To, c.Origin(), err)
	}
	return pos, nil
}

func (c *Client) move(ctx context.Context, ref registry.Ref, change registry.Change) (registry.Position, error) {
	cur, err := c.position(ctx, ref)
	if err != nil && !errors.Is(err, errDangling) {
		return registry.Position{}, err
	}
	if cur.Version != change.Expect.Version {
		return registry.Position{}, conflict(cur.Version, change.Expect.Version)
	}
	if cur.Version == change.To {
		return cur, err
	}
	return c.change(ctx, cur, change)
}

// change does the four steps of a move from where the alias stands.
func (c *Client) change(ctx context.Context, cur registry.Position, change registry.Change) (registry.Position, error) {
	ref := cur.Ref
	mv, err := c.version(ctx, ref.Name, change.To)
	if err == nil {
		err = checkStatus(mv)
	}
	if err != nil {
		return registry.Position{}, err
	}
	if cur.HistoryErr != nil {
		c.keepUnreadable(ctx, ref)
	}
	ours := registry.NewEntry(change, cur.Version, c.now(), registry.StatePending)
	ours.Location = "" // MLflow is asked for it
	if err := c.writeHistory(ctx, ref, slices.Insert(slices.Clone(cur.History), 0, ours)); err != nil {
		return registry.Position{}, fmt.Errorf("recording the move before it is made (nothing has moved): %w", err)
	}
	return c.set(ctx, ref, change.To, ours, cur.History)
}

func conflict(stands, expected string) error {
	return fmt.Errorf("%w: it names version %s, expected was %s", registry.ErrConflict, excerpt(stands), excerpt(expected))
}

// keepUnreadable copies a record that is about to be replaced, as well as it
// can: a move never waits for it.
func (c *Client) keepUnreadable(ctx context.Context, ref registry.Ref) {
	m, err := c.model(ctx, ref.Name)
	if err == nil {
		err = c.setModelTag(ctx, ref.Name, unreadableTag(ref.Selector), m.tag(historyTag(ref.Selector)))
	}
	if err != nil {
		c.log.WarnContext(ctx, "the unreadable history is replaced without a copy", "ref", ref.String(), "error", err)
		return
	}
	c.log.WarnContext(ctx, "the unreadable history is replaced; its text is kept", "ref", ref.String(), "tag", unreadableTag(ref.Selector))
}

// set does steps 2 to 4; before is the history without our entry.
func (c *Client) set(ctx context.Context, ref registry.Ref, to string, ours registry.Entry, before []registry.Entry) (registry.Position, error) {
	if err := c.setVerified(ctx, ref, to, ours.From); err != nil {
		if errors.Is(err, errRefused) {
			c.retract(ctx, ref, ours)
		}
		return registry.Position{}, err
	}
	after, cancel := outlive.Context(ctx, grace)
	defer cancel()
	entries, err := c.complete(after, ref, ours)
	pos := registry.Position{Ref: ref, Version: to, History: registry.Settle(entries, to)}
	if err != nil {
		pos.HistoryErr = fmt.Errorf("the pointer moved, but its record could not be completed: %w", err)
		c.log.WarnContext(ctx, "the pointer moved, but its record stays pending", "ref", ref.String(), "error", err)
		pos.History = registry.Settle(slices.Insert(slices.Clone(before), 0, ours), to)
	}
	return pos, nil
}

// errRefused marks a set that the server turned down: it will not happen later.
var errRefused = errors.New("the alias was not set")

// setVerified sets the alias and reads it back. It returns nil when the alias
// names the version, registry.ErrConflict when it names one that is neither this
// nor the one before, registry.ErrUncertain when nobody knows, and another error
// when it did not move.
func (c *Client) setVerified(ctx context.Context, ref registry.Ref, to, from string) error {
	body := map[string]string{"name": ref.Name, "alias": ref.Selector, "version": to}
	post := request{method: http.MethodPost, base: c.registry, call: "registered-models/alias", body: body}
	policy := c.policy(ctx, post.call)
	err := retry.Do(ctx, policy, func(ctx context.Context, _ int) error {
		posted := c.once(ctx, post, &struct{}{})
		if posted != nil && !isPassing(posted) {
			return fmt.Errorf("%w: %w", errRefused, posted)
		}
		stands, err := c.standsAt(ctx, ref)
		switch {
		case err != nil:
			return fmt.Errorf("%w: reading it back: %w", registry.ErrUncertain, finalError{cmpOr(posted, err)})
		case stands == to:
			return nil
		case posted != nil && stands == from:
			return posted // it did not happen, so far: once more
		}
		if stands == "" {
			return fmt.Errorf("%w: it was deleted", registry.ErrConflict)
		}
		return fmt.Errorf("%w: it names version %s now, and was to name %s", registry.ErrConflict, excerpt(stands), excerpt(to))
	})
	if err != nil {
		return fmt.Errorf("asking %s: %w", c.place(post), classed(err))
	}
	return nil
}

// finalError hides from retry that the same request might succeed later.
type finalError struct{ error }

func (e finalError) Unwrap() []error {
	for _, class := range []error{registry.ErrUnreachable, registry.ErrDenied, registry.ErrBroken, registry.ErrNotFound} {
		if errors.Is(e.error, class) {
			return []error{class}
		}
	}
	return nil
}

// standsAt reads the version that an alias names, deleted or not, also after
// the caller has gone.
func (c *Client) standsAt(ctx context.Context, ref registry.Ref) (string, error) {
	ctx, cancel := outlive.Context(ctx, grace)
	defer cancel()
	mv, err := c.byAlias(ctx, ref)
	switch {
	case errors.Is(err, errDangling):
		m, err := c.model(ctx, ref.Name)
		version, _ := m.alias(ref.Selector)
		return version, err
	case errors.Is(err, registry.ErrNotFound):
		return "", nil // somebody deleted the alias
	}
	return string(mv.Version), err
}
