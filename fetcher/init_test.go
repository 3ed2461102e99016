package fetcher_test

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/fetcher"
	fake "github.com/pilotlight-dev/pilotlight/internal/fake/s3"
	"github.com/pilotlight-dev/pilotlight/registry"
)

func TestInitPublishesACompleteVersion(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put("llama/1", model("one"))
	w.store.PutObject(bucket, "llama/1/", nil, fake.PutOptions{})           // folder markers,
	w.store.PutObject(bucket, "llama/1/tokenizer/", nil, fake.PutOptions{}) // as consoles make them
	res := w.mustInit()
	w.requireCurrent(model("one"))
	require.True(t, res.Changed)
	require.False(t, res.Reused)
	require.Equal(t, res.Manifest.Bytes(), res.Downloaded)

	target, err := os.Readlink(filepath.Join(w.root, "current"))
	require.NoError(t, err)
	require.Equal(t, "versions/"+res.Manifest.Digest[:12], target, "a relative link survives another mount point")

	data, err := os.ReadFile(filepath.Join(w.root, "current/.pilotlight/manifest.json"))
	require.NoError(t, err)
	m, err := fetcher.DecodeManifest(data)
	require.NoError(t, err)
	require.Equal(t, "models:/llama@champion", m.Ref)
	require.Equal(t, "s3://weights/llama/1", m.Location)
	require.Len(t, m.Objects, len(model("one")))
	for _, o := range m.Objects {
		require.True(t, strings.HasPrefix(o.Checksum, "crc64nvme:"), o.Path)
	}
	require.Empty(t, entries(t, filepath.Join(w.root, ".staging")))
}

func TestModesLetOtherUsersReadAndNobodyWrite(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put("llama/1", model("one"))
	w.mustInit()
	dir, err := filepath.EvalSymlinks(filepath.Join(w.root, "current"))
	require.NoError(t, err)
	require.NoError(t, filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		require.NoError(t, err)
		info, err := d.Info()
		require.NoError(t, err)
		want := fs.FileMode(0o444)
		switch {
		case d.IsDir():
			want = 0o755
		case d.Type() == fs.ModeSymlink:
			return nil // the links to model and tokenizer have no mode of their own
		}
		require.Equal(t, want, info.Mode().Perm(), name)
		return nil
	}))
}

func entries(t testing.TB, dir string) []string {
	t.Helper()
	list, err := os.ReadDir(dir)
	require.NoError(t, err)
	var names []string
	for _, e := range list {
		names = append(names, e.Name())
	}
	return names
}

func TestSecondInitTouchesNoObject(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put("llama/1", model("one"))
	w.mustInit()
	gets := w.store.Count("GetObject")
	w.requireUntouched(func() {
		res := w.mustInit()
		require.True(t, res.Reused)
		require.False(t, res.Changed)
		require.Zero(t, res.Downloaded)
	})
	require.Equal(t, gets, w.store.Count("GetObject"))
}

func TestRollbackIsOneListingAndOneRename(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put("llama/1", model("one"))
	w.mustInit()
	w.put("llama/2", model("two"))
	w.mustInit()
	w.requireCurrent(model("two"))

	gets, lists := w.store.Count("GetObject"), w.store.Count("ListObjectsV2")
	w.point("llama/1")
	res := w.mustInit()
	w.requireCurrent(model("one"))
	require.True(t, res.Reused)
	require.True(t, res.Changed)
	require.Equal(t, gets, w.store.Count("GetObject"), "rolling back downloads nothing")
	require.Equal(t, lists+1, w.store.Count("ListObjectsV2"))

	store, err := fetcher.OpenStore(w.root, nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, store.Close()) }()
	var published []string
	for _, p := range store.State().Published {
		published = append(published, p.Version)
	}
	require.Equal(t, []string{"1", "2", "1"}, published, "newest first")
}

func TestAnOverwrittenPrefixIsAnotherVersion(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put("llama/1", model("one"))
	first := w.mustInit()
	w.put("llama/1", model("ONE")) // same names and sizes, other bytes
	second := w.mustInit()
	require.NotEqual(t, first.Manifest.Digest, second.Manifest.Digest)
	w.requireCurrent(model("ONE"))
}

func TestSiblingPrefixIsNotTaken(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put("llama-hf", model("sibling"))
	w.put("llama", model("one"))
	w.mustInit()
	w.requireCurrent(model("one"))
}

func TestSubPath(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	files := model("one")
	for name, data := range model("one") {
		files["model/"+name] = data
	}
	w.put("llama/1", files)
	opts := w.options()
	opts.SubPath = "model/"
	_, err := fetcher.Init(t.Context(), opts)
	require.NoError(t, err)
	w.requireCurrent(model("one"))
	for _, bad := range []string{"../x", "/abs", "a/../../b", "."} {
		opts.SubPath = bad
		_, err := fetcher.Init(t.Context(), opts)
		require.ErrorIs(t, err, fetcher.ErrUsage, bad)
	}
}

func TestManyObjectsOverManyPages(t *testing.T) {
	t.Parallel()
	w := newWorldOn(t, fake.New(fake.Options{MaxKeys: 7}))
	files := map[string][]byte{"w.bin": nil}
	for i := range 50 {
		files["dir"+strings.Repeat("x", i%3)+"/file with space+plus%25 "+strings.Repeat("y", i)] = []byte(strings.Repeat("z", i))
	}
	w.put("many", files)
	w.mustInit()
	w.requireCurrent(files)
	require.Greater(t, w.store.Count("ListObjectsV2"), 7)
}

