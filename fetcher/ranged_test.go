package fetcher_test

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/fetcher"
	"github.com/pilotlight-dev/pilotlight/fetcher/volume"
	fake "github.com/pilotlight-dev/pilotlight/internal/fake/s3"
)

const shard = "llama/1/model-00001-of-00002.safetensors"

// shards is a model whose weights are read in ranges.
func shards(text string) map[string][]byte {
	files := model(text)
	files["model-00001-of-00002.safetensors"] = safetensors(strings.Repeat(text+"0123456789abcdef", 40_000))
	files["model-00002-of-00002.safetensors"] = safetensors(strings.Repeat(text+"fedcba9876543210", 20_001))
	return files
}

// ranged are options under which shards are read in ranges of 64 to 128 KiB.
func (w *world) ranged() fetcher.Options {
	opts := fetcher.WithSizes(w.options(), 64<<10, 64<<10, 128<<10)
	opts.Durability = volume.Auto
	return opts
}

func isRange(r *http.Request) bool { return isGetObject(r) && r.Header.Get("Range") != "" }

// onRanges spoils the n-th to m-th request for a range of the first shard.
func onRanges(n, m int64, fault fake.Fault) func(*http.Request) fake.Fault {
	var seen atomic.Int64
	return func(r *http.Request) fake.Fault {
		if !isRange(r) || !strings.HasSuffix(r.URL.Path, shard) {
			return fake.Fault{}
		}
		if i := seen.Add(1); i < n || i > m {
			return fake.Fault{}
		}
		return fault
	}
}

func TestRangesAreExactPinnedAndAskForNoChecksum(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put("llama/1", shards("one"))
	var mu sync.Mutex
	ranges := 0
	w.store.SetFault(func(r *http.Request) fake.Fault {
		mu.Lock()
		defer mu.Unlock()
		if isRange(r) {
			ranges++
			require.Regexp(t, `^"[0-9a-f]{32}"$`, r.Header.Get("If-Match"))
			require.Equal(t, "identity", r.Header.Get("Accept-Encoding"))
			require.Empty(t, r.Header.Get("X-Amz-Checksum-Mode"))
		}
		return fake.Fault{}
	})
	res, err := fetcher.Init(t.Context(), w.ranged())
	require.NoError(t, err)
	w.requireCurrent(shards("one"))
	require.Greater(t, ranges, 8)
	for _, o := range res.Manifest.Objects {
		require.True(t, strings.HasPrefix(o.Checksum, "crc64nvme:"), o.Path)
	}
	require.Equal(t, 2, w.store.Count("HeadObject"), "one question for each object in ranges")
}

// TestPassingFaultsOfRangesAreSurvived spoils two answers for ranges of a shard.
func TestPassingFaultsOfRangesAreSurvived(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		fault   fake.Fault
		retries int64
	}{
		"RangeIgnored":      {fake.Fault{IgnoreRange: true}, 2},
		"WrongContentRange": {fake.Fault{ShiftRange: 4096}, 2},
		"ShortBody":         {fake.Fault{Break: fake.BreakShort, After: 5000}, 2},
		"Reset":             {fake.Fault{Break: fake.BreakReset, After: 5000}, 2},
		"ResetAtOnce":       {fake.Fault{Break: fake.BreakReset}, 2},
		"Stall":             {fake.Fault{Break: fake.BreakStall, After: 5000}, 2},
		"SlowDown":          {fake.Fault{Status: 503}, 2},
		"TooMany":           {fake.Fault{Status: 429}, 2},
		"Internal":          {fake.Fault{Status: 500}, 2},
		"ErrorWith200":      {fake.Fault{ErrorBody: true}, 2},
		"ExpiredToken":      {fake.Fault{Status: 400, Code: "ExpiredToken"}, 2},
		"Corrupt":           {fake.Fault{Corrupt: true}, 1}, // found once the shard is whole
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.put("llama/1", shards("one"))
			w.store.SetFault(onRanges(2, 3, tc.fault))
			opts := w.ranged()
			if tc.fault.Break == fake.BreakStall {
				opts.Stall = 300 * time.Millisecond
			}
			var seen counter
			opts.Progress = &seen
			res, err := fetcher.Init(t.Context(), opts)
			require.NoError(t, err)
			w.requireCurrent(shards("one"))
			if opts.Stall > 0 { // a busy machine may have stalled, too
				require.GreaterOrEqual(t, res.Retries, tc.retries)
			} else {
				require.Equal(t, tc.retries, res.Retries)
			}
			require.Equal(t, res.Manifest.Bytes(), seen.bytes.Load(), "bytes of failed attempts are taken back")
			require.Equal(t, res.Manifest.Bytes(), res.Downloaded)
		})
	}
}

