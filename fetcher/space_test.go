package fetcher_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/pilotlight-dev/pilotlight/fetcher"
	"github.com/pilotlight-dev/pilotlight/fetcher/volume"
)

// fullDisk lets k operations happen that need space, and refuses all others from
// then on: creating and renaming files, folders and links,
// and syncing.
type fullDisk struct {
	mu     sync.Mutex
	left   int
	cause  error
	passed []string
}

func (d *fullDisk) step(op, name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !slices.Contains([]string{"create", "mkdir", "symlink", "link", "rename", "open"}, op) {
		return nil
	}
	if d.left == 0 {
		return &fs.PathError{Op: op, Path: name, Err: d.cause}
	}
	d.left--
	d.passed = append(d.passed, op+" "+name)
	return nil
}

// TestADiskThatIsFullAtAnyMoment fills the disk, or the quota, after each
// operation of a publication. Every run that fails says so, leaves what was
// published and nothing else; with space again, the next one succeeds.
func TestADiskThatIsFullAtAnyMoment(t *testing.T) {
	t.Parallel()
	for _, durability := range []volume.Durability{volume.Durable, volume.Ephemeral} {
		t.Run(string(durability), func(t *testing.T) {
			t.Parallel()
			_, opts := crashWorld(t, durability)
			whole := &fullDisk{left: 1000}
			_, err := fetcher.Init(t.Context(), fetcher.WithStep(opts, whole.step))
			require.NoError(t, err)
			require.Greater(t, len(whole.passed), 25, "%v", whole.passed)
			var group errgroup.Group
			group.SetLimit(16)
			for k := range whole.passed {
				w, opts := crashWorld(t, durability)
				group.Go(func() error { return w.fullAfter(t.Context(), opts, k) })
			}
			require.NoError(t, group.Wait())
		})
	}
}

func (w *world) fullAfter(ctx context.Context, opts fetcher.Options, k int) error {
	disk := &fullDisk{left: k, cause: []error{syscall.ENOSPC, syscall.EDQUOT}[k%2]}
	_, err := fetcher.Init(ctx, fetcher.WithStep(opts, disk.step))
	where := fmt.Sprintf("%s, full after %d operations, the last %q, with %v", opts.Durability, k, last(disk.passed), err)
	want := "one"
	switch {
	case err == nil:
		want = "two"
	case !errors.Is(err, fetcher.ErrNoSpace):
		return fmt.Errorf("not said to be for lack of space: %s: %w", where, err)
	}
	// A run that fails after its swap has published all the same.
	if err := w.holdsOneOf(want, "two"); err != nil {
		return fmt.Errorf("%s: %w", where, err)
	}
	if _, err := fetcher.Init(ctx, opts); err != nil {
		return fmt.Errorf("with space again, %s: %w", where, err)
	}
	if err := w.holdsOneOf("two"); err != nil {
		return fmt.Errorf("with space again, %s: %w", where, err)
	}
	if left, err := os.ReadDir(filepath.Join(w.root, ".staging")); err != nil || len(left) > 0 {
		return fmt.Errorf("with space again, %s: leaves %v: %w", where, left, err)
	}
	return nil
}

// TestADiskThatFillsUpInTheMiddleKeepsNothing: what an interrupted download
// leaves for the next run would keep a full disk full.
func TestADiskThatFillsUpInTheMiddleKeepsNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put("llama/1", model("one"))
	w.mustInit()
	w.put("llama/2", heavy(1))
	var writes atomic.Int64
	opts := fetcher.WithSizes(w.options(), 8<<20, 1<<20, 1<<20)
	opts.Connections = 1
	opts = fetcher.WithWriteFault(opts, func(path string) error {
		if writes.Add(1) > 20 { // of 1 MiB each
			return &fs.PathError{Op: "write", Path: path, Err: syscall.ENOSPC}
		}
		return nil
	})
	w.requireUntouched(func() {
		_, err := fetcher.Init(t.Context(), opts)
		require.ErrorIs(t, err, fetcher.ErrNoSpace)
	})
	require.Empty(t, entries(t, filepath.Join(w.root, ".staging")))
}

// TestNothingIsPublishedBeforeItIsDurable looks at the order in which a durable
// volume is written: files, folders from the inside, the folder of the version,
// the folder of versions, and only then the link.
func TestNothingIsPublishedBeforeItIsDurable(t *testing.T) {
	t.Parallel()
	w, opts := crashWorld(t, volume.Durable)
	disk := &fullDisk{left: 1000}
	var ops []string
	opts = fetcher.WithStep(opts, func(op, name string) error {
		disk.mu.Lock()
		defer disk.mu.Unlock()
		ops = append(ops, op+" "+name)
		return nil
	})
	res, err := fetcher.Init(t.Context(), opts)
	require.NoError(t, err)
	w.requireCurrent(model("two"))
	at := func(op string, from int) int {
		t.Helper()
		i := slices.Index(ops[from:], op)
		require.GreaterOrEqual(t, i, 0, "%s after operation %d of %v", op, from, ops)
		return from + i
	}
	installed := at("rename versions/"+res.Manifest.Short(), 0)
	lastFile := 0
	for name := range model("two") {
		i := at("open "+name, at("create "+name, 0))
		require.Less(t, i, installed, name)
		lastFile = max(lastFile, i)
	}
	manifest := at("rename .pilotlight/manifest.json", lastFile)
	folders := at("open .", at("open .pilotlight", at("open tokenizer", manifest)))
	require.Less(t, folders, installed)
	published := at("rename current", installed)
	require.Less(t, at("open .", at("open versions", installed)), published)
	at("open .", published)
}

func TestARootOverTwoVolumesIsRefused(t *testing.T) {
	t.Parallel()
	w, opts := crashWorld(t, volume.Ephemeral)
	opts = fetcher.WithStep(opts, func(op, name string) error {
		if op == "rename" && strings.HasPrefix(name, "versions/") { // a volume is mounted there
			return &os.LinkError{Op: op, New: name, Err: syscall.EXDEV}
		}
		return nil
	})
	_, err := fetcher.Init(t.Context(), opts)
	require.ErrorIs(t, err, fetcher.ErrUsage)
	require.ErrorContains(t, err, "mount nothing inside")
	w.requireCurrent(model("one"))
}
