package simulatecmd

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/internal/exitcode"
	"github.com/pilotlight-dev/pilotlight/internal/scaledobject"
)

func TestTunePrintsAPatch(t *testing.T) {
	so, trace := files(t, "      keepAlive: 30s\n      waitCost: '0.01'\n")
	code, out, errs := run(t, Tune(false), "--scaledobject", so, "--trace", trace)
	require.Equal(t, exitcode.OK, code, errs)
	require.Contains(t, out, "as they are")
	require.Contains(t, out, "Patch for the trigger's metadata in ScaledObject ai/llama")
	require.Contains(t, out, "      keepAlive: ", "waiting is dear and idle replicas leave after 30 s: that is what to change")
	require.Contains(t, out, "frontier: ")
	_, again, _ := run(t, Tune(false), "--scaledobject", so, "--trace", trace)
	require.Equal(t, out, again)
}

// Where idle time is dear and waiting is cheap, letting replicas go is cheapest,
// and with less patience than a start takes it also loses every burst, which
// has no price: the search must not go there.
func TestTuneLosesNoMore(t *testing.T) {
	so, trace := files(t, "      keepAlive: 1h\n      waitCost: '0.000001'\n")
	args := []string{"--scaledobject", so, "--trace", trace}
	_, out, _ := run(t, Tune(false), args...)
	require.Contains(t, out, "      keepAlive: \"30s\"", "idle replicas are dear: let them go, as long as clients wait")

	code, out, errs := run(t, Tune(false), append(args, "--patience", "5s")...)
	require.Equal(t, exitcode.OK, code, errs)
	table := strings.Split(out, "\n")
	header := slices.IndexFunc(table, func(l string) bool { return strings.HasPrefix(l, "settings") })
	require.Equal(t, "lost", strings.Fields(table[header])[1])
	now, best := strings.Fields(strings.TrimPrefix(table[header+1], "as they are")), strings.Fields(strings.TrimPrefix(table[header+2], "best found"))
	require.Equal(t, now[0], best[0], "no more are lost")
	require.NotContains(t, out, "keepAlive: \"30s\"")
	require.Contains(t, out, lostNote)
	require.Equal(t, 1, strings.Count(out, "(best found)"), "the best is on the frontier")
}

func TestOrder(t *testing.T) {
	s := &search{start: trial{lost: 3, cost: 10}}
	one := map[string]string{"a": "1"}
	cases := map[string]struct{ better, worse trial }{
		"CheapButLosing":  {s.start, trial{changes: one, lost: 4, cost: 1}},
		"Cheaper":         {trial{changes: one, lost: 3, cost: 9}, s.start},
		"FewerLostDearer": {s.start, trial{changes: one, lost: 0, cost: 11}},
		"SameCostFewer":   {trial{changes: one, lost: 2, cost: 10}, s.start},
		"NothingGained":   {s.start, trial{changes: one, lost: 3, cost: 10}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			require.Negative(t, s.order(tc.better, tc.worse))
			require.Positive(t, s.order(tc.worse, tc.better))
		})
	}
}

func TestFrontierHoldsWhatNothingBeats(t *testing.T) {
	s := &search{start: trial{lost: 1}, seen: map[string]trial{
		"a": {p95: 1, gpu: 10}, "b": {p95: 2, gpu: 5}, "beaten by b": {p95: 3, gpu: 6}, "d": {p95: 4, gpu: 1}, "like b": {p95: 2, gpu: 5, changes: map[string]string{"x": "y"}},
		"loses more": {gpu: 0.5, lost: 2}, "cheaper than b": {p95: 2.5, gpu: 5.5, cost: -1},
	}}
	require.Equal(t, []trial{{p95: 1, gpu: 10}, {p95: 2, gpu: 5}, {p95: 2.5, gpu: 5.5, cost: -1}, {p95: 4, gpu: 1}}, s.frontier())
	best := slices.MinFunc(slices.Collect(maps.Values(s.seen)), s.order)
	require.Contains(t, s.frontier(), best)
}

func TestVerdict(t *testing.T) {
	w := &world{object: scaledobject.ScaledObject{Namespace: "ai", Name: "m"}}
	start, one := trial{cost: 10}, map[string]string{"a": "1"}
	s := &search{world: w, start: start, seen: map[string]trial{"": start}}
	require.Equal(t, "Nothing tried is cheaper than the settings as they are.", s.verdict(start))
	s.seen["loses"] = trial{changes: one, lost: 1, cost: 1}
	require.Contains(t, s.verdict(start), "without losing more requests")
	require.Contains(t, s.verdict(trial{changes: one, cost: 5}), "50 % cheaper")
	require.Contains(t, s.verdict(trial{changes: one, cost: 9.99}), "less than 1 % cheaper")
	require.Contains(t, s.verdict(trial{changes: one, cost: 10}), "as cheap")
}
