package filestore_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/warmup/coldstart"
	"github.com/pilotlight-dev/pilotlight/warmup/coldstart/filestore"
)

var (
	llama   = coldstart.Key{Namespace: "ai", Name: "llama", Trigger: "t1"}
	mistral = coldstart.Key{Namespace: "ai", Name: "mistral", Trigger: "t1"}
)

func entry(load float64) coldstart.Entry {
	return coldstart.Entry{
		Templates: []coldstart.Template{{Hash: "5d4f", Starts: []coldstart.Start{{Load: load}}}},
		State:     json.RawMessage(`{"a":1}`), Updated: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC),
	}
}

func newStore(t *testing.T) filestore.Store {
	t.Helper()
	return filestore.Store{Path: filepath.Join(t.TempDir(), "state.json")}
}

func TestRoundTrip(t *testing.T) {
	store := newStore(t)
	got, damaged, err := store.Load(t.Context())
	require.NoError(t, err)
	require.Empty(t, damaged)
	require.Empty(t, got, "no file yet")
	require.NoError(t, store.Save(t.Context(), map[coldstart.Key]coldstart.Entry{llama: entry(1), mistral: entry(2)}))
	require.NoError(t, store.Save(t.Context(), map[coldstart.Key]coldstart.Entry{llama: entry(3)}))
	got, damaged, err = store.Load(t.Context())
	require.NoError(t, err)
	require.Empty(t, damaged)
	require.Empty(t, cmp.Diff(map[coldstart.Key]coldstart.Entry{llama: entry(3), mistral: entry(2)}, got))

	files, err := os.ReadDir(filepath.Dir(store.Path))
	require.NoError(t, err)
	require.Len(t, files, 1, "no temporary file is left")
	info, err := files[0].Info()
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
}

func TestDamage(t *testing.T) {
	cases := map[string]struct {
		old, new string
		sound    bool
		reason   string
	}{
		"NoJSON":   {`{"records"`, `records`, false, "the whole file is lost"},
		"Newer":    {`{"v":1,"namespace":"ai","name":"llama"`, `{"v":2,"namespace":"ai","name":"llama"`, true, "one record is"},
		"Foreign":  {`"ai/llama/t1"`, `"ai/gemma/t1"`, true, "under another's name"},
		"NoObject": {`{"v":1,"namespace":"ai","name":"llama"`, `3,"x":{"name":"llama"`, true, "a record that is a number, and one without a version"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			store := newStore(t)
			require.NoError(t, store.Save(t.Context(), map[coldstart.Key]coldstart.Entry{llama: entry(1), mistral: entry(2)}))
			body, err := os.ReadFile(store.Path)
			require.NoError(t, err)
			spoiled := strings.Replace(string(body), tc.old, tc.new, 1)
			require.NotEqual(t, string(body), spoiled)
			require.NoError(t, os.WriteFile(store.Path, []byte(spoiled), 0o600))

			want := map[coldstart.Key]coldstart.Entry{}
			if tc.sound {
				want[mistral] = entry(2)
			}
			got, damaged, err := store.Load(t.Context())
			require.NoError(t, err, tc.reason)
			require.Empty(t, cmp.Diff(want, got), tc.reason)
			require.NotEmpty(t, damaged, tc.reason)
			for _, d := range damaged {
				require.ErrorIs(t, d, coldstart.ErrEntry)
				require.ErrorContains(t, d, store.Path)
			}
			want[llama] = entry(9)
			require.NoError(t, store.Save(t.Context(), map[coldstart.Key]coldstart.Entry{llama: entry(9)}))
			got, damaged, err = store.Load(t.Context())
			require.NoError(t, err)
			require.Empty(t, damaged, "cleared by the next write")
			require.Empty(t, cmp.Diff(want, got))
		})
	}
}

func TestBounded(t *testing.T) {
	store := newStore(t)
	state, err := json.Marshal(strings.Repeat("x", filestore.MaxBytes*2/3))
	require.NoError(t, err)
	old, recent := entry(1), entry(2)
	old.State, recent.State = state, state
	recent.Updated = old.Updated.Add(time.Hour)
	require.NoError(t, store.Save(t.Context(), map[coldstart.Key]coldstart.Entry{llama: old, mistral: recent}))
	got, _, err := store.Load(t.Context())
	require.NoError(t, err)
	require.Len(t, got, 1)
	require.Contains(t, got, mistral, "the latest stays")
}

// What cannot be read must not be taken for nothing and replaced.
func TestUnreadableFile(t *testing.T) {
	store := filestore.Store{Path: t.TempDir()} // a folder
	_, _, err := store.Load(t.Context())
	require.ErrorContains(t, err, store.Path)
	require.Error(t, store.Save(t.Context(), map[coldstart.Key]coldstart.Entry{llama: entry(1)}))

	store = filestore.Store{Path: filepath.Join(t.TempDir(), "none", "state.json")}
	require.Error(t, store.Save(t.Context(), map[coldstart.Key]coldstart.Entry{llama: entry(1)}), "the folder must exist")
}
