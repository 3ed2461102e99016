package fetcher_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/fetcher"
	"github.com/pilotlight-dev/pilotlight/fetcher/volume"
	fake "github.com/pilotlight-dev/pilotlight/internal/fake/s3"
)

const rottenFile = "model-00001-of-00002.safetensors"

// rotSilently flips a bit and gives the file its times back, as a disk does that
// loses one.
func rotSilently(t *testing.T, file string) {
	t.Helper()
	info, err := os.Stat(file)
	require.NoError(t, err)
	rot(t, file)
	require.NoError(t, os.Chtimes(file, info.ModTime(), info.ModTime()))
}

// copied replaces a file by a copy of itself, as restoring a backup does.
func copied(t *testing.T, file string) {
	t.Helper()
	data, err := os.ReadFile(file) //nolint:gosec // a file of this test
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file+".copy", data, 0o400))
	require.NoError(t, os.Rename(file+".copy", file))
}

// added puts a shard beside the others that nobody has uploaded.
func added(t *testing.T, file string) {
	t.Helper()
	require.NoError(t, os.Chmod(filepath.Dir(file), 0o755)) //nolint:gosec // as root may write anyway
	require.NoError(t, os.WriteFile(filepath.Join(filepath.Dir(file), "model-00003-of-00002.safetensors"), safetensors("three"), 0o600))
}

// addedLink does it with a link, in a folder.
func addedLink(t *testing.T, file string) {
	t.Helper()
	require.NoError(t, os.Chmod(filepath.Join(filepath.Dir(file), "tokenizer"), 0o755)) //nolint:gosec // as above
	require.NoError(t, os.Symlink("/etc", filepath.Join(filepath.Dir(file), "tokenizer", "more")))
}

func TestWhatIsOnDiskIsVerifiedBeforeItIsUsedAgain(t *testing.T) {
	t.Parallel()
	const changed, reading = "files were changed since", "reading a version before it is trusted"
	tests := map[string]struct {
		verify fetcher.Verify
		harm   func(t *testing.T, file string)
		reused bool
		said   string // "" is that nothing was read
	}{
		"AutoUntouched":   {fetcher.VerifyAuto, func(*testing.T, string) {}, true, ""},
		"AutoFlippedByte": {fetcher.VerifyAuto, rot, false, changed},
		"AutoCopy":        {fetcher.VerifyAuto, copied, true, changed},
		"AutoTouched":     {fetcher.VerifyAuto, func(t *testing.T, f string) { require.NoError(t, os.Chtimes(f, time.Now(), time.Now())) }, true, changed},
		"AutoChmod":       {fetcher.VerifyAuto, func(t *testing.T, f string) { require.NoError(t, os.Chmod(f, 0o660)) }, true, ""}, //nolint:gosec // as the kubelet does for fsGroup
		"AutoSilentBit":   {fetcher.VerifyAuto, rotSilently, true, ""},
		"SizeFlippedByte": {fetcher.VerifySize, rot, true, ""},
		"SizeTruncated": {fetcher.VerifySize, func(t *testing.T, f string) {
			require.NoError(t, os.Chmod(f, 0o600))
			require.NoError(t, os.Truncate(f, 9))
		}, false, ""},
		"FullSilentBit": {fetcher.VerifyFull, rotSilently, false, "asked for"},
		"FullUntouched": {fetcher.VerifyFull, func(*testing.T, string) {}, true, "asked for"},
		"FullAddedFile": {fetcher.VerifyFull, added, false, ""},
		"FullAddedLink": {fetcher.VerifyFull, addedLink, false, ""},
		"AutoAddedFile": {fetcher.VerifyAuto, added, true, ""},
		"AutoAddedFileAndCopy": {fetcher.VerifyAuto, func(t *testing.T, f string) {
			added(t, f)
			copied(t, f)
		}, false, ""},
		"SizeAddedFile":  {fetcher.VerifySize, added, true, ""},
		"EmptyMeansAuto": {"", rot, false, changed},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.put("llama/1", model("one"))
			opts := w.options()
			opts.Durability = volume.Durable
			first, err := fetcher.Init(t.Context(), opts)
			require.NoError(t, err)
			tc.harm(t, filepath.Join(w.root, "versions", first.Manifest.Short(), rottenFile))
			var said strings.Builder
			opts.Verify, opts.Logger = tc.verify, textLogger(&said)
			res, err := fetcher.Init(t.Context(), opts)
			require.NoError(t, err)
			require.Equal(t, tc.reused, res.Reused)
			if tc.said == "" {
				require.NotContains(t, said.String(), reading)
			} else {
				require.Contains(t, said.String(), tc.said)
				require.Equal(t, 1, strings.Count(said.String(), reading), "once in a run")
			}
			if !tc.reused {
				w.requireCurrent(model("one"))
			}
			said.Reset()
			opts.Verify = fetcher.VerifyAuto
			res, err = fetcher.Init(t.Context(), opts)
			require.NoError(t, err)
			if tc.verify != fetcher.VerifySize {
				require.True(t, res.Reused)
				require.NotContains(t, said.String(), reading, "what was proven is noted")
			}
		})
	}
}

func TestAVersionWithoutChecksumsIsVerifiedByItsMarks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for name, data := range model("one") {
		w.store.PutObject(bucket, "llama/1/"+name, data, fake.PutOptions{NoChecksum: true, MultipartParts: 2})
	}
	w.point("llama/1")
	opts := w.options()
	opts.Durability, opts.Verify = volume.Durable, fetcher.VerifyFull
	first, err := fetcher.Init(t.Context(), opts)
	require.NoError(t, err)
	res, err := fetcher.Init(t.Context(), opts)
	require.NoError(t, err)
	require.True(t, res.Reused, "it is not fetched again for ever")
	rot(t, filepath.Join(w.root, "versions", first.Manifest.Short(), rottenFile))
	res, err = fetcher.Init(t.Context(), opts)
	require.NoError(t, err)
	require.False(t, res.Reused)
	w.requireCurrent(model("one"))
}

func TestWaysToVerifyThatAreNone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	opts := w.options()
	opts.Verify = "perhaps"
	_, err := fetcher.Init(t.Context(), opts)
	require.ErrorIs(t, err, fetcher.ErrUsage)
	require.ErrorContains(t, err, "want auto, size or full")
}

// TestARolledBackVersionThatRottedIsFetchedAgain: it was good when it was
// published, and is current again only after it has been proven.
func TestARolledBackVersionThatRottedIsFetchedAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put("llama/1", model("one"))
	first := w.mustInit()
	w.put("llama/2", model("two"))
	w.mustInit()
	rot(t, filepath.Join(w.root, "versions", first.Manifest.Short(), rottenFile))
	w.point("llama/1")
	require.False(t, w.mustInit().Reused)
	w.requireCurrent(model("one"))
}
