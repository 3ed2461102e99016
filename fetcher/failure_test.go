package fetcher_test

import (
	"context"
	"fmt"
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
	fake "github.com/pilotlight-dev/pilotlight/internal/fake/s3"
	"github.com/pilotlight-dev/pilotlight/internal/s3conf"
	"github.com/pilotlight-dev/pilotlight/registry"
)

// onGets injects a fault into the objects' GETs only.
func onGets(fault fake.Fault) func(*http.Request) fake.Fault {
	return func(r *http.Request) fake.Fault {
		if isGetObject(r) {
			return fault
		}
		return fake.Fault{}
	}
}

// failure is a way for a run to fail, and what its error must say.
type failure struct {
	breakIt func(w *world, opts fetcher.Options) fetcher.Options
	want    error
	words   string
}

// requireFailures publishes version 1, breaks something on the way to version 2
// and demands the root as it was.
func requireFailures(t *testing.T, tests map[string]failure) {
	t.Helper()
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.put("llama/1", model("one"))
			w.mustInit()
			w.put("llama/2", model("two"))
			opts := tc.breakIt(w, w.options())
			w.requireUntouched(func() {
				_, err := fetcher.Init(t.Context(), opts)
				require.ErrorIs(t, err, tc.want)
				require.ErrorContains(t, err, tc.words)
				require.NotContains(t, err.Error(), "secret")
			})
			require.Empty(t, entries(t, filepath.Join(w.root, ".staging")), "nothing half is left")
		})
	}
}

func TestAPointerFailureLeavesCurrentUntouched(t *testing.T) {
	t.Parallel()
	requireFailures(t, map[string]failure{
		"RegistryDown": {func(w *world, o fetcher.Options) fetcher.Options {
			w.fail(fmt.Errorf("resolving: %w: connection refused", registry.ErrUnreachable))
			o.Deadline = 3 * time.Second
			return o
		}, registry.ErrUnreachable, "the deadline passed"},
		"StillPending": {func(w *world, o fetcher.Options) fetcher.Options {
			w.fail(fmt.Errorf("resolving: %w", registry.ErrPending))
			o.Deadline = 3 * time.Second
			return o
		}, registry.ErrPending, "not ready"},
		"AliasGone": {func(w *world, o fetcher.Options) fetcher.Options {
			w.fail(fmt.Errorf("resolving: %w", registry.ErrNotFound))
			return o
		}, registry.ErrNotFound, ""},
		"BucketMissing": {func(w *world, o fetcher.Options) fetcher.Options {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.location = "s3://nowhere/llama/2"
			return o
		}, registry.ErrBroken, "no such bucket"},
		"EmptyPrefix": {func(w *world, o fetcher.Options) fetcher.Options {
			w.point("llama/3")
			return o
		}, registry.ErrBroken, "no objects"},
	})
}

func TestAStoreFailureLeavesCurrentUntouched(t *testing.T) {
	t.Parallel()
	requireFailures(t, map[string]failure{
		"ListDenied": {func(w *world, o fetcher.Options) fetcher.Options {
			w.store.SetFault(func(*http.Request) fake.Fault { return fake.Fault{Status: 403} })
			return o
		}, fetcher.ErrStoreDenied, "s3:ListBucket"},
		"GetDenied": {func(w *world, o fetcher.Options) fetcher.Options {
			w.store.SetFault(onGets(fake.Fault{Status: 403}))
			return o
		}, fetcher.ErrStoreDenied, "s3:GetObject"},
		"ExpiredForGood": {func(w *world, o fetcher.Options) fetcher.Options {
			w.store.SetFault(onGets(fake.Fault{Status: 400, Code: "ExpiredToken"}))
			return o
		}, fetcher.ErrStoreDenied, "ExpiredToken"},
		"Overwritten": {func(w *world, o fetcher.Options) fetcher.Options {
			w.store.SetFault(func(r *http.Request) fake.Fault {
				if isGetObject(r) && strings.HasSuffix(r.URL.Path, "config.json") {
					w.store.PutObject(bucket, "llama/2/config.json", []byte("{}"), fake.PutOptions{})
				}
				return fake.Fault{}
			})
			return o
		}, fetcher.ErrIntegrity, "overwritten after it was listed"},
		"Deleted": {func(w *world, o fetcher.Options) fetcher.Options {
			w.store.SetFault(onGets(fake.Fault{Status: 404}))
			return o
		}, fetcher.ErrIntegrity, "disappeared"},
		"AlwaysCorrupt": {func(w *world, o fetcher.Options) fetcher.Options {
			w.store.SetFault(onGets(fake.Fault{Corrupt: true}))
			return o
		}, fetcher.ErrIntegrity, "crc64nvme"},
		"AlwaysShort": {func(w *world, o fetcher.Options) fetcher.Options {
			w.store.SetFault(onGets(fake.Fault{Break: fake.BreakShort, After: 3}))
			return o
		}, fetcher.ErrIntegrity, "announces 3 bytes"},
		"AlwaysBusy": {func(w *world, o fetcher.Options) fetcher.Options {
			w.store.SetFault(onGets(fake.Fault{Status: 503}))
			o.Deadline = 3 * time.Second
			return o
		}, fetcher.ErrStoreUnreachable, "the deadline passed"},
	})
}

