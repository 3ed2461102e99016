package fetcher_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/fetcher"
	"github.com/pilotlight-dev/pilotlight/fetcher/volume"
	fake "github.com/pilotlight-dev/pilotlight/internal/fake/s3"
)

// heavy is a model of 36 MiB that is worth resuming.
func heavy(seed byte) map[string][]byte {
	files := model("heavy")
	rng := rand.NewChaCha8([32]byte{seed})
	for i, size := range []int{24 << 20, 12 << 20} { // in order: both draw from one stream
		data := make([]byte, size)
		_, _ = rng.Read(data)
		files[fmt.Sprintf("model-%05d-of-00002.safetensors", i+1)] = safetensors(string(data))
	}
	return files
}

// interrupt runs until n ranges were asked for, and ends it there.
func (w *world) interrupt(n int64) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.t.Context())
	defer cancel()
	var seen atomic.Int64
	w.store.SetFault(func(r *http.Request) fake.Fault {
		if isRange(r) && seen.Add(1) > n {
			cancel()
			return fake.Fault{Status: 503}
		}
		return fake.Fault{}
	})
	opts := fetcher.WithSizes(w.options(), 8<<20, 4<<20, 4<<20)
	opts.Connections = 1
	_, err := fetcher.Init(ctx, opts)
	require.ErrorIs(w.t, err, context.Canceled)
	w.store.SetFault(nil)
}

func TestAnInterruptedDownloadGoesOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	files := heavy(1)
	w.put("llama/1", files)
	w.interrupt(5)
	require.NoFileExists(t, filepath.Join(w.root, "current"))
	require.NotEmpty(t, entries(t, filepath.Join(w.root, ".staging")), "what was fetched is kept")
	res := w.mustInit()
	w.requireCurrent(files)
	require.GreaterOrEqual(t, res.Transfer.Resumed, int64(8<<20))
	require.Equal(t, res.Manifest.Bytes(), res.Transfer.Resumed+res.Downloaded)
	require.Empty(t, entries(t, filepath.Join(w.root, ".staging")))
}

func TestAKilledDownloadGoesOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	files := heavy(1)
	w.put("llama/1", files)
	w.store.SetBytesPerSecond(2 << 20) // so that it is far from done when it is killed
	cmd := (&killLane{world: w}).child("llama/1")
	require.NoError(t, cmd.Start())
	require.Eventually(t, func() bool { return w.resumable() }, 30*time.Second, 10*time.Millisecond)
	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait())
	w.store.SetBytesPerSecond(0)
	res := w.mustInit()
	w.requireCurrent(files)
	require.GreaterOrEqual(t, res.Transfer.Resumed, int64(8<<20))
	require.Empty(t, entries(t, filepath.Join(w.root, ".staging")))
}

// resumable reports whether a journal on disk knows of 8 MiB.
func (w *world) resumable() bool {
	names, _ := filepath.Glob(filepath.Join(w.root, ".staging", "*", ".pilotlight", "journal"))
	var total int64
	for _, name := range names {
		data, _ := os.ReadFile(name) //nolint:gosec // a file of this test
		for line := range bytes.Lines(data) {
			var l struct {
				Len int64 `json:"len"`
			}
			if json.Unmarshal(line, &l) == nil {
				total += l.Len
			}
		}
	}
	return total >= 8<<20
}

func TestWhatAnInterruptedDownloadLeftIsChecked(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(t *testing.T, dir string){
		"FileRotted": func(t *testing.T, dir string) {
			file := filepath.Join(dir, "model-00001-of-00002.safetensors")
			data, err := os.ReadFile(file) //nolint:gosec // a file of this test
			require.NoError(t, err)
			for i := 1000; i < len(data); i += 1 << 20 {
				data[i] ^= 1
			}
			require.NoError(t, os.WriteFile(file, data, 0o600)) //nolint:gosec // as above
		},
		"FileGone": func(t *testing.T, dir string) {
			require.NoError(t, os.Remove(filepath.Join(dir, "model-00001-of-00002.safetensors")))
		},
		"FileCut": func(t *testing.T, dir string) {
			require.NoError(t, os.Truncate(filepath.Join(dir, "model-00001-of-00002.safetensors"), 5<<20))
		},
		"JournalTorn": func(t *testing.T, dir string) {
			file := filepath.Join(dir, ".pilotlight", "journal")
			info, err := os.Stat(file)
			require.NoError(t, err)
			require.NoError(t, os.Truncate(file, info.Size()-7))
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			files := heavy(1)
			w.put("llama/1", files)
			w.interrupt(5)
			dirs, err := filepath.Glob(filepath.Join(w.root, ".staging", "*", ".pilotlight"))
			require.NoError(t, err)
			require.Len(t, dirs, 1)
			spoil(t, filepath.Dir(dirs[0]))
			w.mustInit()
			w.requireCurrent(files)
		})
	}
}

