// Package registryconformance is the suite that every backend of pointers has
// to pass: what package registry promises of Read, Move, Versions and Resolve,
// tried from outside. A backend is handed in as a few constructors, so that the
// same tests run on the stand-ins in memory and on real servers:
//
//	registryconformance.Run(t, registryconformance.Backend{Client: ..., Make: ...})
//
// The suite's own test runs it on the MLflow stand-in and on pointer objects in
// the S3 stand-in.
package registryconformance

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/registry"
)

// Pointer is what every backend offers.
type Pointer interface {
	Read(ctx context.Context, ref registry.Ref) (registry.Position, error)
	Move(ctx context.Context, ref registry.Ref, change registry.Change) (registry.Position, error)
	Init(ctx context.Context, ref registry.Ref, change registry.Change) (registry.Position, error)
	Versions(ctx context.Context, ref registry.Ref) ([]registry.Version, error)
	Resolve(ctx context.Context, ref registry.Ref) (registry.Resolution, error)
}

// Backend says how to reach one and how to make what the tests need in it.
// Names that Make is given differ within one run; a server that outlives the
// run has to make them unique by itself.
type Backend struct {
	// Client makes a client of its own, as another machine would have.
	Client func(t *testing.T) Pointer
	// Make makes a model called name with the versions "1" to "n", and a pointer
	// to "1" that nobody has moved yet.
	Make func(t *testing.T, name string, n int) registry.Ref
	// Missing is a reference to a pointer that does not exist.
	Missing func(t *testing.T, name string) registry.Ref
	// Dangle makes a pointer lead nowhere.
	Dangle func(t *testing.T, ref registry.Ref)
	// Describe returns what a Change to a version has to carry, and where the
	// version's files lie.
	Describe func(ref registry.Ref, version string) (at registry.Location, digest string)
	// Exact: the backend has a compare-and-set, so that of movers at once those
	// that were accepted, and only those, are in the history.
	Exact bool
	// MaxHistory is how many moves at least are remembered, and AtMost how many
	// at most.
	MaxHistory, AtMost int
}

// Run runs the suite.
func Run(t *testing.T, b Backend) {
	t.Helper()
	for name, test := range map[string]func(*testing.T, Backend){
		"ResolveAndRead":      resolveAndRead,
		"MoveAndBack":         moveAndBack,
		"MoveToWhereItStands": moveToWhereItStands,
		"InitOfOneThatExists": initOfOneThatExists,
		"Conflict":            conflict,
		"MissingVersion":      versionIsChecked,
		"ConcurrentMovers":    concurrentMovers,
		"PatientMovers":       patientMovers,
		"HistoryIsBounded":    historyIsBounded,
		"LongMessages":        longMessages,
		"MissingPointer":      missingPointer,
		"DanglingPointer":     danglingPointer,
		"OddNames":            oddNames,
		"Versions":            versions,
		"CancelledContext":    cancelledContext,
		"NotAPointer":         notAPointer,
	} {
		t.Run(name, func(t *testing.T) { test(t, b) })
	}
}

// change is a move from a position, as the command line asks for it.
func (b Backend) change(expect registry.Position, to string) registry.Change {
	loc, digest := b.Describe(expect.Ref, to)
	return registry.Change{
		Expect: expect, To: to, Location: loc, Digest: digest,
		Action: registry.ActionPromote, By: "ann@laptop", Message: "to " + to,
	}
}

func (b Backend) read(t *testing.T, c Pointer, ref registry.Ref) registry.Position {
	t.Helper()
	pos, err := c.Read(t.Context(), ref)
	require.NoError(t, err)
	require.NoError(t, pos.HistoryErr)
	require.Equal(t, ref, pos.Ref)
	return pos
}

func (b Backend) move(t *testing.T, c Pointer, from registry.Position, to string) registry.Position {
	t.Helper()
	pos, err := c.Move(t.Context(), from.Ref, b.change(from, to))
	require.NoError(t, err)
	require.NoError(t, pos.HistoryErr)
	require.Equal(t, to, pos.Version)
	return pos
}

func resolveAndRead(t *testing.T, b Backend) {
	c := b.Client(t)
	ref := b.Make(t, "resolve", 2)
	pos := b.read(t, c, ref)
	require.Equal(t, "1", pos.Version)
	res, err := c.Resolve(t.Context(), ref)
	require.NoError(t, err)
	loc, digest := b.Describe(ref, "1")
	require.Equal(t, loc, res.Location)
	require.Equal(t, "1", res.Version)
	require.Equal(t, ref, res.Ref)
	if res.Digest != "" {
		require.Equal(t, digest, res.Digest)
	}
}

