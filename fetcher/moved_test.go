package fetcher_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/fetcher"
	"github.com/pilotlight-dev/pilotlight/registry"
)

// slowReader is a process that asked the pointer a while ago: its first answer is
// an old one.
type slowReader struct {
	*world
	mu    sync.Mutex
	first string
}

func (s *slowReader) Resolve(ctx context.Context, ref registry.Ref) (registry.Resolution, error) {
	s.mu.Lock()
	first := s.first
	s.first = ""
	s.mu.Unlock()
	if first != "" {
		return leadsTo(first).Resolve(ctx, ref)
	}
	return s.world.Resolve(ctx, ref)
}

// threeVersions has llama/1 to llama/3 on disk, 3 current.
func threeVersions(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	for _, v := range []string{"llama/1", "llama/2", "llama/3"} {
		w.put(v, model(v))
		opts := w.options()
		opts.Retention.Keep = 5
		_, err := fetcher.Init(t.Context(), opts)
		require.NoError(t, err)
	}
	return w
}

// inTheMiddle runs other before the k-th change that the run of opts makes, and
// reports whether there was one.
func inTheMiddle(t *testing.T, opts fetcher.Options, k int, other func()) (ran bool) {
	t.Helper()
	seen := 0
	_, err := fetcher.Init(t.Context(), fetcher.WithStep(opts, func(op, _ string) error {
		if op != "open" {
			if seen++; seen == k {
				ran = true
				other()
			}
		}
		return nil
	}))
	require.NoError(t, err, "operation %d", k)
	return ran
}

// TestTheNewestAnswerOfThePointerWins lets two runs cross at every operation, one
// of which has an old answer of the pointer: whoever publishes last, `current`
// ends on what the pointer names.
func TestTheNewestAnswerOfThePointerWins(t *testing.T) {
	t.Parallel()
	keep := func(opts fetcher.Options) fetcher.Options { opts.Retention.Keep = 5; return opts }
	tests := map[string]func(t *testing.T, w *world, k int) bool{
		"TheOldAnswerComesToAStop": func(t *testing.T, w *world, k int) bool {
			old := keep(w.options())
			old.Resolver = &slowReader{world: w, first: "s3://" + bucket + "/llama/1"}
			w.point("llama/2")
			return inTheMiddle(t, old, k, func() {
				_, err := fetcher.Init(t.Context(), keep(w.options()))
				require.NoError(t, err)
			})
		},
		"TheNewAnswerComesToAStop": func(t *testing.T, w *world, k int) bool {
			old := keep(w.options())
			old.Resolver = &slowReader{world: w, first: "s3://" + bucket + "/llama/1"}
			w.point("llama/2")
			return inTheMiddle(t, keep(w.options()), k, func() {
				_, err := fetcher.Init(t.Context(), old)
				require.NoError(t, err)
			})
		},
	}
	for name, cross := range tests {
		t.Run(name, func(t *testing.T) {
			w := threeVersions(t)
			k := 1
			for ; ; k++ {
				w.point("llama/3")
				_, err := fetcher.Init(t.Context(), keep(w.options()))
				require.NoError(t, err)
				if !cross(t, w, k) {
					break
				}
				w.requireCurrent(model("llama/2"))
			}
			require.Greater(t, k, 8, "the seam must see the operations")
		})
	}
}

// TestAPointerThatMovedAloneIsNotAskedTwice: without another process one answer
// is enough, also for a run that publishes.
func TestAPointerThatMovedAloneIsNotAskedTwice(t *testing.T) {
	t.Parallel()
	w := threeVersions(t)
	opts := w.options()
	resolver := &slowReader{world: w, first: "s3://" + bucket + "/llama/1"}
	opts.Resolver = resolver
	w.fail(registry.ErrUnreachable) // what a second question would get
	var said strings.Builder
	opts.Logger = textLogger(&said)
	res, err := fetcher.Init(t.Context(), opts)
	require.NoError(t, err)
	require.True(t, res.Changed)
	require.NotContains(t, said.String(), "asked again")
	w.requireCurrent(model("llama/1"))
}

func TestAVersionThatIsTakenAwayAgainAndAgainIsAConflict(t *testing.T) {
	t.Parallel()
	w := threeVersions(t)
	w.point("llama/1")
	opts := w.options()
	opts.Link = filepath.Join(t.TempDir(), "pod", "model")
	opts = fetcher.WithStep(opts, func(op, name string) error {
		if op == "rename" && filepath.Dir(name) == ".readers" { // right before the link is set
			dirs, err := filepath.Glob(filepath.Join(w.root, "versions", "*"))
			require.NoError(t, err)
			for _, dir := range dirs {
				require.NoError(t, os.RemoveAll(dir))
			}
		}
		return nil
	})
	_, err := fetcher.Init(t.Context(), opts)
	require.ErrorIs(t, err, fetcher.ErrConflict)
	require.NotErrorIs(t, err, fetcher.ErrIntegrity)
}

func TestForeignEntriesOfTheRootAreRefusedAndUntouched(t *testing.T) {
	t.Parallel()
	elsewhere := t.TempDir()
	link := func(t *testing.T, name string) { t.Helper(); require.NoError(t, os.Symlink(elsewhere, name)) }
	file := func(t *testing.T, name string) {
		t.Helper()
		require.NoError(t, os.WriteFile(name, []byte("mine"), 0o600))
	}
	folder := func(t *testing.T, name string) { t.Helper(); require.NoError(t, os.Mkdir(name, 0o700)) }
	tests := map[string]struct {
		plant func(t *testing.T, name string)
		name  string
	}{
		"VersionsALink": {link, "versions"}, "VersionsAFile": {file, "versions"}, "StagingALink": {link, ".staging"}, "StagingAFile": {file, ".staging"},
		"ReadersALink": {link, ".readers"}, "StateALink": {link, ".state.json"}, "StateAFolder": {folder, ".state.json"}, "LeaseAFolder": {folder, ".lease"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.put("llama/1", model("one"))
			require.NoError(t, os.MkdirAll(w.root, 0o750))
			tc.plant(t, filepath.Join(w.root, tc.name))
			w.requireUntouched(func() {
				_, err := w.init()
				require.ErrorIs(t, err, fetcher.ErrUsage)
				require.ErrorContains(t, err, tc.name)
				require.ErrorContains(t, err, "Pilotlight did not make")
			})
			left, err := os.ReadDir(elsewhere)
			require.NoError(t, err)
			require.Empty(t, left, "nothing was written through the link")
		})
	}
}

// TestClocksThatAreWrongCollectNothingThatIsUsed: an init, which ends at once, can
// only judge by the wall clock when a reader was heard of last.
func TestClocksThatAreWrongCollectNothingThatIsUsed(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		collector time.Duration // how far its clock is off
		reader    time.Time     // what the reader's clock said; zero is the truth
	}{
		"SetBackAnHour":       {-time.Hour, time.Time{}},
		"SetBackYears":        {-20 * 365 * 24 * time.Hour, time.Time{}},
		"ReaderBeforeNTP":     {61 * time.Minute, time.Unix(0, 0)},
		"ReaderInTheFuture":   {61 * time.Minute, time.Now().Add(1000 * time.Hour)},
		"CollectorHoursAhead": {24 * time.Hour, time.Time{}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			_, store, shorts := lifetimes(t)
			require.NoError(t, store.Hold("pod-a", shorts["1"], "", fetcher.HoldWithoutAgent))
			if !tc.reader.IsZero() {
				claimed(t, store, "pod-a", tc.reader)
			}
			require.NotContains(t, collect(t, store, tc.collector, nil), shorts["1"])
		})
	}
}
