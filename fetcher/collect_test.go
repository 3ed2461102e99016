package fetcher_test

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/fetcher"
)

func TestRetentionDecides(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	day := 24 * time.Hour
	type list = []fetcher.Retained
	tests := map[string]struct {
		keep     fetcher.Retention
		versions list
		gone     []string
		reason   string
	}{
		"WorkedExample": {fetcher.Retention{Keep: 2, KeepFor: time.Hour}, list{
			{Short: "a", Rank: 3, Until: ago(day)},
			{Short: "b", Rank: 2, Until: ago(10 * time.Minute)},
			{Short: "c", Rank: 1, Until: ago(5 * time.Minute)},
			{Short: "d", Rank: 0, Use: "it is current"},
		}, []string{"a"}, "as the comment of Decide promises"},
		"UsedHoweverOld": {fetcher.Retention{Keep: 1, KeepFor: time.Hour}, list{
			{Short: "a", Rank: 9, Until: ago(365 * day), Use: "the reader x uses it"}, {Short: "b", Rank: 0},
		}, nil, "a reader outlives every rule"},
		"ClockSetBack": {fetcher.Retention{Keep: 1, KeepFor: time.Hour}, list{
			{Short: "a", Rank: 1, Until: ago(-time.Hour)}, {Short: "b", Rank: 0},
		}, nil, "replaced in the future: it cannot be old"},
		"UnknownAge": {fetcher.Retention{Keep: 1, KeepFor: time.Hour}, list{
			{Short: "a", Rank: 1}, {Short: "b", Rank: 0},
		}, nil, "unknown is not old"},
		"JustAnHour": {fetcher.Retention{Keep: 1, KeepFor: time.Hour}, list{
			{Short: "a", Rank: 1, Until: ago(time.Hour)}, {Short: "b", Rank: 0},
		}, []string{"a"}, "the hour has passed"},
		"KeepThree": {fetcher.Retention{Keep: 3, KeepFor: time.Hour}, list{
			{Short: "a", Rank: 2, Until: ago(day)}, {Short: "b", Rank: 1, Until: ago(day)}, {Short: "c", Rank: 0},
		}, nil, "three may stay"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var gone []string
			for _, v := range tc.keep.Decide(tc.versions, now) {
				require.NotEmpty(t, v.Reason)
				if !v.Keep {
					gone = append(gone, v.Short)
				}
			}
			require.Empty(t, cmp.Diff(tc.gone, gone), tc.reason)
		})
	}
}

// lifetimes is a root with the versions 1 to 4 published in this order.
func lifetimes(t *testing.T) (w *world, store *fetcher.Store, shorts map[string]string) {
	w = newWorld(t)
	shorts = map[string]string{}
	for i := range 4 {
		version := fmt.Sprint(i + 1)
		w.put("llama/"+version, model("v"+version))
		shorts[version] = w.mustInit().Manifest.Short()
	}
	return w, openStore(t, w.root), shorts
}

// collect runs a collector that believes that so much time has passed.
func collect(t *testing.T, store *fetcher.Store, later time.Duration, link *fetcher.Frozen, protect ...string) []string {
	t.Helper()
	c, err := fetcher.NewCollector(store, fetcher.Retention{}, link)
	require.NoError(t, err)
	c.SetNow(func() time.Time { return time.Now().Add(later) })
	removed, err := c.Collect(t.Context(), protect...)
	require.NoError(t, err)
	return removed
}

func TestOldVersionsGoAfterAnHour(t *testing.T) {
	t.Parallel()
	w, store, shorts := lifetimes(t)
	require.Empty(t, collect(t, store, 59*time.Minute, nil), "the hour has not passed")
	require.Empty(t, collect(t, store, -time.Hour, nil), "a clock that was set back ages nothing")
	removed := collect(t, store, 61*time.Minute, nil)
	require.ElementsMatch(t, []string{shorts["1"], shorts["2"]}, removed)
	require.ElementsMatch(t, []string{shorts["3"], shorts["4"]}, entries(t, filepath.Join(w.root, "versions")))
	require.Empty(t, entries(t, filepath.Join(w.root, ".staging")))
	w.requireCurrent(model("v4"))
}

func TestARollbackCountsAsThePublication(t *testing.T) {
	t.Parallel()
	w, store, shorts := lifetimes(t)
	w.point("llama/1")
	w.mustInit()
	removed := collect(t, store, 61*time.Minute, nil)
	require.ElementsMatch(t, []string{shorts["2"], shorts["3"]}, removed, "1 is current and 4 was before it")
}