func TestRetryAfterIsHonoured(t *testing.T) {
	w := newWorld(t)
	w.put("llama/1", shards("one"))
	w.store.SetFault(onRanges(1, 1, fake.Fault{Status: 429, RetryAfter: "1"}))
	opts := w.ranged()
	opts.RetryMax = 5 * time.Second
	start := time.Now()
	res, err := fetcher.Init(t.Context(), opts)
	require.NoError(t, err)
	require.GreaterOrEqual(t, time.Since(start), time.Second)
	require.EqualValues(t, 1, res.Transfer.Throttled)
}

func TestA503StormIsSurvived(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put("llama/1", shards("one"))
	var seen atomic.Int64
	w.store.SetFault(func(r *http.Request) fake.Fault {
		if isGetObject(r) && seen.Add(1)%3 != 0 {
			return fake.Fault{Status: 503}
		}
		return fake.Fault{}
	})
	res, err := fetcher.Init(t.Context(), w.ranged())
	require.NoError(t, err)
	w.requireCurrent(shards("one"))
	require.Greater(t, res.Transfer.Throttled, int64(10))
}

// TestChangesBetweenRangesAreRefused changes the shard at the third of its
// ranges.
func TestChangesBetweenRangesAreRefused(t *testing.T) {
	t.Parallel()
	key := "llama/1/model-00001-of-00002.safetensors"
	tests := map[string]struct {
		change func(w *world)
		words  string
	}{
		"Overwritten": {func(w *world) {
			w.store.PutObject(bucket, key, shards("two")["model-00001-of-00002.safetensors"], fake.PutOptions{})
		}, "overwritten after it was listed"},
		"Shrunk":  {func(w *world) { w.store.PutObject(bucket, key, []byte("short"), fake.PutOptions{}) }, "overwritten after it was listed"},
		"Deleted": {func(w *world) { w.store.DeleteObject(bucket, key) }, "disappeared"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.put("llama/1", shards("one"))
			var seen atomic.Int64
			w.store.SetFault(func(r *http.Request) fake.Fault {
				if isRange(r) && strings.HasSuffix(r.URL.Path, shard) && seen.Add(1) == 3 {
					tc.change(w)
				}
				return fake.Fault{}
			})
			_, err := fetcher.Init(t.Context(), w.ranged())
			require.ErrorIs(t, err, fetcher.ErrIntegrity)
			require.ErrorContains(t, err, tc.words)
			require.ErrorContains(t, err, "model-00001-of-00002.safetensors")
			require.NoFileExists(t, w.root+"/current")
			require.Empty(t, entries(t, w.root+"/.staging"), "a wrong download is not kept")
		})
	}
}

func TestLastingFaultsOfRangesEndTheRun(t *testing.T) {
	t.Parallel()
	requireFailures(t, map[string]failure{
		"RangeIgnored": {func(w *world, _ fetcher.Options) fetcher.Options {
			w.store.SetFault(onGets(fake.Fault{IgnoreRange: true, Corrupt: true}))
			w.put("llama/2", shards("two"))
			return w.ranged()
		}, fetcher.ErrIntegrity, ""},
		"Transcoded": {func(w *world, _ fetcher.Options) fetcher.Options {
			w.store.SetFault(onGets(fake.Fault{Break: fake.BreakShort, After: 7, Encoding: "gzip"}))
			w.put("llama/2", shards("two"))
			return w.ranged()
		}, fetcher.ErrIntegrity, "Content-Encoding gzip"},
		"Stalled": {func(w *world, _ fetcher.Options) fetcher.Options {
			w.store.SetFault(onGets(fake.Fault{Break: fake.BreakStall}))
			w.put("llama/2", shards("two"))
			o := w.ranged()
			o.Stall, o.Deadline = 50*time.Millisecond, 4*time.Second
			return o
		}, fetcher.ErrStoreUnreachable, "no progress for 50ms"},
	})
}

