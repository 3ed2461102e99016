package fetcher_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/fetcher"
	fake "github.com/pilotlight-dev/pilotlight/internal/fake/s3"
)

// atThirdRange runs do at the third request for a range of the first shard.
func atThirdRange(do func(), also func(*http.Request) fake.Fault) func(*http.Request) fake.Fault {
	var seen atomic.Int64
	return func(r *http.Request) fake.Fault {
		if isRange(r) && strings.HasSuffix(r.URL.Path, shard) && seen.Add(1) == 3 {
			do()
		}
		return also(r)
	}
}

func noFault(*http.Request) fake.Fault { return fake.Fault{} }

// TestAVersionedBucketServesOnWhatWasListed overwrites and deletes a shard in the
// middle of its download: the version that was listed is still to be had.
func TestAVersionedBucketServesOnWhatWasListed(t *testing.T) {
	t.Parallel()
	tests := map[string]func(w *world){
		"Overwritten": func(w *world) { w.store.PutObject(bucket, shard, []byte("other"), fake.PutOptions{}) },
		"Deleted":     func(w *world) { w.store.DeleteObject(bucket, shard) },
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			w := storeOf(t, fake.Options{Versioned: true})
			w.put("llama/1", shards("one"))
			w.store.SetFault(atThirdRange(func() { change(w) }, noFault))
			res, err := fetcher.Init(t.Context(), w.ranged())
			require.NoError(t, err)
			w.requireCurrent(shards("one"))
			require.Empty(t, res.Manifest.Objects[0].VersionID, "the listing names none, and the digest is the listing's")
		})
	}
}

func TestAVersionThatIsRemovedForGoodEndsTheRun(t *testing.T) {
	t.Parallel()
	w := storeOf(t, fake.Options{Versioned: true})
	w.put("llama/1", shards("one"))
	w.store.SetFault(atThirdRange(func() {
		w.store.PutObject(bucket, shard, []byte("other"), fake.PutOptions{})
		w.store.DeleteVersions(bucket, shard)
	}, noFault))
	_, err := fetcher.Init(t.Context(), w.ranged())
	require.ErrorIs(t, err, fetcher.ErrIntegrity)
	require.ErrorContains(t, err, "disappeared")
}

// TestARoleThatMayNotReadVersions has s3:GetObject and not s3:GetObjectVersion.
// It pins by the ETag alone, and an overwritten object ends its run.
func TestARoleThatMayNotReadVersions(t *testing.T) {
	t.Parallel()
	noVersions := func(r *http.Request) fake.Fault {
		if r.URL.Query().Has("versionId") {
			return fake.Fault{Status: http.StatusForbidden}
		}
		return fake.Fault{}
	}
	w := storeOf(t, fake.Options{Versioned: true})
	w.put("llama/1", shards("one"))
	w.store.SetFault(noVersions)
	_, err := fetcher.Init(t.Context(), w.ranged())
	require.NoError(t, err)
	w.requireCurrent(shards("one"))

	w = storeOf(t, fake.Options{Versioned: true})
	w.put("llama/1", shards("one"))
	w.store.SetFault(atThirdRange(func() { w.store.PutObject(bucket, shard, []byte("other"), fake.PutOptions{}) }, noVersions))
	_, err = fetcher.Init(t.Context(), w.ranged())
	require.ErrorIs(t, err, fetcher.ErrIntegrity)
	require.ErrorContains(t, err, "overwritten after it was listed")
}