func TestVerificationFallsBackToWhatTheStoreGives(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		put    fake.PutOptions
		prefix string
		logs   bool
	}{
		"CRC64NVME": {fake.PutOptions{}, "crc64nvme:", false},
		"MD5":       {fake.PutOptions{NoChecksum: true}, "md5:", false},
		"SizeOnly":  {fake.PutOptions{NoChecksum: true, MultipartParts: 2}, "", true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.store.PutObject(bucket, "llama/1/weights.bin", []byte("content"), tc.put)
			w.point("llama/1")
			var log bytes.Buffer
			opts := w.options()
			opts.Logger = textLogger(&log)
			res, err := fetcher.Init(t.Context(), opts)
			require.NoError(t, err)
			checksum := res.Manifest.Objects[0].Checksum
			require.True(t, strings.HasPrefix(checksum, tc.prefix))
			require.Equal(t, tc.prefix == "", checksum == "")
			require.Equal(t, tc.logs, strings.Contains(log.String(), "only the size was verified"))
		})
	}
}

func TestEveryGetIsPinnedAndPlain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put("llama/1", model("one"))
	var mu sync.Mutex
	var headers []http.Header
	w.store.SetFault(func(r *http.Request) fake.Fault {
		mu.Lock()
		defer mu.Unlock()
		if isGetObject(r) {
			headers = append(headers, r.Header.Clone())
		}
		return fake.Fault{}
	})
	w.mustInit()
	require.Len(t, headers, len(model("one")))
	for _, h := range headers {
		require.Regexp(t, `^"[0-9a-f]{32}"$`, h.Get("If-Match"))
		require.Equal(t, "identity", h.Get("Accept-Encoding"))
		require.Equal(t, "ENABLED", h.Get("X-Amz-Checksum-Mode"))
	}
}

func isGetObject(r *http.Request) bool {
	return r.Method == http.MethodGet && strings.Count(r.URL.Path, "/") > 1 && !r.URL.Query().Has("list-type")
}

func TestDryRunWritesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put("llama/1", model("one"))
	plan, err := fetcher.DryRun(t.Context(), w.options())
	require.NoError(t, err)
	require.NoDirExists(t, w.root)
	require.False(t, plan.Reuse)
	require.Equal(t, "model-00001-of-00002.safetensors", plan.Fetch[0].Path, "the largest first")
	var text bytes.Buffer
	require.NoError(t, plan.Write(&text))
	require.Contains(t, text.String(), "download 6 objects")

	w.mustInit()
	w.requireUntouched(func() {
		plan, err = fetcher.DryRun(t.Context(), w.options())
		require.NoError(t, err)
		require.True(t, plan.Reuse)
	})
}

func TestAllowedLocations(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put("llama/1", model("one"))
	for allow, ok := range map[string]bool{"s3://weights/llama": true, "s3://weights": true, "s3://weights/lla": false, "s3://other": false} {
		opts := w.options()
		loc, err := registry.ParseLocation(allow)
		require.NoError(t, err)
		opts.AllowLocations = []registry.Location{loc}
		_, err = fetcher.DryRun(t.Context(), opts)
		if ok {
			require.NoError(t, err, allow)
			continue
		}
		require.ErrorIs(t, err, registry.ErrBroken, allow)
		require.ErrorContains(t, err, "--allow-location")
	}
	lists := w.store.Count("ListObjectsV2")
	require.Equal(t, 2, lists, "a place that is not allowed is not even asked")
}

func TestConcurrentInitsOfOneRootAgree(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put("llama/1", model("one"))
	var wg sync.WaitGroup
	errs := make([]error, 4)
	for i := range errs {
		wg.Go(func() { _, errs[i] = fetcher.Init(t.Context(), w.options()) })
	}
	wg.Wait()
	for _, err := range errs {
		require.NoError(t, err, "losing the race is harmless")
	}
	w.requireCurrent(model("one"))
	require.Len(t, entries(t, filepath.Join(w.root, "versions")), 1)
	require.Empty(t, entries(t, filepath.Join(w.root, ".staging")))
}

func TestStateIsReadableJSON(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put("llama/1", model("one"))
	w.mustInit()
	data, err := os.ReadFile(filepath.Join(w.root, ".state.json"))
	require.NoError(t, err)
	var state fetcher.State
	require.NoError(t, json.Unmarshal(data, &state))
	require.Equal(t, 1, state.V)
	require.Equal(t, "models:/llama@champion", state.Published[0].Ref)
}

func TestAPrefetchPublishesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put("llama/1", model("one"))
	w.mustInit()
	w.put("llama/2", model("two"))
	opts := w.options()
	opts.Prefetch = true
	res, err := fetcher.Init(t.Context(), opts)
	require.NoError(t, err)
	require.False(t, res.Changed)
	w.requireCurrent(model("one"))
	require.Equal(t, contents(model("two")), readTree(t, filepath.Join(w.root, "versions", res.Manifest.Short())))
	require.Empty(t, entries(t, filepath.Join(w.root, ".staging")))
	gets := w.store.Count("GetObject")
	require.True(t, w.mustInit().Changed)
	w.requireCurrent(model("two"))
	require.Equal(t, gets, w.store.Count("GetObject"), "it was there already")
}
