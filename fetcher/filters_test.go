package fetcher_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/fetcher"
)

func TestFiltersChooseFiles(t *testing.T) {
	t.Parallel()
	files := model("one")
	files["original/consolidated.00.pth"] = []byte("a second copy of the weights")
	files["original/deep/params.json"] = []byte("{}")
	files["model.gguf"] = []byte("a third")
	weights := []string{"config.json", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "model.safetensors.index.json"}
	tokenizer := []string{"tokenizer/vocab.json", "tokenizer/empty.txt"}
	tests := map[string]struct {
		include, exclude []string
		want             []string
	}{
		"ExcludeAFolder":       {nil, []string{"original/**", "*.gguf"}, append(weights, tokenizer...)},
		"ExcludeByASlash":      {nil, []string{"original/", "*.gguf"}, append(weights, tokenizer...)},
		"ExcludeInEveryFolder": {nil, []string{"*.json", "*.pth", "*.gguf", "*.txt"}, weights[1:3]},
		"IncludeOnly":          {[]string{"*.safetensors", "/config.json", "*.index.json"}, nil, weights},
		"ExcludeBeatsInclude":  {[]string{"*.safetensors", "**/vocab.*"}, []string{"tokenizer/*"}, weights[1:3]},
		"AnchoredAtTheTop":     {[]string{"/*.json", "*.safetensors"}, nil, weights},
		"DeepFolders":          {[]string{"*.safetensors", "original/**/params.json"}, nil, append([]string{"original/deep/params.json"}, weights[1:3]...)},
		"Everything":           {nil, nil, append([]string{"original/consolidated.00.pth", "original/deep/params.json", "model.gguf"}, append(weights, tokenizer...)...)},
	}
	digests := map[string]string{}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.put("llama/1", files)
			opts := w.options()
			opts.Include, opts.Exclude, opts.AnyLayout = tc.include, tc.exclude, true
			res, err := fetcher.Init(t.Context(), opts)
			require.NoError(t, err)
			want := map[string][]byte{}
			for _, name := range tc.want {
				want[name] = files[name]
			}
			w.requireCurrent(want)
			require.Empty(t, digests[res.Manifest.Digest], "each choice is a version of its own")
			digests[res.Manifest.Digest] = name
			again, err := fetcher.Init(t.Context(), opts)
			require.NoError(t, err)
			require.True(t, again.Reused)
		})
	}
}

// TestFiltersArePartOfTheDigest even where they leave everything: the folder of
// one choice is never taken for that of another.
func TestFiltersArePartOfTheDigest(t *testing.T) {
	t.Parallel()
	objects := []fetcher.Object{{Path: "config.json", Size: 1, ETag: "e"}}
	digest := func(filters ...string) string {
		d, err := fetcher.Digest("", filters, objects)
		require.NoError(t, err)
		return d
	}
	require.Equal(t, digest(), digest([]string{}...))
	require.NotEqual(t, digest(), digest("-*.gguf"))
	require.NotEqual(t, digest("+*.gguf"), digest("-*.gguf"))
}

func TestFiltersThatCannotBe(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		include, exclude []string
		want             error
		words            string
	}{
		"BadGlob":        {[]string{"[a-"}, nil, fetcher.ErrUsage, "glob"},
		"EmptyGlob":      {nil, []string{"/"}, fetcher.ErrUsage, "matches nothing"},
		"NothingIsLeft":  {[]string{"*.onnx"}, nil, fetcher.ErrUsage, "leave none of the 6 objects"},
		"NeededShards":   {nil, []string{"model-00002-*"}, fetcher.ErrIntegrity, "model-00002-of-00002.safetensors"},
		"OnlySomeShards": {[]string{"*.json", "model-00001-*"}, nil, fetcher.ErrIntegrity, "--include and --exclude"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.put("llama/1", model("one"))
			opts := w.options()
			opts.Include, opts.Exclude = tc.include, tc.exclude
			_, err := fetcher.Init(t.Context(), opts)
			require.ErrorIs(t, err, tc.want)
			require.ErrorContains(t, err, tc.words)
			require.LessOrEqual(t, w.store.Count("GetObject"), 1, "no more than the index was read")
			require.NoDirExists(t, w.root+"/current")
		})
	}
}
