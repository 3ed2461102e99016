package fetcher_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/fetcher"
)

func openStore(t *testing.T, root string) *fetcher.Store {
	t.Helper()
	s, err := fetcher.OpenStore(root, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func TestSweepSparesTheLivingAndRemovesTheDead(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	end, err := fetcher.HoldClaim(root, "0123456789ab")
	require.NoError(t, err)
	s := openStore(t, root)
	swept, err := s.Sweep()
	require.NoError(t, err)
	require.Zero(t, swept, "its owner holds the lock")
	require.Len(t, entries(t, filepath.Join(root, ".staging")), 2)

	require.NoError(t, end()) // as when the process dies
	swept, err = s.Sweep()
	require.NoError(t, err)
	require.Equal(t, 1, swept)
	require.Empty(t, entries(t, filepath.Join(root, ".staging")))
}

func TestSweepRemovesEveryKindOfLeftover(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	staging := filepath.Join(root, ".staging")
	require.NoError(t, os.MkdirAll(filepath.Join(staging, "0123456789ab.aaaaaaaaaaaa", "dir"), 0o750))
	require.NoError(t, os.Symlink("versions/0123456789ab", filepath.Join(staging, "0123456789ab.bbbbbbbbbbbb.link")))
	require.NoError(t, os.WriteFile(filepath.Join(staging, "0123456789ab.cccccccccccc.lock"), nil, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(staging, "0123456789ab.dddddddddddd.state"), nil, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(staging, ".nfs000000000123"), nil, 0o600))
	swept, err := openStore(t, root).Sweep()
	require.NoError(t, err)
	require.Equal(t, 4, swept)
	require.Equal(t, []string{".nfs000000000123"}, entries(t, staging), "names that are not ours stay")
}

func TestSweepOfAnEmptyRoot(t *testing.T) {
	t.Parallel()
	swept, err := openStore(t, t.TempDir()).Sweep()
	require.NoError(t, err)
	require.Zero(t, swept)
}

func TestADamagedVersionIsFetchedAgainAndReplaced(t *testing.T) {
	t.Parallel()
	damages := map[string]func(t *testing.T, dir string){
		"FileMissing": func(t *testing.T, dir string) { require.NoError(t, os.Remove(filepath.Join(dir, "config.json"))) },
		"FileCut":     func(t *testing.T, dir string) { require.NoError(t, os.Truncate(filepath.Join(dir, "config.json"), 1)) },
		"NoManifest": func(t *testing.T, dir string) {
			require.NoError(t, os.Remove(filepath.Join(dir, ".pilotlight/manifest.json")))
		},
		"ManifestEdited": func(t *testing.T, dir string) {
			name := filepath.Join(dir, ".pilotlight/manifest.json")
			data, err := os.ReadFile(name) //nolint:gosec // a file of this test
			require.NoError(t, err)
			require.NoError(t, os.Remove(name))
			require.NoError(t, os.WriteFile(name, bytes.Replace(data, []byte(`"size": `), []byte(`"size": 1`), 1), 0o600)) //nolint:gosec // a file of this test
		},
	}
	for name, damage := range damages {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.put("llama/1", model("one"))
			res := w.mustInit()
			damage(t, filepath.Join(w.root, "versions", res.Manifest.Short()))
			res = w.mustInit()
			require.False(t, res.Reused)
			w.requireCurrent(model("one"))
			require.Empty(t, entries(t, filepath.Join(w.root, ".staging")))
		})
	}
}

func TestADanglingLinkOfOursIsRepaired(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put("llama/1", model("one"))
	require.NoError(t, os.MkdirAll(w.root, 0o750))
	require.NoError(t, os.Symlink("versions/0123456789ab", filepath.Join(w.root, "current")))
	w.mustInit()
	w.requireCurrent(model("one"))
}

// TestACurrentVersionThatVanishedIsBroughtBack: somebody has removed its folder,
// or all of them, and the link still names it.
func TestACurrentVersionThatVanishedIsBroughtBack(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		point  string
		remove func(short string) string
	}{
		"TheSameIsWanted": {"llama/1", func(short string) string { return "versions/" + short }},
		"AnotherIsWanted": {"llama/2", func(short string) string { return "versions/" + short }},
		"AllAreGone":      {"llama/1", func(string) string { return "versions" }},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.put("llama/2", model("llama/2"))
			w.put("llama/1", model("llama/1"))
			short := w.mustInit().Manifest.Short()
			require.NoError(t, os.RemoveAll(filepath.Join(w.root, tc.remove(short))))
			w.point(tc.point)
			require.False(t, w.mustInit().Reused)
			w.requireCurrent(model(tc.point))
			require.Empty(t, entries(t, filepath.Join(w.root, ".staging")))
		})
	}
}

func TestLinksInsideTheRootLeadNowhereElse(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put("llama/1", model("one"))
	outside := t.TempDir()
	require.NoError(t, os.MkdirAll(w.root, 0o750))
	require.NoError(t, os.Symlink(outside, filepath.Join(w.root, ".staging")))
	_, err := w.init()
	require.Error(t, err)
	require.Empty(t, entries(t, outside), "a planted link does not take us out of the root")
}
