package fetcher_test

import (
	"context"
	"encoding/binary"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/fetcher"
	"github.com/pilotlight-dev/pilotlight/fetcher/volume"
	fake "github.com/pilotlight-dev/pilotlight/internal/fake/s3"
)

// sharedShard is the file that version 2 has in common with version 1.
const sharedShard = "model-00001-of-00002.safetensors"

// tuned is a version of the same shard and another configuration. The shard is
// large enough to be resumed.
func tuned(text string) map[string][]byte {
	files := model(text)
	data := make([]byte, 10<<20)
	for i := 0; i < len(data); i += 1 << 10 { // no two ranges are the same
		binary.LittleEndian.PutUint64(data[i:], uint64(i)) //nolint:gosec // not negative
	}
	files[sharedShard] = safetensors(string(data))
	return files
}

// inode is what must not change of a file that is in use.
type inode struct {
	data     string
	mode     fs.FileMode
	modified time.Time
	links    uint64
}

func inodeOf(t testing.TB, name string) inode {
	t.Helper()
	info, err := os.Lstat(name)
	require.NoError(t, err)
	data, err := os.ReadFile(name) //nolint:gosec // a file of this test
	require.NoError(t, err)
	st, ok := info.Sys().(*syscall.Stat_t)
	require.True(t, ok)
	return inode{string(data), info.Mode(), info.ModTime(), uint64(st.Nlink)}
}

// requireSame compares without printing megabytes.
func requireSame(t *testing.T, want, got inode) {
	t.Helper()
	require.True(t, want.data == got.data, "the bytes are others")
	want.data, got.data = "", ""
	require.Equal(t, want, got)
}

// linkedWorld has version 1 published and version 2 wanted, which shares the
// large shard with it, and returns where that of version 1 is.
func linkedWorld(t *testing.T) (w *world, file string) {
	t.Helper()
	w = newWorld(t)
	w.put("llama/2", tuned("two"))
	w.put("llama/1", tuned("one"))
	w.durability = volume.Ephemeral
	first := w.mustInit()
	w.point("llama/2")
	return w, filepath.Join(w.root, "versions", first.Manifest.Short(), sharedShard)
}

// sharing runs towards version 2, in ranges and one after the other, and demands
// all the while that no file is written to, or given another mode, that has more
// than one name.
func (w *world) sharing(ctx context.Context, fault func(*http.Request) fake.Fault) error {
	w.t.Helper()
	w.store.SetFault(fault)
	defer w.store.SetFault(nil)
	opts := fetcher.WithSizes(w.options(), 8<<20, 1<<20, 1<<20)
	opts.Connections = 1
	_, err := fetcher.Init(ctx, fetcher.WithStep(opts, func(op, name string) error {
		if op == "create" || op == "chmod" {
			w.requireOneName(op, name)
		}
		return nil
	}))
	return err
}

// requireOneName looks for a name where the fetcher may mean it.
func (w *world) requireOneName(op, name string) {
	staged, _ := filepath.Glob(filepath.Join(w.root, ".staging", "*", name))
	for _, file := range append(staged, filepath.Join(w.root, name)) {
		info, err := os.Lstat(file)
		if err != nil || !info.Mode().IsRegular() {
			continue
		}
		if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Nlink > 1 {
			w.t.Errorf("%s of %s, which has %d names", op, file, st.Nlink)
		}
	}
}

func isHead(r *http.Request) bool { return r.Method == http.MethodHead }

func isSmallGet(r *http.Request) bool { return isGetObject(r) && !isRange(r) }

// headFails fails the first three HEADs of the shared shard, which the questions
// for a twin are, and leaves the rest to also.
func headFails(also func(*http.Request) fake.Fault) func(*http.Request) fake.Fault {
	var heads atomic.Int64
	return func(r *http.Request) fake.Fault {
		if isHead(r) && strings.HasSuffix(r.URL.Path, sharedShard) && heads.Add(1) <= 3 {
			return fake.Fault{Status: http.StatusInternalServerError}
		}
		return also(r)
	}
}

// killedAt ends the life of a run at the n-th request that is one of those, which
// it answers with a fault.
func killedAt(n int64, which func(*http.Request) bool, kill func(), fault fake.Fault) func(*http.Request) fake.Fault {
	var seen atomic.Int64
	return func(r *http.Request) fake.Fault {
		if !which(r) || seen.Add(1) < n {
			return fake.Fault{}
		}
		kill()
		return fault
	}
}

// TestADownloadThatGoesOnNeverWritesIntoAPublishedVersion: the first run begins
// to download the shard, because the question for its twin failed; the second
// links it; the third cannot ask again and gets wrong bytes before it ends.
func TestADownloadThatGoesOnNeverWritesIntoAPublishedVersion(t *testing.T) {
	t.Parallel()
	w, file := linkedWorld(t)
	before := inodeOf(t, file)

	ctx, kill := context.WithCancel(t.Context())
	err := w.sharing(ctx, headFails(killedAt(10, isRange, kill, fake.Fault{Status: 503})))
	require.ErrorIs(t, err, context.Canceled)
	require.True(t, w.resumable())
	requireSame(t, before, inodeOf(t, file))

	ctx, kill = context.WithCancel(t.Context())
	err = w.sharing(ctx, killedAt(1, isSmallGet, kill, fake.Fault{Status: 503}))
	require.ErrorIs(t, err, context.Canceled)
	require.False(t, w.resumable(), "what is linked is no download to go on with")

	ctx, kill = context.WithCancel(t.Context())
	second := killedAt(2, isRange, kill, fake.Fault{Status: 503})
	err = w.sharing(ctx, headFails(func(r *http.Request) fake.Fault {
		if f := second(r); f.Status != 0 || !isRange(r) {
			return f
		}
		return fake.Fault{Corrupt: true}
	}))
	require.ErrorIs(t, err, context.Canceled)
	requireSame(t, before, inodeOf(t, file))
	w.requireCurrent(tuned("one"))

	w.mustInit()
	w.requireCurrent(tuned("two"))
}