func TestWhatIsUsedStays(t *testing.T) {
	t.Parallel()
	w, store, shorts := lifetimes(t)
	link, err := fetcher.OpenFrozen(store, filepath.Join(t.TempDir(), "model"))
	require.NoError(t, err)
	defer func() { require.NoError(t, link.Close()) }()
	_, err = link.Set(t.Context(), shorts["1"])
	require.NoError(t, err)
	require.Equal(t, []string{shorts["2"]}, collect(t, store, 61*time.Minute, link), "1 is what the pod's link names")

	require.NoError(t, store.Hold("pod-a", shorts["1"], "", time.Hour))
	require.Empty(t, collect(t, store, 61*time.Minute, nil), "1 is held by a reader")
	require.NoError(t, store.Release("pod-a"))
	require.Empty(t, collect(t, store, 61*time.Minute, nil, shorts["1"]), "1 was just published")
	require.Equal(t, []string{shorts["1"]}, collect(t, store, 61*time.Minute, nil))
	w.requireCurrent(model("v4"))
}

func TestAReadersFileThatCannotBeUnderstoodHoldsEverything(t *testing.T) {
	t.Parallel()
	w, store, _ := lifetimes(t)
	require.NoError(t, os.MkdirAll(filepath.Join(w.root, ".readers"), 0o750))
	half := filepath.Join(w.root, ".readers", "pod-b")
	require.NoError(t, os.WriteFile(half, []byte(`{"v":1,"ver`), 0o600))
	require.Empty(t, collect(t, store, 61*time.Minute, nil))
	require.NoError(t, os.Rename(half, filepath.Join(w.root, ".readers", ".nfs000000000123")))
	require.Len(t, collect(t, store, 61*time.Minute, nil), 2)
}

func TestSilentReadersExpireOnTheCollectorsClock(t *testing.T) {
	t.Parallel()
	_, store, shorts := lifetimes(t)
	synctest.Test(t, func(t *testing.T) { // whose clock starts in the year 2000: a wall clock set back by decades
		c, err := fetcher.NewCollector(store, fetcher.Retention{}, nil)
		require.NoError(t, err)
		c.SetNow(func() time.Time { return time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC) })
		run := func() []string {
			removed, err := c.Collect(t.Context())
			require.NoError(t, err)
			return removed
		}
		beat := func(reader, version string) {
			require.NoError(t, store.Hold(reader, shorts[version], "", fetcher.HoldWithAgent))
			future(t, store, reader) // its clock is wrong as well
		}
		beat("living", "1")
		beat("dead", "2")
		for range 30 {
			require.Empty(t, run())
			time.Sleep(20 * time.Second)
			beat("living", "1")
		}
		time.Sleep(time.Second)
		require.Equal(t, []string{shorts["2"]}, run(), "ten minutes of silence")
		time.Sleep(time.Minute)
		require.Empty(t, run(), "the living still holds its version")
	})
}

// future gives a reader's file a time that the collector's clock has not reached.
func future(t *testing.T, store *fetcher.Store, reader string) {
	t.Helper()
	claimed(t, store, reader, time.Date(2040, 1, 1, 0, 0, 0, 0, time.UTC))
}

// claimed gives a reader's file the time that a wrong clock would have.
func claimed(t *testing.T, store *fetcher.Store, reader string, at time.Time) {
	t.Helper()
	name := filepath.Join(filepath.Dir(store.CurrentPath()), ".readers", reader)
	data, err := os.ReadFile(name) //nolint:gosec // a file of this test
	require.NoError(t, err)
	var rec map[string]any
	require.NoError(t, json.Unmarshal(data, &rec))
	rec["at"] = at
	data, err = json.Marshal(rec)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(name, data, 0o600)) //nolint:gosec // as above
}

func TestAReaderWithoutAnAgentHoldsForTwoDays(t *testing.T) {
	t.Parallel()
	_, store, shorts := lifetimes(t)
	require.NoError(t, store.Hold("init-only", shorts["1"], "", fetcher.HoldWithoutAgent))
	require.Equal(t, []string{shorts["2"]}, collect(t, store, 47*time.Hour, nil))
	require.Equal(t, []string{shorts["1"]}, collect(t, store, 49*time.Hour, nil))
}

func TestAReaderWithOpenFilesReadsOnDuringCollection(t *testing.T) {
	t.Parallel()
	w, store, shorts := lifetimes(t)
	f, err := os.Open(filepath.Join(w.root, "versions", shorts["1"], "model-00001-of-00002.safetensors"))
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	half := make([]byte, 1000)
	_, err = io.ReadFull(f, half)
	require.NoError(t, err)
	require.Contains(t, collect(t, store, 61*time.Minute, nil), shorts["1"])
	rest, err := io.ReadAll(f)
	require.NoError(t, err)
	require.Equal(t, model("v1")["model-00001-of-00002.safetensors"], append(half, rest...))
}

