package fetcher_test

import (
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/pilotlight-dev/pilotlight/fetcher"
	"github.com/pilotlight-dev/pilotlight/fetcher/volume"
	"github.com/pilotlight-dev/pilotlight/internal/s3conf"
)

// TestAFolderWithoutAManifestIsNoVersion: a folder under the right name, with
// files of the right length, proves nothing.
func TestAFolderWithoutAManifestIsNoVersion(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put("llama/1", model("one"))
	first := w.mustInit()
	dir := filepath.Join(w.root, "versions", first.Manifest.Short())
	require.NoError(t, os.Remove(filepath.Join(dir, ".pilotlight", "manifest.json")))
	for _, o := range first.Manifest.Objects { // as if allocated, and never written
		require.NoError(t, os.Chmod(filepath.Join(dir, o.Path), 0o600))
		require.NoError(t, os.WriteFile(filepath.Join(dir, o.Path), make([]byte, o.Size), 0o600))
	}
	require.False(t, w.mustInit().Reused)
	w.requireCurrent(model("one"))
}

// TestARunThatFailedIsTriedAgain: nothing of a failure is remembered.
func TestARunThatFailedIsTriedAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	files := model("one")
	cut := files["model-00001-of-00002.safetensors"]
	files["model-00001-of-00002.safetensors"] = cut[:len(cut)-1]
	w.put("llama/1", files)
	for range 2 {
		_, err := w.init()
		require.ErrorIs(t, err, fetcher.ErrIntegrity)
	}
	w.put("llama/1", model("one"))
	w.mustInit()
	w.requireCurrent(model("one"))
}

// TestWithoutALeaseTheRootStaysRight: a volume on which none can be kept costs
// work, not correctness.
func TestWithoutALeaseTheRootStaysRight(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put("llama/1", model("one"))
	w.store.SetBytesPerSecond(100_000) // so that all are at it at once
	var refused atomic.Int64
	noLease := func(op, name string) error {
		if (op == "create" || op == "link") && (name == fetcher.LeaseFile || strings.HasSuffix(name, ".lease")) {
			refused.Add(1)
			return &fs.PathError{Op: op, Path: name, Err: syscall.ENOTSUP}
		}
		return nil
	}
	var group errgroup.Group
	for range 4 {
		opts := fetcher.WithStep(w.options(), noLease)
		group.Go(func() error {
			_, err := fetcher.Init(t.Context(), opts)
			return err
		})
	}
	require.NoError(t, group.Wait())
	require.NotZero(t, refused.Load())
	w.requireCurrent(model("one"))
	require.Len(t, entries(t, filepath.Join(w.root, "versions")), 1)
	require.Empty(t, entries(t, filepath.Join(w.root, ".staging")))
}

// TestNamesThatTheVolumeCannotTellApart: two keys that differ in case, or in how
// an accent is written, are one file on some volumes.
func TestNamesThatTheVolumeCannotTellApart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	files := model("one")
	files["Tokenizer.json"], files["tokenizer.json"] = []byte("one"), []byte("another")
	w.put("llama/1", files)
	w.mustInit()
	w.requireCurrent(files) // this one can

	require.NoError(t, os.RemoveAll(w.root))
	var mu sync.Mutex
	made := map[string]bool{}
	_, err := fetcher.Init(t.Context(), fetcher.WithStep(w.options(), func(op, name string) error {
		mu.Lock()
		defer mu.Unlock()
		if key := strings.ToLower(name); op == "create" && strings.HasSuffix(key, "tokenizer.json") {
			if made[key] {
				return &fs.PathError{Op: op, Path: name, Err: syscall.EEXIST}
			}
			made[key] = true
		}
		return nil
	}))
	require.ErrorIs(t, err, fetcher.ErrIntegrity)
	require.ErrorContains(t, err, "does not tell their names apart")
	require.NoDirExists(t, filepath.Join(w.root, "current"))
}

func TestTheLimitOfAnEmptyDirIsKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put("llama/1", shards("one"))
	opts := w.options()
	opts.SizeLimit = 3 << 20 // one version takes about 1.2 MB
	_, err := fetcher.Init(t.Context(), opts)
	require.NoError(t, err)
	w.put("llama/2", shards("two"))
	_, err = fetcher.Init(t.Context(), opts)
	require.NoError(t, err, "two versions fit")
	w.put("llama/3", shards("three"))
	w.requireUntouched(func() {
		_, err = fetcher.Init(t.Context(), opts)
		require.ErrorIs(t, err, fetcher.ErrNoSpace, "the current one and that before it stay for an hour")
	})
	opts.SizeLimit = -1
	_, err = fetcher.Init(t.Context(), opts)
	require.ErrorIs(t, err, fetcher.ErrUsage)
}

// TestRangesBeyondFourGigabytes reads the end of an object of 6 GiB.
func TestRangesBeyondFourGigabytes(t *testing.T) {
	t.Parallel()
	const size, off, n = int64(6 << 30), int64(6<<30 - 1000), int64(1000)
	ts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var from, to int64
		_, err := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-%d", &from, &to)
		if err != nil || from != off || to != size-1 {
			http.Error(w, r.Header.Get("Range"), http.StatusRequestedRangeNotSatisfiable)
			return
		}
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, to, size))
		w.WriteHeader(http.StatusPartialContent)
		_, _ = w.Write(make([]byte, to-from+1))
	}))
	t.Cleanup(ts.Close)
	client, err := s3conf.New(t.Context(), s3conf.Options{Endpoint: ts.URL, Region: "us-east-1", AccessKeyID: "id", SecretAccessKey: "secret"})
	require.NoError(t, err)
	got, err := fetcher.ReadRange(t.Context(), client, size, off, n)
	require.NoError(t, err)
	require.EqualValues(t, n, got)
}

// TestAFinishedVersionSurvivesAStrictUmask: whatever the umask, an engine under
// another user id reads it.
func TestAFinishedVersionSurvivesAStrictUmask(t *testing.T) {
	old := syscall.Umask(0o077) // of the whole process: not beside other tests
	defer syscall.Umask(old)
	w := newWorld(t)
	w.put("llama/1", model("one"))
	opts := w.options()
	opts.Durability = volume.Durable
	_, err := fetcher.Init(t.Context(), opts)
	require.NoError(t, err)
	dir, err := filepath.EvalSymlinks(filepath.Join(w.root, "current"))
	require.NoError(t, err)
	require.NoError(t, filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		require.NoError(t, err)
		info, err := d.Info()
		require.NoError(t, err)
		switch {
		case d.IsDir():
			require.EqualValues(t, 0o755, info.Mode().Perm(), name)
		case info.Mode().IsRegular():
			require.EqualValues(t, 0o444, info.Mode().Perm(), name)
		}
		return nil
	}))
}
