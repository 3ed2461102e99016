package scaler

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/internal/workload"
	"github.com/pilotlight-dev/pilotlight/scaler/engine"
	"github.com/pilotlight-dev/pilotlight/scaler/policy"
)

func TestVictims(t *testing.T) {
	look := func(replicas, wanted, ready, need int, left time.Duration) *outcome {
		o := &outcome{Workload: workload.Workload{Replicas: replicas}}
		o.Known, o.Replicas = true, wanted
		o.Terms.Ready, o.Terms.Need, o.Terms.HoldLeft = ready, need, policy.Span(left)
		return o
	}
	unknown := look(4, 2, 4, 0, 0)
	unknown.Known = false
	cases := map[string]struct {
		o    *outcome
		want int
	}{
		"Steady":       {look(3, 3, 3, 3, 10*time.Second), 0},
		"SurplusOfTwo": {look(4, 2, 4, 2, 0), 2},
		"OneReady":     {look(2, 1, 1, 1, 0), 0}, // the others go first anyway
		"AllButOne":    {look(3, 0, 3, 0, 0), 2},
		"HoldEndsSoon": {look(3, 3, 3, 1, 20*time.Second), 1},
		"HoldGoesOn":   {look(3, 3, 3, 1, time.Minute), 0},
		"Growing":      {look(3, 5, 3, 5, 20*time.Second), 0},
		"Many":         {look(100, 20, 100, 20, 0), mostVictims},
		"Unknown":      {unknown, 0},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) { require.Equal(t, tc.want, victims(tc.o)) })
	}
}

func TestMarks(t *testing.T) {
	pod := func(name string, load float64, cost int) candidate { return candidate{name, load, true, cost} }
	unread := candidate{name: "u"}
	cases := map[string]struct {
		all  []candidate
		n    int
		want map[string]int
	}{
		"LeastBusy":       {[]candidate{pod("a", 5, 0), pod("b", 0, 0), pod("c", 2, 0)}, 1, map[string]int{"b": -1}},
		"MovedOn":         {[]candidate{pod("a", 5, 0), pod("b", 4, -1), pod("c", 0, 0)}, 1, map[string]int{"b": 0, "c": -1}},
		"Settled":         {[]candidate{pod("a", 5, 0), pod("b", 0, -1)}, 1, map[string]int{}},
		"TieStays":        {[]candidate{pod("a", 0, 0), pod("b", 0, -1)}, 1, map[string]int{}},
		"LowestFirst":     {[]candidate{pod("a", 1, 0), pod("b", 0, 0), pod("c", 9, 0)}, 2, map[string]int{"b": -2, "a": -1}},
		"UnreadIsBusy":    {[]candidate{unread, pod("a", 7, 0)}, 1, map[string]int{"a": -1}},
		"NeverTheUnread":  {[]candidate{unread, pod("a", 7, 0)}, 2, map[string]int{"a": -2}},
		"NoLongerVictims": {[]candidate{pod("a", 0, -2), pod("b", 1, -1)}, 0, map[string]int{"a": 0, "b": 0}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) { require.Equal(t, tc.want, marks(tc.all, tc.n)) })
	}
}

// ledger writes costs into the cluster that the scaler reads, late.
type ledger struct {
	mu     sync.Mutex
	writes []string
	err    error
}

func (l *ledger) SetDeletionCost(_ context.Context, namespace, pod string, cost *int) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	value := 0
	if cost != nil {
		value = *cost
	}
	l.writes = append(l.writes, fmt.Sprintf("%s/%s %d", namespace, pod, value))
	return l.err
}

func (l *ledger) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.writes)
}

// last is what was written last of each pod.
func (l *ledger) last() map[string]string {
	out := map[string]string{}
	for _, line := range l.all() {
		pod, value, _ := strings.Cut(line, " ")
		out[pod] = value
	}
	return out
}

func TestLeastBusyPodIsMarkedBeforeAScaleIn(t *testing.T) {
	l := &ledger{}
	r := newRig(t, Options{Costs: l})
	r.hold(0)
	r.pods(3, 9)
	r.set(func(c *cluster) {
		c.readings["10.0.0.2"], c.readings["10.0.0.3"] = engine.Reading{Running: 3}, engine.Reading{Running: 1}
	})
	_, err := r.value(t, object(nil))
	require.NoError(t, err)
	require.Never(t, func() bool { return len(l.all()) > 0 }, 50*time.Millisecond, time.Millisecond, "13 requests at 4 each: nobody has to go")
	r.set(func(c *cluster) {
		c.readings["10.0.0.1"], c.readings["10.0.0.2"], c.readings["10.0.0.3"] = engine.Reading{Running: 2}, engine.Reading{Running: 1}, engine.Reading{}
	})
	// A look may fall between two engines' readings and see other loads first: then
	// another pod is marked, and the marks are moved after costEvery.
	require.Eventually(t, func() bool {
		last := l.last()
		return last["ai/10.0.0.3"] == "-2" && last["ai/10.0.0.2"] == "-1" && slices.Contains([]string{"", "0"}, last["ai/10.0.0.1"])
	}, soon, time.Millisecond, "3 requests need one replica: two go, the idle one first")
	written := len(l.all())
	require.Never(t, func() bool { return len(l.all()) > written }, 50*time.Millisecond, time.Millisecond, "what is marked is not written again")
}

func TestForeignCostsAreLeftAlone(t *testing.T) {
	ten, mine := 10, -1
	at := time.Now()
	w := workload.Workload{Pods: []workload.Pod{
		{Name: "a", Host: "h", ReadyAt: at, Cost: &ten}, {Name: "b", Host: "h", ReadyAt: at, Cost: &mine}, {Name: "c", Host: "h", ReadyAt: at}, {Name: "d"},
	}}
	m := &marker{written: map[string]int{"c": -2, "gone": -1}}
	got := m.candidates(w, &target{loads: map[string]policy.Load{"b": {Known: true, Running: 2}}})
	require.Equal(t, []candidate{{"b", 2, true, -1}, {"c", 0, false, -2}}, got, "a is somebody else's, d is not Ready")
	require.Equal(t, map[string]int{"c": -2}, m.written)
}

func TestMissingRightIsSaidOnce(t *testing.T) {
	var logs bytes.Buffer
	l := &ledger{err: fmt.Errorf("%w: pods", workload.ErrForbidden)}
	w := &costWriter{costs: l, log: slog.New(slog.NewTextHandler(&logs, nil))}
	for range 10 {
		w.write(t.Context(), "ai", map[string]int{"a": -1, "b": 0})
	}
	require.Len(t, l.all(), 1, "and nothing more is tried for a while")
	require.Equal(t, 1, strings.Count(logs.String(), "grant patch on pods"))
	w.deniedAt = time.Now().Add(-restDenied)
	w.write(t.Context(), "ai", map[string]int{"a": -1})
	require.Len(t, l.all(), 2)
	require.Equal(t, 1, strings.Count(logs.String(), "grant patch on pods"))
}
