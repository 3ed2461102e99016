package fetcher_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/pilotlight-dev/pilotlight/fetcher"
	"github.com/pilotlight-dev/pilotlight/fetcher/volume"
)

var errCrashed = errors.New("the process died here")

// lifetime lets k changes of the root's folders happen and no more, as if the
// process had been killed between two of them.
type lifetime struct {
	mu     sync.Mutex
	left   int
	passed []string
}

func (l *lifetime) step(op, name string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if op == "open" { // changes nothing
		return nil
	}
	if l.left == 0 {
		return errCrashed
	}
	l.left--
	l.passed = append(l.passed, op+" "+filepath.Base(name))
	return nil
}

// TestACrashBetweenAnyTwoOperations publishes version 2 over version 1 and dies
// after the k-th change of a folder, for every k there is. Whatever k, `current`
// names a complete version, and a fresh run publishes version 2 and leaves
// nothing behind.
func TestACrashBetweenAnyTwoOperations(t *testing.T) {
	for _, durability := range []volume.Durability{volume.Durable, volume.Ephemeral} {
		t.Run(string(durability), func(t *testing.T) {
			t.Parallel()
			w, opts := crashWorld(t, durability)
			whole := &lifetime{left: 1000}
			_, err := fetcher.Init(t.Context(), fetcher.WithStep(opts, whole.step))
			require.NoError(t, err)
			w.requireCurrent(model("two"))
			require.Greater(t, len(whole.passed), 40, "the seam must see the operations: %v", whole.passed)
			var group errgroup.Group // many at once: they mostly wait for the disk
			group.SetLimit(16)
			for k := range whole.passed {
				w, opts := crashWorld(t, durability)
				group.Go(func() error { return w.crashAfter(t.Context(), opts, k) })
			}
			require.NoError(t, group.Wait())
		})
	}
}

// crashWorld has version 1 published, and version 2 wanted.
func crashWorld(t *testing.T, durability volume.Durability) (*world, fetcher.Options) {
	t.Helper()
	w := newWorld(t)
	w.put("llama/1", model("one"))
	opts := w.options()
	opts.Connections = 1
	_, err := fetcher.Init(t.Context(), opts)
	require.NoError(t, err)
	w.put("llama/2", model("two"))
	opts.Durability = durability
	return w, opts
}

// crashAfter dies after k operations, looks at what a reader sees, and lets a
// fresh run do the work.
func (w *world) crashAfter(ctx context.Context, opts fetcher.Options, k int) error {
	life := &lifetime{left: k}
	_, _ = fetcher.Init(ctx, fetcher.WithStep(opts, life.step)) // some losses are none: then it succeeds
	where := fmt.Sprintf("%s, after %d operations, the last %q", opts.Durability, k, last(life.passed))
	if err := w.holdsOneOf("one", "two"); err != nil {
		return fmt.Errorf("%s: %w", where, err)
	}
	if _, err := fetcher.Init(ctx, opts); err != nil {
		return fmt.Errorf("a fresh run, %s: %w", where, err)
	}
	if err := w.holdsOneOf("two"); err != nil {
		return fmt.Errorf("a fresh run, %s: %w", where, err)
	}
	if left, err := os.ReadDir(filepath.Join(w.root, ".staging")); err != nil || len(left) > 0 {
		return fmt.Errorf("%s: a fresh run leaves %v: %w", where, left, err)
	}
	return nil
}

// holdsOneOf says what is wrong when `current` is none of these models.
func (w *world) holdsOneOf(texts ...string) error {
	got := readTree(w.t, filepath.Join(w.root, "current"))
	for _, text := range texts {
		if maps.Equal(got, contents(model(text))) {
			return nil
		}
	}
	return fmt.Errorf("%w: current holds %v", errMixed, got)
}

var errMixed = errors.New("neither version")

func last(list []string) string {
	if len(list) == 0 {
		return "none"
	}
	return list[len(list)-1]
}

// TestASignalAtAnyOperationIsNoFailure: a file system in user space may answer
// that a signal came, to each of the calls that os.Root does not repeat.
func TestASignalAtAnyOperationIsNoFailure(t *testing.T) {
	t.Parallel()
	for _, durability := range []volume.Durability{volume.Durable, volume.Ephemeral} {
		w, opts := crashWorld(t, durability)
		var mu sync.Mutex
		interrupted := map[string]int{}
		_, err := fetcher.Init(t.Context(), fetcher.WithStep(opts, func(op, name string) error {
			mu.Lock()
			defer mu.Unlock()
			if op != "rename" && op != "symlink" && op != "link" {
				return nil
			}
			if interrupted[op+name]++; interrupted[op+name]%3 == 0 {
				return nil
			}
			return &os.LinkError{Op: op, New: name, Err: syscall.EINTR}
		}))
		require.NoError(t, err)
		require.Greater(t, len(interrupted), 5, "%v", interrupted)
		w.requireCurrent(model("two"))
		require.Empty(t, entries(t, filepath.Join(w.root, ".staging")))
	}
}

// TestATerminationAtAnyOperation ends the context, as SIGTERM does, before the
// k-th operation, for every k there is. The run says so or has succeeded, and
// what is published is whole and all that is left.
func TestATerminationAtAnyOperation(t *testing.T) {
	t.Parallel()
	_, opts := crashWorld(t, volume.Durable) // which has all the operations of the other
	var operations atomic.Int64
	_, err := fetcher.Init(t.Context(), fetcher.WithStep(opts, func(string, string) error {
		operations.Add(1)
		return nil
	}))
	require.NoError(t, err)
	require.Greater(t, operations.Load(), int64(50), "the seam must see the operations")
	var group errgroup.Group
	group.SetLimit(16)
	for k := range operations.Load() {
		w, opts := crashWorld(t, volume.Durable)
		group.Go(func() error { return w.terminatedAt(t.Context(), opts, k+1) })
	}
	require.NoError(t, group.Wait())
}

func (w *world) terminatedAt(ctx context.Context, opts fetcher.Options, k int64) error {
	ctx, terminate := context.WithCancel(ctx)
	defer terminate()
	var seen atomic.Int64
	_, err := fetcher.Init(ctx, fetcher.WithStep(opts, func(string, string) error {
		if seen.Add(1) == k {
			terminate()
		}
		return nil
	}))
	want := "two" // once it publishes there is nothing to wait for
	if err != nil {
		want = "one"
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("operation %d: %w", k, err)
	}
	if err := w.holdsOneOf(want); err != nil {
		return fmt.Errorf("operation %d: %w", k, err)
	}
	left, err := filepath.Glob(filepath.Join(w.root, ".staging", "*"))
	if _, held := os.Lstat(filepath.Join(w.root, fetcher.LeaseFile)); len(left) > 0 || held == nil {
		return fmt.Errorf("operation %d: %w: it leaves %v, its lease %v", k, errMixed, left, held == nil)
	}
	return err
}
