package fetcher_test

import (
	"context"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/fetcher"
	"github.com/pilotlight-dev/pilotlight/fetcher/volume"
	fake "github.com/pilotlight-dev/pilotlight/internal/fake/s3"
)

// overtake does the whole of a run while another is paused, whose lease has run
// out. Where locks do not reach this node, it sees none of the other's.
func (w *world) overtake(locksReach bool) {
	w.t.Helper()
	require.NoError(w.t, os.RemoveAll(filepath.Join(w.root, fetcher.LeaseFile)))
	locks, err := filepath.Glob(filepath.Join(w.root, ".staging", "*.lock"))
	require.NoError(w.t, err)
	for _, lock := range locks {
		if !locksReach { // a file of that name that nobody has locked
			require.NoError(w.t, os.Remove(lock))
			require.NoError(w.t, os.WriteFile(lock, nil, 0o600))
		}
	}
	w.mustInit()
}

// TestAPausedRunThatIsOvertakenChangesNothing pauses a run at each of its
// operations while another does the same work, and lets it wake after that.
func TestAPausedRunThatIsOvertakenChangesNothing(t *testing.T) {
	t.Parallel()
	for name, locksReach := range map[string]bool{"LocksReach": true, "LocksDoNotReach": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := 1
			for ; ; k++ {
				w, opts := crashWorld(t, volume.Ephemeral)
				var published map[string]string
				versions := filepath.Join(w.root, "versions")
				paused := inTheMiddle(t, opts, k, func() {
					w.overtake(locksReach)
					published = snapshot(t, versions)
				})
				w.requireCurrent(model("two"))
				require.Empty(t, entries(t, filepath.Join(w.root, ".staging")), "operation %d", k)
				if !paused {
					break
				}
				require.Equal(t, published, snapshot(t, versions), "operation %d", k)
			}
			require.Greater(t, k, 40, "the seam must see the operations")
		})
	}
}

// TestAPausedRunLeavesWhatWasTakenOver: the other goes on with its download and
// publishes it, so that the folder in which it works when it wakes is that of a
// version in use.
func TestAPausedRunLeavesWhatWasTakenOver(t *testing.T) {
	t.Parallel()
	for _, resumed := range []bool{false, true} {
		for _, n := range []int64{0, 4} { // the first and the last of them
			t.Run(fmt.Sprintf("Resumed=%v/AtSmallFile%d", resumed, n), func(t *testing.T) {
				w := newWorld(t)
				w.put("llama/1", tuned("one"))
				w.durability = volume.Ephemeral
				if resumed {
					ctx, kill := context.WithCancel(t.Context())
					err := w.sharing(ctx, killedAt(10, isRange, kill, fake.Fault{Status: 503}))
					require.ErrorIs(t, err, context.Canceled)
				}
				var published map[string]inode
				var small atomic.Int64
				err := w.sharing(t.Context(), func(r *http.Request) fake.Fault {
					if isSmallGet(r) && small.Add(1) == n+1 {
						w.store.SetFault(nil)
						w.overtake(false)
						published = w.published()
					}
					return fake.Fault{}
				})
				require.NoError(t, err)
				require.NotEmpty(t, published)
				for name, now := range w.published() {
					requireSame(t, published[name], now)
				}
				w.requireCurrent(tuned("one"))
				require.Empty(t, entries(t, filepath.Join(w.root, ".staging")))
			})
		}
	}
}

// published looks at every file and link of the published version.
func (w *world) published() map[string]inode {
	w.t.Helper()
	dir, err := filepath.EvalSymlinks(filepath.Join(w.root, "current"))
	require.NoError(w.t, err)
	out := map[string]inode{}
	require.NoError(w.t, filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.Type().IsRegular():
			out[name] = inodeOf(w.t, name)
		case d.Type()&fs.ModeSymlink != 0:
			info, err := d.Info()
			require.NoError(w.t, err)
			out[name] = inode{mode: info.Mode(), modified: info.ModTime()}
		}
		return nil
	}))
	return out
}
