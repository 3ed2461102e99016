package fetcher_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/fetcher"
)

const someShort = "0123456789ab"

func never() (bool, error) { return false, nil }

// plantLease writes the lease of a holder on another node, of which only the
// beat tells whether it lives.
func plantLease(t *testing.T, root string, beat int) {
	t.Helper()
	data, err := json.Marshal(map[string]any{"v": 1, "owner": "0123456789ab.zzzzzzzzzzzz", "beat": beat, "boot": "another kernel", "host": "node-b"})
	require.NoError(t, err)
	name := filepath.Join(root, fetcher.LeaseFile)
	require.NoError(t, os.WriteFile(name+".tmp", data, 0o600))
	require.NoError(t, os.Rename(name+".tmp", name))
}

func TestTheLeaseOfASilentHolderIsTakenOver(t *testing.T) {
	root := t.TempDir()
	store := openStore(t, root)
	synctest.Test(t, func(t *testing.T) {
		plantLease(t, root, 1)
		start := time.Now()
		release, done, err := fetcher.TakeLease(t.Context(), store, someShort, never)
		require.NoError(t, err)
		require.False(t, done)
		require.InDelta(t, fetcher.LeaseTTL.Seconds(), time.Since(start).Seconds(), 2, "after its time to live, by our clock")
		require.NoError(t, release())
		require.NoFileExists(t, filepath.Join(root, fetcher.LeaseFile))
		require.Empty(t, entries(t, filepath.Join(root, ".staging")))
	})
}

func TestTheLeaseOfALivingHolderIsRespected(t *testing.T) {
	root := t.TempDir()
	store := openStore(t, root)
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		plantLease(t, root, 0)
		var nodeB sync.WaitGroup
		defer nodeB.Wait()
		nodeB.Go(func() { // beats every ten seconds, whatever its clock says
			for beat := 1; ctx.Err() == nil; beat++ {
				plantLease(t, root, beat)
				time.Sleep(10 * time.Second)
			}
		})
		_, _, err := fetcher.TakeLease(ctx, store, someShort, never)
		require.ErrorIs(t, err, context.DeadlineExceeded, "bounded by the run")
		require.ErrorContains(t, err, "another process")
	})
}

func TestWaitingEndsWhenTheWorkIsDone(t *testing.T) {
	root := t.TempDir()
	store := openStore(t, root)
	synctest.Test(t, func(t *testing.T) {
		plantLease(t, root, 1)
		start := time.Now()
		release, done, err := fetcher.TakeLease(t.Context(), store, someShort, func() (bool, error) { return time.Since(start) > 5*time.Second, nil })
		require.NoError(t, err)
		require.True(t, done)
		require.Less(t, time.Since(start), 7*time.Second)
		require.NoError(t, release())
		require.FileExists(t, filepath.Join(root, fetcher.LeaseFile), "it was never ours")
	})
}

func TestAHolderBeatsAndNoticesItsLoss(t *testing.T) {
	root := t.TempDir()
	store := openStore(t, root)
	synctest.Test(t, func(t *testing.T) {
		release, _, err := fetcher.TakeLease(t.Context(), store, someShort, never)
		require.NoError(t, err)
		name := filepath.Join(root, fetcher.LeaseFile)
		seen := map[string]bool{}
		for range 10 {
			data, err := os.ReadFile(name) //nolint:gosec // a file of this test
			require.NoError(t, err)
			seen[string(data)] = true
			time.Sleep(fetcher.LeaseTTL / 3)
		}
		require.Len(t, seen, 10, "each look finds another beat")
		time.Sleep(time.Second) // between two beats
		plantLease(t, root, 7)  // taken over
		time.Sleep(fetcher.LeaseTTL)
		require.NoError(t, release())
		data, err := os.ReadFile(name) //nolint:gosec // as above
		require.NoError(t, err)
		require.Contains(t, string(data), "node-b", "what is another's is neither renewed nor removed")
	})
}

func TestAHolderWhoseClaimIsTakenAwayEndsItsRun(t *testing.T) {
	root := t.TempDir()
	store := openStore(t, root)
	synctest.Test(t, func(t *testing.T) {
		ctx, lost := context.WithCancelCause(t.Context())
		release, err := fetcher.HoldLease(t.Context(), store, someShort, lost)
		require.NoError(t, err)
		time.Sleep(fetcher.LeaseTTL)
		require.NoError(t, ctx.Err(), "while all is well")
		staging := filepath.Join(root, ".staging")
		for _, name := range entries(t, staging) { // by a node that sees no lock
			require.NoError(t, os.Remove(filepath.Join(staging, name)))
		}
		time.Sleep(fetcher.LeaseTTL)
		require.ErrorIs(t, context.Cause(ctx), fetcher.ErrConflict)
		require.NoError(t, release())
	})
}

func TestTheLeaseOfADeadProcessOfThisKernelIsTakenAtOnce(t *testing.T) {
	root := t.TempDir()
	store := openStore(t, root)
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		_, _, err := fetcher.TakeLease(ctx, store, someShort, never)
		require.NoError(t, err)
		cancel() // no beat any more
		staging := filepath.Join(root, ".staging")
		for _, name := range entries(t, staging) { // as if its lock were gone with it
			require.NoError(t, os.Remove(filepath.Join(staging, name)))
		}
		start := time.Now()
		release, _, err := fetcher.TakeLease(t.Context(), store, someShort, never)
		require.NoError(t, err)
		require.Less(t, time.Since(start), 2*time.Second)
		require.NoError(t, release())
	})
}

func TestHalfALeaseIsTakenOverToo(t *testing.T) {
	root := t.TempDir()
	store := openStore(t, root)
	require.NoError(t, os.WriteFile(filepath.Join(root, fetcher.LeaseFile), []byte(`{"v":1,"own`), 0o600))
	synctest.Test(t, func(t *testing.T) {
		release, _, err := fetcher.TakeLease(t.Context(), store, someShort, never)
		require.NoError(t, err)
		require.NoError(t, release())
	})
}

func TestWorkThatWasFinishedBeforeTheLeaseWasFreeIsNotDoneAgain(t *testing.T) {
	root := t.TempDir()
	looks := 0
	release, done, err := fetcher.TakeLease(t.Context(), openStore(t, root), someShort, func() (bool, error) {
		looks++
		return looks > 1, nil // done by somebody between our look and the lease
	})
	require.NoError(t, err)
	require.True(t, done)
	require.NoFileExists(t, filepath.Join(root, fetcher.LeaseFile), "and given back at once")
	require.NoError(t, release())
}