func TestACollectorGivesWayToAPublisher(t *testing.T) {
	t.Parallel()
	w, store, shorts := lifetimes(t)
	end, err := fetcher.HoldClaim(w.root, shorts["1"]) // a run that is about to publish 1
	require.NoError(t, err)
	require.Equal(t, []string{shorts["2"]}, collect(t, store, 61*time.Minute, nil))
	require.NoError(t, end())
}

func TestAPublisherWaitsForACollectorAndFetchesAgain(t *testing.T) {
	t.Parallel()
	w, store, shorts := lifetimes(t)
	end, err := fetcher.MarkForCollection(store, shorts["1"])
	require.NoError(t, err)
	w.point("llama/1")
	timer := time.AfterFunc(150*time.Millisecond, func() {
		_ = os.RemoveAll(filepath.Join(w.root, "versions", shorts["1"])) // checked by what follows
		_ = end()
	})
	defer timer.Stop()
	res := w.mustInit()
	require.False(t, res.Reused, "what it had found was taken away meanwhile")
	w.requireCurrent(model("v1"))
}

func TestAMarkOfADeadCollectorIsInNobodysWay(t *testing.T) {
	t.Parallel()
	w, _, shorts := lifetimes(t)
	staging := filepath.Join(w.root, ".staging")
	require.NoError(t, os.WriteFile(filepath.Join(staging, shorts["1"]+".aaaaaaaaaaaa.collect"), nil, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(staging, shorts["1"]+".aaaaaaaaaaaa.lock"), nil, 0o600))
	w.point("llama/1")
	require.True(t, w.mustInit().Reused)
	require.Empty(t, entries(t, staging))
}

func TestSpaceIsMadeOnlyFromWhatIsNotNeeded(t *testing.T) {
	t.Parallel()
	w, _, shorts := lifetimes(t)
	w.put("llama/5", model("v5"))
	opts := fetcher.WithFreeBytes(w.options(), 1000)
	_, err := fetcher.Init(t.Context(), opts)
	require.ErrorIs(t, err, fetcher.ErrNoSpace, "all others were replaced a moment ago")
	opts.Retention.KeepFor = time.Nanosecond
	_, err = fetcher.Init(t.Context(), opts)
	require.ErrorIs(t, err, fetcher.ErrNoSpace, "even that is not enough here")
	require.Equal(t, []string{shorts["4"]}, entries(t, filepath.Join(w.root, "versions")), "but the current one stays")
	w.requireCurrent(model("v4"))
}

func TestRetentionThatCannotBe(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	opts := w.options()
	opts.Retention.Keep = -1
	_, err := fetcher.Init(t.Context(), opts)
	require.ErrorIs(t, err, fetcher.ErrUsage)
}

func TestAReaderThatComesAtTheLastMomentIsSeen(t *testing.T) {
	t.Parallel()
	_, store, shorts := lifetimes(t)
	c, err := fetcher.NewCollector(store, fetcher.Retention{}, nil)
	require.NoError(t, err)
	asked := 0
	c.SetNow(func() time.Time {
		if asked++; asked == 2 { // readers have been counted, and now it decides
			require.NoError(t, store.Hold("late", shorts["1"], "", time.Hour))
		}
		return time.Now().Add(61 * time.Minute)
	})
	removed, err := c.Collect(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{shorts["2"]}, removed)
}

func TestFilesThatNFSKeepsForReadersAreNoError(t *testing.T) {
	t.Parallel()
	for _, errno := range []syscall.Errno{syscall.EBUSY, syscall.ENOTEMPTY} {
		w, store, shorts := lifetimes(t)
		store.SetStep(func(op, name string) error {
			if op == "removeall" && strings.HasSuffix(name, ".old") {
				return &os.PathError{Op: "unlinkat", Path: name, Err: errno} // a .nfs file inside
			}
			return nil
		})
		require.ElementsMatch(t, []string{shorts["1"], shorts["2"]}, collect(t, store, 61*time.Minute, nil))
		require.Len(t, entries(t, filepath.Join(w.root, "versions")), 2)
		require.NotEmpty(t, entries(t, filepath.Join(w.root, ".staging")))
		store.SetStep(nil) // the reader has closed them
		swept, err := store.Sweep()
		require.NoError(t, err)
		require.Equal(t, 2, swept)
		require.Empty(t, entries(t, filepath.Join(w.root, ".staging")))
	}
}
