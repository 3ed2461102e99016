package replay

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/test/e2e/timeline"
)

// moves are steps from zero: a time and where it goes, by turns.
func moves(steps ...float64) []timeline.Move {
	var out []timeline.Move
	from := int32(0)
	for i := 0; i+1 < len(steps); i += 2 {
		to := int32(steps[i+1])
		out = append(out, timeline.Move{Seconds: steps[i], From: from, To: to})
		from = to
	}
	return out
}

func TestCompare(t *testing.T) {
	cases := map[string]struct {
		reason          string
		seen, simulated []timeline.Move
		says            string
	}{
		"Same":      {"the largest of three differences", moves(1, 1, 6, 3, 30, 0), moves(1.2, 1, 7.5, 3, 29, 0), "same 3 steps, largest difference 1.5 s of 5.0 s"},
		"One":       {"a single step", moves(1, 1), moves(1, 1), "same 1 step, largest difference 0.0 s of 5.0 s"},
		"None":      {"nothing happened in either", nil, nil, "same: no step"},
		"OtherStep": {"two instead of three", moves(1, 1, 6, 3, 30, 0), moves(1, 1, 6, 2, 30, 0), "other steps: 0 1 3 0, the simulator 0 1 2 0"},
		"OneMore":   {"a step that was never there", moves(1, 1, 30, 0), moves(1, 1, 6, 2, 20, 1, 30, 0), "other steps: 0 1 0, the simulator 0 1 2 1 0"},
		"OneLess":   {"it never wakes", moves(1, 1), nil, "other steps: 0 1, the simulator 0"},
		"InTwo": {
			"at 26 s the simulator has 2, where the other passes 5 s later",
			moves(1, 1, 6, 3, 31, 1), moves(1.5, 1, 6, 3, 26, 2, 32, 1), "other steps: 0 1 3 1, the simulator 0 1 3 2 1, difference 5.0 s of 5.0 s",
		},
		"AfterTheEnd": {"who watched no more cannot tell", moves(1, 1), moves(1, 1, 41, 0), "same 1 step, largest difference 0.0 s of 5.0 s"},
		"LateAndOther": {
			"nor is a step that came too late to be seen missing",
			moves(1, 1, 6, 2, 39, 0), moves(1, 1, 6, 2, 36, 1, 41, 0), "other steps: 0 1 2 0, the simulator 0 1 2 1 0, difference 3.0 s of 5.0 s",
		},
		"LateButThere": {
			"the last step that was seen has its counterpart after the end",
			moves(1, 1, 39, 0), moves(1, 1, 42, 0), "same 2 steps, largest difference 3.0 s of 5.0 s",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := Compare(0, tc.seen, tc.simulated, 40)
			r.Of = 5
			require.Equal(t, tc.says, says(r, 0, tc.seen), tc.reason)
		})
	}
}

// object is a ScaledObject as the recorder keeps it.
func object(triggers string) json.RawMessage {
	return json.RawMessage(`{"kind": "ScaledObject", "metadata": {"name": "llama"}, "spec": {
		"scaleTargetRef": {"name": "llama"}, "minReplicaCount": 0, "maxReplicaCount": 4, "pollingInterval": 2, "cooldownPeriod": 5,
		"triggers": [` + triggers + `]}}`)
}

const one = `{"type": "external-push", "metricType": "AverageValue", "metadata": {"targetRequests": "4", "modelName": "llama", "coldStart": "3s", "keepAlive": "5s"}}`

func TestWhatCannotBeReplayed(t *testing.T) {
	_, err := Run(t.Context(), &timeline.Timeline{Name: "x"})
	require.ErrorIs(t, err, ErrNoTrace)
	_, err = Run(t.Context(), &timeline.Timeline{Name: "x", Trace: &timeline.Trace{}})
	require.ErrorIs(t, err, ErrNoTrace)
	_, err = Run(t.Context(), &timeline.Timeline{Name: "x", Trace: &timeline.Trace{HPASync: 5, Interval: 0.5, ScaledObject: object(one + "," + one)}})
	require.ErrorContains(t, err, "one trigger, the ScaledObject 2")
	_, err = Run(t.Context(), &timeline.Timeline{Name: "x", Trace: &timeline.Trace{ScaledObject: json.RawMessage(`{"kind": "ScaledObject"}`)}})
	require.ErrorContains(t, err, "replaying x: ")
}

// A loop is the line through the looks that were noticed, whatever some of them
// say.
func TestLoop(t *testing.T) {
	cases := map[string]struct {
		reason        string
		looks         []float64
		first, period float64
	}{
		"Regular":  {"every 2 s from 0.6 s on", []float64{4.6, 6.6, 10.6}, 0.1, 2},
		"Drifting": {"its own work takes 20 ms", []float64{2.52, 4.54, 6.56, 12.62}, 0, 2.02},
		"Lonely":   {"one was out of turn", []float64{4.6, 6.6, 7.9, 8.6, 10.6, 12.6}, 0.1, 2},
		"Early":    {"before the beginning", []float64{0.4, 2.4}, 1.9, 2},
		"One":      {"no line goes through one", []float64{9.5}, 1, 2},
		"None":     {"nothing was noticed", nil, 0, 2},
		"TooOften": {"no loop is faster than it should be", []float64{1, 2.9, 4.8}, 0.5, 2},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			first, period := input{trace: &timeline.Trace{Began: 0.5}}.loop(tc.looks, 2*time.Second)
			require.InDelta(t, tc.period, period.Seconds(), 1e-6, tc.reason)
			// A first look one period later is the same loop.
			require.InDelta(t, 0, math.Sin(math.Pi*(first.Seconds()-tc.first)/tc.period), 0.16, tc.reason)
		})
	}
}

// Between the looks that were noticed there were others.
func TestMoments(t *testing.T) {
	in := input{trace: &timeline.Trace{Began: 1}}
	at, period := in.moments([]float64{5.1, 7.1, 11.2, 11.6, 13.1, 15.1, 17.1}, 2*time.Second)
	var seconds []float64
	for _, one := range at {
		seconds = append(seconds, one.Seconds())
	}
	require.InDeltaSlice(t, []float64{0.1, 2.1, 4.1, 6.1, 8.15, 10.2, 12.1, 14.1, 16.1}, seconds, 0.01, "one at 9.15 s was not noticed, and that at 11.6 s was out of turn")
	require.InDelta(t, 2, period.Seconds(), 0.1)
	at, period = in.moments(nil, 2*time.Second)
	require.Empty(t, at)
	require.Equal(t, 2*time.Second, period)
}

// A pod that never got Ready would have taken as long as the others, or longer
// than it was given; one that was there before has so much less to go.
func TestStarts(t *testing.T) {
	in := input{trace: &timeline.Trace{Began: 10, Starts: []timeline.Start{
		{At: 8, Took: 3, Lived: 50}, {At: 12, Took: 4, Lived: 9}, {At: 20, Lived: 1}, {At: 20, Lived: 30}, {At: 25, Took: 5, Lived: 9},
	}}}
	var took []float64
	for _, d := range in.starts().Recorded {
		took = append(took, d.Seconds())
	}
	require.InDeltaSlice(t, []float64{1, 4, 4, 30, 5}, took, 0.01)
	in.trace.Starts = []timeline.Start{{At: 12, Lived: 9}}
	require.Contains(t, in.starts().Stuck, 1)
	require.Contains(t, in.starts().Stuck, 9, "nor would any other")
}