func TestALocalFailureLeavesCurrentUntouched(t *testing.T) {
	t.Parallel()
	requireFailures(t, map[string]failure{
		"DiskFull": {func(_ *world, o fetcher.Options) fetcher.Options {
			return fetcher.WithWriteFault(o, func(path string) error {
				if path == "config.json" {
					return fmt.Errorf("write %s: %w", path, syscall.ENOSPC)
				}
				return nil
			})
		}, fetcher.ErrNoSpace, "no space left"},
		"QuotaExceeded": {func(_ *world, o fetcher.Options) fetcher.Options {
			return fetcher.WithWriteFault(o, func(string) error { return syscall.EDQUOT })
		}, fetcher.ErrNoSpace, "enlarge the volume"},
		"TooSmallVolume": {func(_ *world, o fetcher.Options) fetcher.Options {
			return fetcher.WithFreeBytes(o, 1000)
		}, fetcher.ErrNoSpace, "1000 bytes free"},
		"NoRoot":    {func(_ *world, o fetcher.Options) fetcher.Options { o.Root = ""; return o }, fetcher.ErrUsage, "root"},
		"NoModel":   {func(_ *world, o fetcher.Options) fetcher.Options { o.Ref = registry.Ref{}; return o }, fetcher.ErrUsage, "model"},
		"ManyHands": {func(_ *world, o fetcher.Options) fetcher.Options { o.Connections = 1000; return o }, fetcher.ErrUsage, "connections"},
	})
}

func TestAContentFailureLeavesCurrentUntouched(t *testing.T) {
	t.Parallel()
	requireFailures(t, map[string]failure{
		"ShardMissing": {func(w *world, o fetcher.Options) fetcher.Options {
			w.store.DeleteObject(bucket, "llama/2/model-00002-of-00002.safetensors")
			return o
		}, fetcher.ErrIntegrity, "model-00002-of-00002.safetensors"},
		"ShardCutAtUpload": {func(w *world, o fetcher.Options) fetcher.Options {
			cut := model("two")["model-00001-of-00002.safetensors"]
			w.store.PutObject(bucket, "llama/2/model-00001-of-00002.safetensors", cut[:len(cut)-1], fake.PutOptions{})
			return o
		}, fetcher.ErrIntegrity, "cut upload"},
		"HostileKeys": {func(w *world, o fetcher.Options) fetcher.Options {
			for _, key := range []string{"../../escape", "a//b", "config.json/x", ".pilotlight/manifest.json", "nul\x00"} {
				w.store.PutObject(bucket, "llama/2/"+key, []byte("x"), fake.PutOptions{})
			}
			return o
		}, fetcher.ErrIntegrity, "5 unsafe object keys"},
	})
}

func TestHostileKeysAreAllNamedAndNothingIsDownloaded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	hostile := []string{"../../escape", "/abs", "a//b", "./c", "nul\x00", strings.Repeat("x", 256), "config.json/x"}
	files := model("one")
	for _, key := range hostile {
		files[key] = []byte("x")
	}
	w.put("llama/1", files)
	_, err := w.init()
	require.ErrorIs(t, err, fetcher.ErrIntegrity)
	for _, key := range hostile {
		require.ErrorContains(t, err, fmt.Sprintf("%q", key))
	}
	require.Zero(t, w.store.Count("GetObject"))
	require.Empty(t, entries(t, w.root), "not a byte was written")
}

// TestPassingFaultsAreSurvived breaks the first two answers for every object.
func TestPassingFaultsAreSurvived(t *testing.T) {
	t.Parallel()
	faults := map[string]fake.Fault{
		"SlowDown": {Status: 503},
		"Throttle": {Status: 429},
		"Internal": {Status: 500},
		"Reset":    {Break: fake.BreakReset, After: 2},
		"Stall":    {Break: fake.BreakStall, After: 2},
		"Short":    {Break: fake.BreakShort, After: 2},
		"Corrupt":  {Corrupt: true},
		"Expired":  {Status: 400, Code: "ExpiredToken"},
	}
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			files := model("one")
			delete(files, "tokenizer/empty.txt") // nothing of it can break
			w.put("llama/1", files)
			var left atomic.Int64
			left.Store(2)
			w.store.SetFault(func(r *http.Request) fake.Fault {
				if isGetObject(r) && strings.HasSuffix(r.URL.Path, "config.json") && left.Add(-1) >= 0 {
					return fault
				}
				return fake.Fault{}
			})
			opts := w.options()
			if fault.Break == fake.BreakStall {
				opts.Stall = 500 * time.Millisecond
			}
			var seen counter
			opts.Progress = &seen
			res, err := fetcher.Init(t.Context(), opts)
			require.NoError(t, err)
			w.requireCurrent(files)
			if opts.Stall > 0 { // a busy machine may have stalled, too
				require.GreaterOrEqual(t, res.Retries, int64(2))
			} else {
				require.EqualValues(t, 2, res.Retries)
			}
			require.Equal(t, res.Retries, seen.retries.Load())
			require.Equal(t, res.Manifest.Bytes(), seen.bytes.Load(), "bytes of failed attempts are taken back")
		})
	}
}

