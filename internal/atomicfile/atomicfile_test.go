package atomicfile_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/internal/atomicfile"
)

func openRoot(t *testing.T) (*os.Root, string) {
	t.Helper()
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, root.Close()) })
	return root, dir
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

func TestWriteReplacesAndLeavesNothingBehind(t *testing.T) {
	root, dir := openRoot(t)
	require.NoError(t, atomicfile.Write(root, "state", []byte("one"), atomicfile.Options{}))
	require.NoError(t, atomicfile.Write(root, "state", []byte("two"), atomicfile.Options{Perm: 0o444}))
	got, err := os.ReadFile(filepath.Join(dir, "state")) //nolint:gosec // a file of this test
	require.NoError(t, err)
	require.Equal(t, "two", string(got))
	info, err := os.Stat(filepath.Join(dir, "state"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o444), info.Mode().Perm(), "the mode is set past the umask")
	require.Equal(t, []string{"state"}, names(t, dir))
}

func TestWriteFailureKeepsTheOldFile(t *testing.T) {
	root, dir := openRoot(t)
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "taken", "x"), 0o750))
	require.Error(t, atomicfile.Write(root, "taken", []byte("new"), atomicfile.Options{}))
	require.Equal(t, []string{"taken"}, names(t, dir), "no temporary file stays")
	require.DirExists(t, filepath.Join(dir, "taken", "x"))
}

func TestWriteDoesNotLeaveTheRoot(t *testing.T) {
	root, dir := openRoot(t)
	require.Error(t, atomicfile.Write(root, "../escaped", []byte("x"), atomicfile.Options{}))
	require.NoFileExists(t, filepath.Join(filepath.Dir(dir), "escaped"))
}

func TestSymlinkSwaps(t *testing.T) {
	root, dir := openRoot(t)
	for _, target := range []string{"versions/a", "versions/b"} {
		require.NoError(t, atomicfile.Symlink(root, target, "current", atomicfile.Options{}))
		got, err := os.Readlink(filepath.Join(dir, "current"))
		require.NoError(t, err)
		require.Equal(t, target, got)
	}
	require.Equal(t, []string{"current"}, names(t, dir))
}

func TestSymlinkRefusesAFolder(t *testing.T) {
	root, dir := openRoot(t)
	require.NoError(t, os.Mkdir(filepath.Join(dir, "current"), 0o750))
	require.Error(t, atomicfile.Symlink(root, "versions/a", "current", atomicfile.Options{}))
	require.Equal(t, []string{"current"}, names(t, dir))
}
