package fetcher_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/fetcher"
)

// A run in a folder of another root would write into what is published there.
func TestARootInsideAnotherIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put("llama/1", model("one"))
	outer, short := w.root, w.mustInit().Manifest.Short()
	link := filepath.Join(filepath.Dir(outer), "elsewhere")
	require.NoError(t, os.Symlink(filepath.Join(outer, "versions", short), link))
	for name, root := range map[string]string{
		"Current":       filepath.Join(outer, "current"),
		"BelowCurrent":  filepath.Join(outer, "current", "tokenizer", "new", "one"),
		"Versions":      filepath.Join(outer, "versions"),
		"Version":       filepath.Join(outer, "versions", short),
		"Staging":       filepath.Join(outer, ".staging"),
		"Beside":        filepath.Join(outer, "other"),
		"LinkToVersion": link,
		"BelowTheLink":  filepath.Join(link, "new"),
	} {
		w.requireUntouched(func() {
			opts := w.options()
			opts.Root = root
			_, err := fetcher.Init(t.Context(), opts)
			require.ErrorIs(t, err, fetcher.ErrUsage, name)
			require.ErrorContains(t, err, "choose another --root", name)
			_, err = fetcher.DryRun(t.Context(), opts)
			require.ErrorIs(t, err, fetcher.ErrUsage, name)
		})
	}
	require.NoError(t, os.Remove(filepath.Join(outer, "current")))
	opts := w.options()
	opts.Root = filepath.Join(outer, "versions")
	_, err := fetcher.Init(t.Context(), opts)
	require.ErrorIs(t, err, fetcher.ErrUsage, "a root without its link is one all the same")

	opts.Root = filepath.Join(filepath.Dir(outer), "sibling")
	_, err = fetcher.Init(t.Context(), opts)
	require.NoError(t, err, "roots may lie side by side")
}
