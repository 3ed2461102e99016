package fetcher_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/fetcher"
)

func TestAManifestIsReadAnewWhenItsFileIsAnother(t *testing.T) {
	w := newWorld(t)
	var read []fetcher.Manifest
	for _, version := range []string{"v1", "v2"} {
		w.put(version, model(version))
		w.point(version)
		read = append(read, w.mustInit().Manifest)
	}
	first, second := read[0], read[1]
	store, err := fetcher.OpenStore(w.root, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	r := fetcher.ManifestReader{Store: store}
	require.NotEqual(t, first.Digest, second.Digest)
	for range 2 {
		for _, m := range []fetcher.Manifest{first, second, second} {
			got, err := r.Manifest(m.Short())
			require.NoError(t, err)
			require.Equal(t, m.Digest, got.Digest)
		}
	}
	file := filepath.Join(w.root, "versions", second.Short(), ".pilotlight", "manifest.json")
	require.NoError(t, os.WriteFile(file, []byte("{"), 0o600))
	_, err = r.Manifest(second.Short())
	require.ErrorIs(t, err, fetcher.ErrIntegrity, "damage is seen")
	require.NoError(t, os.Remove(file))
	_, err = r.Manifest(second.Short())
	require.ErrorIs(t, err, fs.ErrNotExist)
}