func TestTheLeftoverOfAnotherVersionMakesRoom(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put("llama/1", heavy(1))
	w.interrupt(5)
	w.put("llama/2", heavy(2))
	res := w.mustInit()
	require.Zero(t, res.Transfer.Resumed)
	w.requireCurrent(heavy(2))
	require.Empty(t, entries(t, filepath.Join(w.root, ".staging")))
}

func TestEqualShardsOfAnotherVersionAreLinked(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	one := heavy(1)
	w.put("llama/1", one)
	first := w.mustInit()
	two := heavy(1)
	two["config.json"] = []byte(`{"architectures":["tuned"]}`)
	w.put("llama/2", two)
	gets := w.store.Count("GetObject")
	res := w.mustInit()
	w.requireCurrent(two)
	require.GreaterOrEqual(t, res.Linked, int64(36<<20))
	require.Less(t, res.Downloaded, int64(10_000))
	require.LessOrEqual(t, w.store.Count("GetObject")-gets, len(two)-2)
	a, err := os.Stat(filepath.Join(w.root, "versions", first.Manifest.Short(), "model-00001-of-00002.safetensors"))
	require.NoError(t, err)
	b, err := os.Stat(filepath.Join(w.root, "current", "model-00001-of-00002.safetensors"))
	require.NoError(t, err)
	require.True(t, os.SameFile(a, b), "one file on disk")
}

func TestAShardThatRottedOnDiskIsNotLinked(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	one := heavy(1)
	w.put("llama/1", one)
	first := w.mustInit()
	file := filepath.Join(w.root, "versions", first.Manifest.Short(), "model-00001-of-00002.safetensors")
	rot(t, file)
	two := heavy(1)
	two["config.json"] = []byte("{}")
	w.put("llama/2", two)
	res := w.mustInit()
	w.requireCurrent(two)
	require.GreaterOrEqual(t, res.Downloaded, int64(24<<20))
	require.GreaterOrEqual(t, res.Linked, int64(12<<20), "the other one is good")
}

// rot flips a bit and keeps the size.
func rot(t *testing.T, file string) {
	t.Helper()
	require.NoError(t, os.Chmod(file, 0o600))
	f, err := os.OpenFile(file, os.O_RDWR, 0) //nolint:gosec // a file of this test
	require.NoError(t, err)
	b := make([]byte, 1)
	_, err = f.ReadAt(b, 999)
	require.NoError(t, err)
	b[0] ^= 1
	_, err = f.WriteAt(b, 999)
	require.NoError(t, err)
	require.NoError(t, f.Close())
}

// reboot makes a version look as if the machine had been started since.
func reboot(t *testing.T, w *world, short string) {
	t.Helper()
	name := filepath.Join(w.root, "versions", short, ".pilotlight", "manifest.json")
	data, err := os.ReadFile(name) //nolint:gosec // a file of this test
	require.NoError(t, err)
	require.Contains(t, string(data), volume.BootID(), "an ephemeral version carries the boot id")
	data = bytes.ReplaceAll(data, []byte(volume.BootID()), []byte("another-boot"))
	require.NoError(t, os.Chmod(name, 0o600))
	require.NoError(t, os.WriteFile(name, data, 0o600)) //nolint:gosec // as above
}

func TestAnEphemeralVersionIsReadAgainAfterAnotherBoot(t *testing.T) {
	t.Parallel()
	if volume.BootID() == "" {
		t.Skip("this system has no boot id")
	}
	for name, rotten := range map[string]bool{"Good": false, "Rotten": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.put("llama/1", model("one"))
			opts := w.options()
			opts.Durability = volume.Ephemeral
			res, err := fetcher.Init(t.Context(), opts)
			require.NoError(t, err)
			short := res.Manifest.Short()
			reboot(t, w, short)
			if rotten {
				rot(t, filepath.Join(w.root, "versions", short, "model-00001-of-00002.safetensors"))
			}
			var log strings.Builder
			opts.Logger = textLogger(&log)
			res, err = fetcher.Init(t.Context(), opts)
			require.NoError(t, err)
			require.Equal(t, !rotten, res.Reused)
			require.Contains(t, log.String(), "the machine was started anew")
			w.requireCurrent(model("one"))

			log.Reset()
			res, err = fetcher.Init(t.Context(), opts)
			require.NoError(t, err)
			require.True(t, res.Reused)
			require.NotContains(t, log.String(), "the machine was started anew", "once for each boot")
		})
	}
}

func TestADurableVersionIsTrustedAfterAnotherBoot(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put("llama/1", model("one"))
	opts := w.options()
	opts.Durability = volume.Durable
	res, err := fetcher.Init(t.Context(), opts)
	require.NoError(t, err)
	require.False(t, res.Manifest.Ephemeral)
	require.Empty(t, res.Manifest.BootID)
}