func moveAndBack(t *testing.T, b Backend) {
	c := b.Client(t)
	first := b.read(t, c, b.Make(t, "move", 3))
	moved := b.move(t, c, first, "2")
	again := b.read(t, b.Client(t), first.Ref)
	require.Equal(t, moved, again, "Move returns what Read will")
	newest := again.History[0]
	require.Equal(t, "1", newest.From)
	require.Equal(t, "2", newest.To)
	require.Equal(t, registry.StateDone, newest.State)
	require.Equal(t, registry.ActionPromote, newest.Action)
	require.Equal(t, "ann@laptop", newest.By)
	require.Equal(t, "to 2", newest.Message)
	require.Len(t, newest.ID, 16)
	require.WithinDuration(t, time.Now(), newest.At, time.Minute)
	res, err := c.Resolve(t.Context(), first.Ref)
	require.NoError(t, err)
	require.Equal(t, "2", res.Version)
	back, ok := registry.Previous(again.History, again.Version)
	require.True(t, ok)
	require.Equal(t, "1", back, "what served before")
	rollback := b.change(again, back)
	rollback.Action = registry.ActionRollback
	pos, err := c.Move(t.Context(), first.Ref, rollback)
	require.NoError(t, err)
	require.Equal(t, "1", pos.Version)
	require.Equal(t, registry.ActionRollback, pos.History[0].Action)
	require.Equal(t, "2", pos.History[0].From)
}

func moveToWhereItStands(t *testing.T, b Backend) {
	c := b.Client(t)
	first := b.read(t, c, b.Make(t, "standstill", 2))
	moved := b.move(t, c, first, "2")
	require.Equal(t, moved, b.move(t, c, moved, "2"), "no move, no record")
	require.Equal(t, moved, b.read(t, c, first.Ref))
}

func initOfOneThatExists(t *testing.T, b Backend) {
	c := b.Client(t)
	first := b.read(t, c, b.Make(t, "exists", 2))
	_, err := c.Init(t.Context(), first.Ref, b.change(registry.Position{Ref: first.Ref}, "2"))
	require.ErrorIs(t, err, registry.ErrExists)
	require.ErrorContains(t, err, first.Ref.String())
	require.Equal(t, first, b.read(t, c, first.Ref), "it is as it was")
}

func conflict(t *testing.T, b Backend) {
	c := b.Client(t)
	first := b.read(t, c, b.Make(t, "conflict", 3))
	moved := b.move(t, c, first, "2")
	_, err := b.Client(t).Move(t.Context(), first.Ref, b.change(first, "3"))
	require.ErrorIs(t, err, registry.ErrConflict)
	require.ErrorContains(t, err, first.Ref.String(), "the error names the pointer")
	require.NotContains(t, err.Error(), "\n")
	require.Equal(t, moved, b.read(t, c, first.Ref), "nothing was written")
}

func versionIsChecked(t *testing.T, b Backend) {
	c := b.Client(t)
	first := b.read(t, c, b.Make(t, "unchecked", 1))
	change := b.change(first, "1")
	change.To = ""
	_, err := c.Move(t.Context(), first.Ref, change)
	require.Error(t, err)
	require.Equal(t, first, b.read(t, c, first.Ref), "nothing was written")
}

func historyIsBounded(t *testing.T, b Backend) {
	c := b.Client(t)
	pos := b.read(t, c, b.Make(t, "bounded", 2))
	moves := b.AtMost + 5
	for i := range moves {
		pos = b.move(t, c, pos, fmt.Sprint(2-i%2))
	}
	pos = b.read(t, c, pos.Ref)
	require.LessOrEqual(t, len(pos.History), b.AtMost)
	require.GreaterOrEqual(t, len(pos.History), b.MaxHistory)
	for i, e := range pos.History {
		require.Equal(t, fmt.Sprint(2-(moves-1-i)%2), e.To, "newest first")
		if i > 0 {
			require.False(t, e.At.After(pos.History[i-1].At))
		}
	}
}

func longMessages(t *testing.T, b Backend) {
	c := b.Client(t)
	pos := b.read(t, c, b.Make(t, "messages", 2))
	for i := range 4 {
		change := b.change(pos, fmt.Sprint(2-i%2))
		change.Message = strings.Repeat("wegen 🔥 und <\"Rauch\">\n", 500)
		change.By = strings.Repeat("ü", 500)
		var err error
		pos, err = c.Move(t.Context(), pos.Ref, change)
		require.NoError(t, err)
		require.NoError(t, pos.HistoryErr)
	}
	pos = b.read(t, c, pos.Ref)
	require.GreaterOrEqual(t, len(pos.History), 2, "what served before is still known")
	newest := pos.History[0]
	require.LessOrEqual(t, len(newest.Message), registry.MaxMessage)
	require.LessOrEqual(t, len(newest.By), registry.MaxBy)
	require.NotContains(t, newest.Message, "\n")
	require.True(t, strings.HasSuffix(newest.Message, "..."))
	require.True(t, strings.HasPrefix(newest.Message, "wegen 🔥 und <\"Rauch\">"))
}

