package fetcher_test

import (
	"encoding/binary"
	"encoding/json"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/fetcher"
	fake "github.com/pilotlight-dev/pilotlight/internal/fake/s3"
	"github.com/pilotlight-dev/pilotlight/registry"
)

// manyTensors is a safetensors file whose header is longer than the first read.
func manyTensors(t *testing.T) []byte {
	t.Helper()
	header := map[string]any{}
	for i := range 4000 {
		name := strings.Repeat("layer.", 10) + string(rune('a'+i%26)) + strings.Repeat("x", i/26)
		header[name] = map[string]any{"dtype": "U8", "shape": []int{1}, "data_offsets": []int{i, i + 1}}
	}
	text, err := json.Marshal(header)
	require.NoError(t, err)
	require.Greater(t, len(text), 256<<10)
	out := binary.LittleEndian.AppendUint64(nil, uint64(len(text)))
	return append(append(out, text...), make([]byte, 4000)...)
}

func TestInspectProvesFromAfarWhatInitWouldFind(t *testing.T) {
	tests := map[string]struct {
		spoil func(map[string][]byte)
		want  string // "" means that the version is fine
	}{
		"Whole":      {spoil: func(map[string][]byte) {}},
		"LongHeader": {spoil: func(m map[string][]byte) { m["big.safetensors"] = manyTensors(t) }},
		"CutUpload": {func(m map[string][]byte) {
			m["model-00002-of-00002.safetensors"] = m["model-00002-of-00002.safetensors"][:1500]
		}, "cut upload"},
		"ShardForgotten": {func(m map[string][]byte) { delete(m, "model-00001-of-00002.safetensors") }, "1 shards named by the index are missing"},
		"LFSPointer": {func(m map[string][]byte) {
			m["model-00001-of-00002.safetensors"] = []byte("version https://git-lfs...")
		}, "Git LFS pointer"},
		"EmptyShard":  {func(m map[string][]byte) { m["model-00001-of-00002.safetensors"] = nil }, "not a safetensors file"},
		"IndexNoJSON": {func(m map[string][]byte) { m["model.safetensors.index.json"] = []byte("<html>") }, "not JSON"},
		"NoWeights": {func(m map[string][]byte) {
			for name := range m {
				if strings.Contains(name, "safetensors") {
					delete(m, name)
				}
			}
		}, "no weights"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			files := model("v1")
			tc.spoil(files)
			w.put("llama/1", files)
			got, err := fetcher.Inspect(t.Context(), w.options())
			if tc.want != "" {
				require.ErrorIs(t, err, fetcher.ErrIntegrity)
				require.ErrorContains(t, err, tc.want)
				return
			}
			require.NoError(t, err)
			require.Equal(t, "1", got.Pointer.Version)
			require.NoDirExists(t, w.root, "nothing is written")
			require.Equal(t, w.mustInit().Manifest.Digest, got.Manifest.Digest, "it names the version that Init publishes")
		})
	}
}

func TestInspectReadsOnlyHeadersAndIndexes(t *testing.T) {
	w := newWorld(t)
	files := model("v1")
	files["model-00001-of-00002.safetensors"] = safetensors(strings.Repeat("a", 4<<20))
	w.put("llama/1", files)
	var whole atomic.Int64
	w.store.SetFault(func(r *http.Request) fake.Fault {
		if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "00001-of-00002.safetensors") && r.Header.Get("Range") == "" {
			whole.Add(1)
		}
		return fake.Fault{}
	})
	_, err := fetcher.Inspect(t.Context(), w.options())
	require.NoError(t, err)
	require.Zero(t, whole.Load())
	require.Equal(t, 3, w.store.Count("GetObject"), "two headers and one index")
}

func TestInspectTriesAgainAndGivesUpAtTheDeadline(t *testing.T) {
	w := newWorld(t)
	w.put("llama/1", model("v1"))
	var failures atomic.Int64
	w.store.SetFault(func(r *http.Request) fake.Fault {
		if strings.HasSuffix(r.URL.Path, ".index.json") && failures.Add(1) <= 2 {
			return fake.Fault{Status: http.StatusServiceUnavailable}
		}
		return fake.Fault{}
	})
	_, err := fetcher.Inspect(t.Context(), w.options())
	require.NoError(t, err)

	w.store.SetFault(func(*http.Request) fake.Fault { return fake.Fault{Status: http.StatusServiceUnavailable} })
	opts := w.options()
	opts.Deadline = 100 * time.Millisecond
	_, err = fetcher.Inspect(t.Context(), opts)
	require.ErrorIs(t, err, fetcher.ErrStoreUnreachable)
}

func TestListNamesTheVersionWithoutReadingIt(t *testing.T) {
	w := newWorld(t)
	w.put("llama/1", model("v1"))
	loc, err := registry.ParseLocation("s3://" + bucket + "/llama/1")
	require.NoError(t, err)
	opts := w.options()
	opts.Root, opts.Resolver = "", fetcher.Fixed{Name: "llama", Version: "1", Location: loc}
	got, err := fetcher.List(t.Context(), opts)
	require.NoError(t, err)
	require.Zero(t, w.store.Count("GetObject"))
	require.Equal(t, w.mustInit().Manifest.Digest, got.Manifest.Digest)

	opts.AllowLocations = []registry.Location{{Scheme: "s3", Bucket: "other"}}
	_, err = fetcher.List(t.Context(), opts)
	require.ErrorIs(t, err, registry.ErrBroken)
}