// linkLeft has a run towards version 2 behind it that ended at a request, and a
// link in the place of the shard that it had begun to download.
func linkLeft(t *testing.T, at int64, which func(*http.Request) bool) (w *world, file string, before inode) {
	t.Helper()
	w, file = linkedWorld(t)
	before = inodeOf(t, file)
	ctx, kill := context.WithCancel(t.Context())
	err := w.sharing(ctx, headFails(killedAt(at, which, kill, fake.Fault{Status: 503})))
	require.ErrorIs(t, err, context.Canceled)
	staged, err := filepath.Glob(filepath.Join(w.root, ".staging", "*", sharedShard))
	require.NoError(t, err)
	require.Len(t, staged, 1)
	require.NoError(t, os.Remove(staged[0]))
	require.NoError(t, os.Link(file, staged[0]))
	return w, file, before
}

// TestALinkedFileIsBegunAnew: an earlier run has left a link where its journal
// says that it has begun, or finished, a download.
func TestALinkedFileIsBegunAnew(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		at    int64 // the first run ends at this request
		which func(*http.Request) bool
		fault fake.Fault // of the second one's first range
	}{
		"Begun":          {10, isRange, fake.Fault{}},
		"BegunCorrupt":   {10, isRange, fake.Fault{Corrupt: true}},
		"Finished":       {1, isSmallGet, fake.Fault{}},
		"FinishedBroken": {1, isSmallGet, fake.Fault{Break: fake.BreakReset, After: 1000}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w, file, before := linkLeft(t, tc.at, tc.which)
			var spoiled atomic.Int64
			err := w.sharing(t.Context(), headFails(func(r *http.Request) fake.Fault {
				if isRange(r) && spoiled.Add(1) <= 1 {
					return tc.fault
				}
				return fake.Fault{}
			}))
			require.NoError(t, err)
			w.requireCurrent(tuned("two"))
			requireSame(t, before, inodeOf(t, file))
		})
	}
}

// TestALinkThatIsNotTakenOverGivesNoSpace: what takes its place needs all of its
// own, and that is found before a byte is fetched.
func TestALinkThatIsNotTakenOverGivesNoSpace(t *testing.T) {
	t.Parallel()
	w, _, _ := linkLeft(t, 10, isRange)
	gets := w.store.Count("GetObject")
	w.store.SetFault(headFails(noFault))
	_, err := fetcher.Init(t.Context(), fetcher.WithFreeBytes(w.options(), 9<<20))
	require.ErrorIs(t, err, fetcher.ErrNoSpace)
	require.Equal(t, gets, w.store.Count("GetObject"))
	w.requireCurrent(tuned("one"))
}

// TestAFailedQuestionCostsNoDownload: a store that is busy for a moment, and
// credentials that have run out.
func TestAFailedQuestionCostsNoDownload(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]fake.Fault{
		"Busy":    {Status: http.StatusServiceUnavailable},
		"Expired": {Status: http.StatusBadRequest, Code: "ExpiredToken"},
	} {
		t.Run(name, func(t *testing.T) {
			w, file := linkedWorld(t)
			var asked atomic.Int64
			require.NoError(t, w.sharing(t.Context(), func(r *http.Request) fake.Fault {
				// The reason of a refused HEAD comes with a GET of one byte.
				if (isHead(r) || isRange(r)) && asked.Add(1) <= 2 {
					return fault
				}
				return fake.Fault{}
			}))
			require.EqualValues(t, 2, inodeOf(t, file).links, "it was linked")
			w.requireCurrent(tuned("two"))
		})
	}
}

// TestFilesOfTwoNamesAreLeftAlone goes the other ways that a run may take with
// files that two versions share.
func TestFilesOfTwoNamesAreLeftAlone(t *testing.T) {
	t.Parallel()
	for name, then := range map[string]func(t *testing.T, w *world, second string){
		"Published": func(*testing.T, *world, string) {},
		"Repaired": func(t *testing.T, _ *world, second string) {
			require.NoError(t, os.Remove(filepath.Join(second, "config.json")))
		},
		"ReadAgain": func(t *testing.T, _ *world, second string) {
			then := time.Unix(1, 0)
			require.NoError(t, os.Chtimes(filepath.Join(second, "config.json"), then, then))
		},
		"FullDisk": func(t *testing.T, w *world, second string) {
			require.NoError(t, os.RemoveAll(second))
			_, err := fetcher.Init(t.Context(), fetcher.WithFreeBytes(w.options(), 1000))
			require.ErrorIs(t, err, fetcher.ErrNoSpace)
		},
		"RolledBack": func(_ *testing.T, w *world, _ string) { w.point("llama/1") },
	} {
		t.Run(name, func(t *testing.T) {
			w, file := linkedWorld(t)
			w.durability = volume.Durable // which opens them once more, to sync them
			require.NoError(t, w.sharing(t.Context(), noFault))
			w.requireCurrent(tuned("two"))
			before := inodeOf(t, file)
			require.EqualValues(t, 2, before.links)
			second, err := filepath.EvalSymlinks(filepath.Join(w.root, "current"))
			require.NoError(t, err)
			then(t, w, second)
			require.NoError(t, w.sharing(t.Context(), noFault))
			requireSame(t, before, inodeOf(t, file))
		})
	}
}