func TestEveryChecksumThatStoresGiveIsVerified(t *testing.T) {
	t.Parallel()
	data := shards("one")["model-00001-of-00002.safetensors"]
	half := int64(len(data) / 2)
	parts := []int64{half, int64(len(data)) - half}
	tests := map[string]struct {
		put    fake.PutOptions
		server fake.Options
		want   string
	}{
		"CRC32C":             {fake.PutOptions{Algorithm: "crc32c"}, fake.Options{}, "crc32c:"},
		"CRC32":              {fake.PutOptions{Algorithm: "crc32"}, fake.Options{}, "crc32:"},
		"SHA256":             {fake.PutOptions{Algorithm: "sha256"}, fake.Options{}, "sha256:"},
		"MD5":                {fake.PutOptions{NoChecksum: true}, fake.Options{}, "md5:"},
		"Multipart":          {fake.PutOptions{PartSizes: parts}, fake.Options{}, "crc64nvme:"},
		"CompositeCRC32C":    {fake.PutOptions{Algorithm: "crc32c", Composite: true, PartSizes: parts}, fake.Options{}, "crc32c:"},
		"CompositeSHA256":    {fake.PutOptions{Algorithm: "sha256", Composite: true, PartSizes: parts}, fake.Options{}, "sha256:"},
		"CompositeUneven":    {fake.PutOptions{Algorithm: "crc32", Composite: true, PartSizes: []int64{10_000, int64(len(data)) - 10_000}}, fake.Options{}, "crc32:"},
		"R2":                 {fake.PutOptions{PartSizes: parts}, fake.Options{R2: true}, "crc64nvme:"},
		"R2CompositeByParts": {fake.PutOptions{Algorithm: "crc32c", Composite: true, MultipartParts: 3}, fake.Options{R2: true}, "crc32c:"},
		"MultipartNoSum":     {fake.PutOptions{PartSizes: parts, NoChecksum: true}, fake.Options{}, ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			for _, wrong := range []bool{false, true} {
				store := fake.New(tc.server)
				store.CreateBucket(bucket)
				w := newWorldOn(t, store)
				w.put("llama/1", model("one"))
				w.store.PutObject(bucket, shard, data, tc.put)
				if wrong {
					w.store.SetFault(func(r *http.Request) fake.Fault {
						return fake.Fault{Corrupt: isRange(r) && strings.HasSuffix(r.URL.Path, shard)}
					})
				}
				var log bytes.Buffer
				opts := w.ranged()
				opts.Logger = textLogger(&log)
				res, err := fetcher.Init(t.Context(), opts)
				if wrong && tc.want != "" {
					require.ErrorIs(t, err, fetcher.ErrIntegrity)
					continue
				}
				require.NoError(t, err)
				for _, o := range res.Manifest.Objects {
					if strings.HasSuffix(shard, o.Path) {
						require.True(t, strings.HasPrefix(o.Checksum, tc.want), o.Checksum)
						require.Equal(t, tc.want == "", o.Checksum == "")
					}
				}
				require.Equal(t, tc.want == "", strings.Contains(log.String(), "only the size was verified"))
			}
		})
	}
}

func TestTheLogSaysHowItWritesAndWhatItWaitedFor(t *testing.T) {
	t.Parallel()
	for _, durability := range []string{"ephemeral", "durable"} {
		w := newWorld(t)
		w.put("llama/1", shards("one"))
		var log bytes.Buffer
		opts := w.ranged()
		opts.Logger, opts.Durability = textLogger(&log), volume.Durability(durability)
		res, err := fetcher.Init(t.Context(), opts)
		require.NoError(t, err)
		require.Contains(t, log.String(), "durability="+durability)
		require.NotEmpty(t, res.Transfer.Bottleneck)
		require.NotEmpty(t, res.Transfer.Why)
		require.Positive(t, res.Transfer.Connections)
		w.requireCurrent(shards("one"))
	}
}

func TestTheBandwidthCapIsKept(t *testing.T) {
	w := newWorld(t)
	w.put("llama/1", shards("one"))
	opts := w.ranged()
	opts.Bandwidth = 2 << 20 // half a second, of which a burst may save a tenth of one
	start := time.Now()
	res, err := fetcher.Init(t.Context(), opts)
	require.NoError(t, err)
	least := time.Duration(float64(res.Downloaded) / float64(opts.Bandwidth) * 0.7 * float64(time.Second))
	require.Greater(t, time.Since(start), least, fmt.Sprintf("%d bytes", res.Downloaded))
	require.EqualValues(t, "bandwidth cap", res.Transfer.Bottleneck)
}