type counter struct{ planned, bytes, retries atomic.Int64 }

func (c *counter) Planned(fetcher.Plan)  { c.planned.Add(1) }
func (c *counter) Advanced(n int64)      { c.bytes.Add(n) }
func (c *counter) Retried(string, error) { c.retries.Add(1) }

func TestListingAndRegistryAreRetriedUntilTheyAnswer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put("llama/1", model("one"))
	w.fail(fmt.Errorf("%w: starting up", registry.ErrUnreachable))
	var lists atomic.Int64
	w.store.SetFault(func(r *http.Request) fake.Fault {
		if r.URL.Query().Has("list-type") && lists.Add(1) <= 4 {
			return fake.Fault{Status: 503}
		}
		return fake.Fault{}
	})
	timer := time.AfterFunc(20*time.Millisecond, func() { w.fail(nil) })
	defer timer.Stop()
	w.mustInit()
	w.requireCurrent(model("one"))
}

func TestCancellationEndsTheRunAndKeepsCurrent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put("llama/1", model("one"))
	w.mustInit()
	w.put("llama/2", model("two"))
	ctx, cancel := context.WithCancel(t.Context())
	w.store.SetFault(func(r *http.Request) fake.Fault {
		if isGetObject(r) {
			cancel()
			return fake.Fault{Break: fake.BreakStall}
		}
		return fake.Fault{}
	})
	w.requireUntouched(func() {
		_, err := fetcher.Init(ctx, w.options())
		require.ErrorIs(t, err, context.Canceled)
	})
}

func TestForeignCurrentIsRefusedAndUntouched(t *testing.T) {
	t.Parallel()
	tests := map[string]func(t *testing.T, current string){
		"Folder": func(t *testing.T, current string) {
			require.NoError(t, os.MkdirAll(filepath.Join(current, "x"), 0o750))
		},
		"File": func(t *testing.T, current string) { require.NoError(t, os.WriteFile(current, []byte("mine"), 0o600)) },
		"AbsoluteLink": func(t *testing.T, current string) {
			require.NoError(t, os.Symlink("/opt/models/llama", current))
		},
		"OtherLink": func(t *testing.T, current string) { require.NoError(t, os.Symlink("versions/../../x", current)) },
	}
	for name, plant := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.put("llama/1", model("one"))
			require.NoError(t, os.MkdirAll(w.root, 0o750))
			plant(t, filepath.Join(w.root, "current"))
			w.requireUntouched(func() {
				_, err := w.init()
				require.ErrorIs(t, err, fetcher.ErrUsage)
				require.ErrorContains(t, err, "Pilotlight did not make")
			})
			require.Zero(t, w.store.Count("ListObjectsV2"), "found before any traffic")
		})
	}
}

func TestRootThatIsAFile(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put("llama/1", model("one"))
	require.NoError(t, os.WriteFile(w.root, nil, 0o600))
	_, err := w.init()
	require.ErrorIs(t, err, fetcher.ErrUsage)
}

func TestMissingCredentialsAreNamedAsSuch(t *testing.T) {
	for name, value := range map[string]string{
		"AWS_EC2_METADATA_DISABLED": "true", // keeps the default chain off the network
		"AWS_CONFIG_FILE":           "/nonexistent", "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent",
		"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "", "AWS_PROFILE": "", "AWS_WEB_IDENTITY_TOKEN_FILE": "",
		"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI": "", "AWS_CONTAINER_CREDENTIALS_FULL_URI": "",
	} {
		t.Setenv(name, value)
	}
	w := newWorld(t)
	w.put("llama/1", model("one"))
	opts := w.options()
	opts.Connect = func(ctx context.Context, _ registry.Location) (fetcher.S3API, error) {
		return s3conf.New(ctx, s3conf.Options{Endpoint: w.url})
	}
	_, err := fetcher.Init(t.Context(), opts)
	require.ErrorIs(t, err, fetcher.ErrStoreDenied)
	require.ErrorContains(t, err, "give AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or the pod a role")
	require.Zero(t, w.store.Count("ListObjectsV2"))
}

// hanging answers once that it is down, and never again.
type hanging struct{ asked atomic.Int64 }

func (h *hanging) Resolve(ctx context.Context, _ registry.Ref) (registry.Resolution, error) {
	if h.asked.Add(1) == 1 {
		return registry.Resolution{}, fmt.Errorf("%w: it answers 503", registry.ErrUnreachable)
	}
	<-ctx.Done()
	return registry.Resolution{}, context.Cause(ctx)
}

func TestADeadlineSaysWhatItRanOutOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	opts := w.options()
	opts.Resolver, opts.Deadline = &hanging{}, 3*time.Second
	_, err := fetcher.Init(t.Context(), opts)
	require.ErrorIs(t, err, registry.ErrUnreachable)
	require.ErrorContains(t, err, "it answers 503")
	require.ErrorContains(t, err, "the deadline passed")
}