func missingPointer(t *testing.T, b Backend) {
	c := b.Client(t)
	ref := b.Missing(t, "nobody")
	_, err := c.Read(t.Context(), ref)
	require.ErrorIs(t, err, registry.ErrNotFound)
	require.NotErrorIs(t, err, registry.ErrBroken)
	require.ErrorContains(t, err, ref.String())
	_, err = c.Resolve(t.Context(), ref)
	require.ErrorIs(t, err, registry.ErrNotFound)
	_, err = c.Move(t.Context(), ref, b.change(registry.Position{Ref: ref, Version: "1"}, "2"))
	require.ErrorIs(t, err, registry.ErrNotFound)
	_, err = c.Read(t.Context(), ref)
	require.ErrorIs(t, err, registry.ErrNotFound, "a move makes no pointer")
}

func danglingPointer(t *testing.T, b Backend) {
	c := b.Client(t)
	first := b.read(t, c, b.Make(t, "dangling", 2))
	b.Dangle(t, first.Ref)
	_, err := c.Read(t.Context(), first.Ref)
	require.ErrorIs(t, err, registry.ErrBroken)
	require.NotErrorIs(t, err, registry.ErrNotFound)
	_, err = c.Resolve(t.Context(), first.Ref)
	require.ErrorIs(t, err, registry.ErrBroken)
	require.ErrorContains(t, err, first.Ref.String())
}

func oddNames(t *testing.T, b Backend) {
	for _, name := range []string{"with a space", "größe-模型", "a%20b", "dots.and_more-1.5", "plus+and&amp=x", "quote's", `hash-@home`} {
		t.Run(name, func(t *testing.T) {
			c := b.Client(t)
			first := b.read(t, c, b.Make(t, name, 2))
			b.move(t, c, first, "2")
			res, err := c.Resolve(t.Context(), first.Ref)
			require.NoError(t, err)
			loc, _ := b.Describe(first.Ref, "2")
			require.Equal(t, loc, res.Location)
			_, err = c.Versions(t.Context(), first.Ref)
			require.NoError(t, err)
		})
	}
}

func versions(t *testing.T, b Backend) {
	c := b.Client(t)
	pos := b.read(t, c, b.Make(t, "versions", 3))
	b.move(t, c, b.move(t, c, pos, "2"), "3")
	list, err := c.Versions(t.Context(), pos.Ref)
	require.NoError(t, err)
	var got []string
	for _, v := range list {
		got = append(got, v.Version)
		require.WithinDuration(t, time.Now(), v.Created, time.Hour)
	}
	require.Equal(t, []string{"3", "2", "1"}, got, "newest first")
	if pos.Ref.Kind == registry.KindAlias {
		require.Equal(t, []string{pos.Ref.Selector}, list[0].Aliases)
		require.Empty(t, list[1].Aliases)
	}
	_, err = c.Versions(t.Context(), b.Missing(t, "versionless"))
	require.ErrorIs(t, err, registry.ErrNotFound)
}

func cancelledContext(t *testing.T, b Backend) {
	c := b.Client(t)
	first := b.read(t, c, b.Make(t, "cancelled", 2))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := c.Read(ctx, first.Ref)
	require.ErrorIs(t, err, context.Canceled)
	_, err = c.Resolve(ctx, first.Ref)
	require.ErrorIs(t, err, context.Canceled)
	_, err = c.Versions(ctx, first.Ref)
	require.ErrorIs(t, err, context.Canceled)
	_, err = c.Move(ctx, first.Ref, b.change(first, "2"))
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, first, b.read(t, c, first.Ref), "nothing has moved")
}

func notAPointer(t *testing.T, b Backend) {
	c := b.Client(t)
	for _, text := range []string{"models:/llama/1", "s3://models/llama"} {
		ref, err := registry.ParseRef(text)
		require.NoError(t, err)
		_, err = c.Read(t.Context(), ref)
		require.ErrorIs(t, err, registry.ErrUnsupported, text)
		_, err = c.Move(t.Context(), ref, b.change(registry.Position{Ref: ref, Version: "1"}, "2"))
		require.ErrorIs(t, err, registry.ErrUnsupported, text)
	}
}
