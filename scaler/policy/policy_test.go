package policy

import (
	"encoding/json"
	"math"
	"os"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestValidateReportsEveryFault(t *testing.T) {
	err := Config{TargetRequests: math.NaN(), MinReplicas: -1, KeepAlive: -5, ScaleDownWindow: -5, StartDeadline: -5, GaugeLag: -5}.Validate()
	require.ErrorIs(t, err, ErrConfig)
	for _, field := range []string{"TargetRequests", "MinReplicas", "MaxReplicas", "KeepAlive", "ScaleDownWindow", "StartDeadline", "StaleAfter", "GaugeLag"} {
		require.ErrorContains(t, err, field)
	}
}

func TestCeiling(t *testing.T) {
	cases := map[string]struct {
		load, target float64
		want         int
		reason       string
	}{
		"Zero":     {0, 4, 0, "nothing to do"},
		"Exact":    {8, 4, 2, "full replicas"},
		"Over":     {9, 4, 3, "a remainder needs a replica"},
		"Rounding": {0.1 + 0.2, 0.1, 3, "0.1 + 0.2 is a little more than 0.3 in binary"},
		"Huge":     {1e18, 1, math.MaxInt32, "bounded, not overflowed"},
		"Tiny":     {1e-3, 4, 1, "any load needs a replica"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) { require.Equal(t, tc.want, ceiling(tc.load, tc.target), tc.reason) })
	}
}

func TestWindowForgets(t *testing.T) {
	var w Window
	w = w.with(1, 5).with(2, 3)
	require.Equal(t, 5, w.peak(2))
	require.Equal(t, 5, w.peak(16), "bucket 1 is the oldest of sixteen")
	require.Equal(t, 3, w.peak(17), "bucket 1 has left")
	require.Equal(t, 0, w.peak(18))
	w = w.with(17, 1)
	require.Equal(t, 3, w.peak(17), "bucket 17 took the slot of bucket 1, not of 2")
}

func TestTerminatingPodsDoNotCount(t *testing.T) {
	c := base()
	c.KeepAlive, c.ScaleDownWindow = 0, 0
	pods := []Pod{{Created: epoch, ReadyAt: epoch, Terminating: true, Load: Load{Known: true, Running: 7}}}
	d, _ := Decide(c, State{Since: epoch.Add(-time.Hour)}, Sample{Pods: pods, Demand: Demand{Known: true}}, epoch)
	require.Equal(t, 0, d.Replicas)
	require.Equal(t, 0, d.Terms.Ready)
}

// A State survives JSON, so that a restart restores every clock.
func TestStateSurvivesJSON(t *testing.T) {
	_, s := Decide(base(), State{}, Sample{Demand: Demand{Known: true, Held: 3}}, epoch)
	body, err := json.Marshal(s)
	require.NoError(t, err)
	var back State
	require.NoError(t, json.Unmarshal(body, &back))
	s.Rates.Arrived, s.Rates.ArrivedIn = back.Rates.Arrived, back.Rates.ArrivedIn // not kept
	require.Equal(t, s, back)
	require.Less(t, len(body), 3000, "sixteen ConfigMaps hold thousands of targets")
}

// Spans read as people write them.
func TestSpan(t *testing.T) {
	body, err := json.Marshal(Terms{HoldLeft: Span(187 * time.Second)})
	require.NoError(t, err)
	require.Contains(t, string(body), `"holdLeft":"3m7s"`)
	var back Terms
	require.NoError(t, json.Unmarshal(body, &back))
	require.Equal(t, Span(187*time.Second), back.HoldLeft)
	require.Error(t, back.HoldLeft.UnmarshalText([]byte("soon")))
}

// A restored state keeps its holds and its S, and takes what runs for what it
// wanted.
func TestRestored(t *testing.T) {
	c := base()
	c.KeepAlive, c.ScaleDownWindow = Auto, Auto
	var s State
	s.Since, s.At, s.LastReplicas, s.Failures = epoch, epoch, 3, 1
	s.Rates.Residence = 20
	s.Levels[0].Release = epoch.Add(time.Hour).UnixNano()
	s.Levels[1] = Level{Inside: 5, Began: epoch.UnixNano(), Volume: 3, Release: epoch.Add(30 * 24 * time.Hour).UnixNano()}
	later := epoch.Add(10 * time.Minute)
	r := s.Restored(later)
	require.Equal(t, s.Levels[0], r.Levels[0])
	require.Equal(t, Level{}, r.Levels[1], "a hold of a month cannot be")
	in := Sample{Replicas: 0, Demand: Demand{Known: true}, ColdStart: ColdStart{time.Minute, 2 * time.Minute}}
	d, _ := Decide(c, r, in, later)
	require.Zero(t, d.Replicas, "nothing runs and nobody asks: what was wanted before the restart wakes nothing")
	in.Replicas, in.Pods = 1, []Pod{{Created: epoch, ReadyAt: epoch, Load: Load{Known: true}}}
	d, _ = Decide(c, r, in, later)
	require.Equal(t, 1, d.Replicas)
	require.Equal(t, ReasonKeepAlive, d.Reason, "the hold goes on")
	require.InDelta(t, 20, d.Terms.Residence, 0)
	for _, spoil := range []func(*State){
		func(s *State) { s.Since = later.Add(time.Hour) },
		func(s *State) { s.Failures = -1 },
		func(s *State) { s.RetryAt = later.Add(time.Hour) },
		func(s *State) { s.Steady = -1 },
		func(s *State) { s.Rates.Residence = math.NaN() },
	} {
		bad := s
		spoil(&bad)
		require.Equal(t, State{}, bad.Restored(later))
	}
}

