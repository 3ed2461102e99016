package fetcher_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/fetcher"
)

// TestProcessesRaceOnOneRoot starts whole processes at once, as pods do that
// share a volume. All succeed, one downloads, and nothing is left behind.
func TestProcessesRaceOnOneRoot(t *testing.T) {
	for _, n := range []int{2, 8} {
		t.Run(fmt.Sprintf("%dOfOneVersion", n), func(t *testing.T) {
			w := newWorld(t)
			w.put("llama/1", model("llama/1"))
			w.store.SetBytesPerSecond(50_000) // so that the others come while one downloads
			w.race(n, func(int) string { return "llama/1" })
			w.requireCurrent(model("llama/1"))
			require.Equal(t, len(model("x")), w.store.Count("GetObject"), "one of them downloaded")
			require.Len(t, entries(t, filepath.Join(w.root, "versions")), 1)
		})
		t.Run(fmt.Sprintf("%dOfThreeVersions", n), func(t *testing.T) {
			w := newWorld(t)
			for _, v := range []string{"llama/1", "llama/2", "llama/3"} {
				w.put(v, model(v))
			}
			w.race(n, func(i int) string { return fmt.Sprintf("llama/%d", i%3+1) })
			data, err := os.ReadFile(filepath.Join(w.root, "current", ".pilotlight", "manifest.json"))
			require.NoError(t, err)
			m, err := fetcher.DecodeManifest(data)
			require.NoError(t, err)
			w.requireCurrent(model("llama/" + m.Version))
			require.Len(t, entries(t, filepath.Join(w.root, "versions")), min(n, 3))
		})
	}
}

// race runs n processes towards the versions that target names.
func (w *world) race(n int, target func(int) string) {
	w.t.Helper()
	l := &killLane{world: w}
	children := make([]*exec.Cmd, n)
	output := make([]strings.Builder, n)
	for i := range children {
		children[i] = l.child(target(i))
		children[i].Stdout, children[i].Stderr = &output[i], &output[i]
		require.NoError(w.t, children[i].Start())
	}
	for i, child := range children {
		require.NoError(w.t, child.Wait(), output[i].String())
	}
	require.Empty(w.t, entries(w.t, filepath.Join(w.root, ".staging")))
	require.NoFileExists(w.t, filepath.Join(w.root, fetcher.LeaseFile))
}

// TestReadersDuringSwaps opens files through the link while it moves to and fro
// as fast as it can: none is ever missing, and what one look at the link finds
// belongs to one version. PILOTLIGHT_TEST_LOOKS=1000000 makes it longer.
func TestReadersDuringSwaps(t *testing.T) {
	w := newWorld(t)
	w.put("llama/1", model("a"))
	w.mustInit()
	w.put("llama/2", model("b"))
	w.mustInit()
	looks := int64(atLeast(t, "PILOTLIGHT_TEST_LOOKS", 50_000))
	var done, swaps atomic.Int64
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for (done.Add(1) <= looks || swaps.Load() <= 20) && !t.Failed() {
				if err := w.look(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Go(func() {
		for i := 0; (done.Load() < looks || swaps.Load() <= 20) && !t.Failed(); i++ {
			w.point(fmt.Sprintf("llama/%d", i%2+1))
			if _, err := fetcher.Init(t.Context(), w.options()); err != nil {
				t.Error(err)
			}
			swaps.Add(1)
		}
	})
	start := time.Now()
	wg.Wait()
	t.Logf("%d looks during %d swaps in %v", done.Load(), swaps.Load(), time.Since(start).Round(time.Millisecond))
	require.Greater(t, swaps.Load(), int64(20), "enough of them to be caught in")
}

// look is what a reader does: through the link to one file, and by the link's
// target to two files that have to agree.
func (w *world) look() error {
	current := filepath.Join(w.root, "current")
	f, err := os.Open(filepath.Join(current, "model.safetensors.index.json"))
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	target, err := os.Readlink(current)
	if err != nil {
		return err
	}
	var texts [2]string
	for i, name := range []string{"tokenizer/vocab.json", "config.json"} {
		data, err := os.ReadFile(filepath.Join(w.root, target, name)) //nolint:gosec // a file of this test
		if err != nil {
			return err
		}
		texts[i] = string(data)
	}
	if !strings.Contains(texts[1], `"`+texts[0]+`"`) {
		return fmt.Errorf("mixed versions: the vocabulary of %q with the configuration %s", texts[0], texts[1])
	}
	return nil
}

// TestPublishersCollectorsAndReadersTogether moves one root among three
// versions from three sides, each run removing at once whatever nobody uses,
// while pods come, load and go. No run fails, and no pod's version is taken
// away under it.
func TestPublishersCollectorsAndReadersTogether(t *testing.T) {
	w := newWorld(t)
	for _, v := range []string{"llama/1", "llama/2", "llama/3"} {
		w.put(v, model(v))
	}
	store := openStore(t, w.root)
	const rounds = 15
	var wg sync.WaitGroup
	for side := range 3 {
		wg.Go(func() {
			for round := range rounds {
				v := fmt.Sprintf("llama/%d", (side+round)%3+1)
				if err := w.podLife(store, fmt.Sprintf("pod-%d-%d", side, round), v); err != nil {
					t.Errorf("side %d, round %d: %v", side, round, err)
					return
				}
			}
		})
	}
	wg.Wait()
	data, err := os.ReadFile(filepath.Join(w.root, "current", ".pilotlight", "manifest.json"))
	require.NoError(t, err)
	m, err := fetcher.DecodeManifest(data)
	require.NoError(t, err)
	w.requireCurrent(model("llama/" + m.Version))
	require.Empty(t, entries(t, filepath.Join(w.root, ".staging")))
	require.Less(t, len(entries(t, filepath.Join(w.root, "versions"))), 3, "what nobody uses was removed")
}

// podLife publishes a version, loads it through the pod's link, and goes.
func (w *world) podLife(store *fetcher.Store, uid, version string) error {
	opts := w.options()
	opts.Resolver = leadsTo("s3://" + bucket + "/" + version)
	opts.Retention = fetcher.Retention{Keep: 1, KeepFor: 1}
	opts.Link, opts.Reader = filepath.Join(w.t.TempDir(), uid, "model"), uid
	res, err := fetcher.Init(w.t.Context(), opts)
	if err != nil {
		return err
	}
	for name, want := range model("llama/" + res.Manifest.Version) {
		data, err := os.ReadFile(filepath.Join(res.ModelPath(), name)) //nolint:gosec // a file of this test
		if err != nil {
			return err
		}
		if string(data) != string(want) {
			return fmt.Errorf("%s is not that of version %s", name, res.Manifest.Version)
		}
	}
	return store.Release(uid)
}