// Whatever comes in, the answer is finite, within bounds, the same twice, and
// nothing shrinks while something is unknown.
func FuzzDecide(f *testing.F) {
	f.Add(4.0, 0, 4, 2, 1, 1, 3.0, 2.0, 1.0, 2.0, true, int64(30))
	f.Add(0.1, 2, 9, 0, 3, 0, 0.0, 0.0, 0.0, 0.0, false, int64(3000))
	f.Fuzz(func(t *testing.T, target float64, lo, hi, ready, starting, unread int, running, waiting, held, inflight float64, known bool, seconds int64) {
		c := base()
		c.TargetRequests, c.MinReplicas, c.MaxReplicas, c.KeepAlive, c.ScaleDownWindow = target, lo, hi, Auto, Auto
		if c.Validate() != nil || hi > 1000 || ready < 0 || ready > 50 || starting < 0 || starting > 50 || seconds < 0 || seconds > 1e6 {
			t.Skip("not a valid input")
		}
		for _, x := range []float64{running, waiting, held, inflight} {
			if !(x >= 0) || math.IsInf(x, 0) {
				t.Skip("not a valid reading")
			}
		}
		now := epoch.Add(time.Duration(seconds) * time.Second)
		in := Sample{Replicas: ready + starting, Demand: Demand{known, held, inflight}, ColdStart: ColdStart{time.Minute, 2 * time.Minute}}
		for i := range ready {
			in.Pods = append(in.Pods, Pod{Created: epoch, ReadyAt: epoch, Load: Load{Known: i >= unread, Running: running, Waiting: waiting}})
		}
		for range starting {
			in.Pods = append(in.Pods, Pod{Created: epoch})
		}
		pods := slices.Clone(in.Pods)
		_, s := Decide(c, State{}, in, epoch)
		d, next := Decide(c, s, in, now)
		again, nextAgain := Decide(c, s, in, now)
		require.Equal(t, d, again)
		require.Equal(t, next, nextAgain)
		require.Equal(t, pods, in.Pods, "inputs are untouched")
		require.True(t, d.Known, "there is an answer whatever cannot be read")
		require.False(t, math.IsNaN(d.Value) || math.IsInf(d.Value, 0) || d.Value < 0)
		require.True(t, d.Replicas >= lo && d.Replicas <= hi, "%d not within %d..%d", d.Replicas, lo, hi)
		require.Equal(t, d.Replicas > 0, d.Active)
		if known && unread <= 0 && held+running+waiting > 0 && ready > 0 {
			require.Positive(t, d.Replicas, "load is never answered with zero")
		}
		if ready > 0 && unread >= ready && now.Sub(epoch) > c.StaleAfter {
			require.Equal(t, frozen(c, in), d.Replicas, "frozen")
			require.Equal(t, ReasonUnknown, d.Reason)
			require.Equal(t, d.Replicas, next.LastReplicas, "the law goes on from there")
			in.Replicas = -int(seconds % 2)
			d, _ = Decide(c, s, in, now)
			require.False(t, d.Known || d.Active || d.Value != 0, "nothing to keep is no answer")
			return
		}
		if ready > 0 && (!known || unread > 0) {
			require.GreaterOrEqual(t, d.Replicas, min(s.LastReplicas, hi), "nothing shrinks on the unknown")
		}
	})
}

func BenchmarkDecide(b *testing.B) {
	c := base()
	c.MaxReplicas, c.KeepAlive, c.ScaleDownWindow = 8, Auto, Auto
	in := Sample{Replicas: 8, Demand: Demand{Known: true}, ColdStart: ColdStart{time.Minute, 2 * time.Minute}}
	for range 8 {
		in.Pods = append(in.Pods, Pod{Created: epoch, ReadyAt: epoch, Load: Load{Known: true, Running: 3}})
	}
	var s State
	b.ReportAllocs()
	now := epoch
	for b.Loop() {
		now = now.Add(time.Second)
		_, s = Decide(c, s, in, now)
	}
}

// Every rule that can settle a decision is known to those who show it.
func TestReasonsHaveWords(t *testing.T) {
	source, err := os.ReadFile("types.go")
	require.NoError(t, err)
	var declared []Reason
	for _, m := range regexp.MustCompile(`(?m)^\tReason\w+ +Reason = "([a-z-]+)"`).FindAllSubmatch(source, -1) {
		declared = append(declared, Reason(m[1]))
	}
	require.NotEmpty(t, declared)
	require.Equal(t, declared, Reasons())
	texts := map[string]bool{}
	for _, r := range Reasons() {
		texts[r.Text()] = true
	}
	require.Len(t, texts, len(declared), "no two say the same")
	require.Empty(t, Reason("other").Text())
}

// What keeps the law from being asked keeps the replicas as they are, within the
// bounds, and pretends nothing where there are none.
func TestFreeze(t *testing.T) {
	at := epoch.Add(-time.Hour)
	in := Sample{Replicas: 2, Pods: []Pod{{Created: at, ReadyAt: at}, {Created: at}, {Created: at, Terminating: true}}}
	d := Freeze(base(), in, epoch)
	require.True(t, d.Known && d.Active)
	require.Equal(t, 2, d.Replicas)
	require.InDelta(t, 8, d.Value, 0)
	require.Equal(t, ReasonUnknown, d.Reason)
	require.Equal(t, 1, d.Terms.Ready)
	require.Equal(t, 1, d.Terms.Starting)
	c := base()
	c.MaxReplicas = 1
	require.Equal(t, 1, Freeze(c, in, epoch).Replicas)
	require.False(t, Freeze(base(), Sample{}, epoch).Known, "none: nothing to keep")
	require.False(t, Freeze(base(), Sample{Replicas: -1}, epoch).Known)
}
