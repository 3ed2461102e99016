package scaler

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/internal/trigger"
	"github.com/pilotlight-dev/pilotlight/scaler/engine"
)

func TestDoubt(t *testing.T) {
	cases := map[string]struct {
		target   float64
		loads    []float64
		believed []bool
	}{
		"Steady":     {8, []float64{5, 900, 3}, []bool{true, true, true}},
		"Glitch":     {8, []float64{5, 50_000, 6}, []bool{true, false, true}},
		"Flood":      {8, []float64{5, 5000, 4800, 9000}, []bool{true, false, true, false}},
		"Confirmed":  {8, []float64{0, 5000, 5000, 5000}, []bool{true, false, true, true}},
		"LargePods":  {100, []float64{5, 4000}, []bool{true, true}},
		"TwoGlitch":  {8, []float64{5, 2000, 50_000, 50_000}, []bool{true, false, false, true}},
		"FirstFlood": {8, []float64{5000, 5000}, []bool{false, true}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			target := newTarget(key{Ref: llama}, trigger.Trigger{DemandFrom: trigger.DemandNone, TargetRequests: tc.target}, Options{}.withDefaults(), nil)
			for i, load := range tc.loads {
				require.Equal(t, tc.believed[i], target.doubt("a", load) == nil, "look %d", i)
			}
		})
	}
}

// A gauge that is wrong for one look orders nothing.
func TestGlitchOrdersNothing(t *testing.T) {
	r := newRig(t, Options{Interval: 5 * time.Second}) // the wrong look is seen before the next
	r.hold(0)
	r.pods(1, 3)
	require.Eventually(t, func() bool { v, err := r.value(t, object(nil)); return err == nil && v == 4 }, soon, time.Millisecond)
	r.set(func(c *cluster) { c.readings["10.0.0.1"] = engine.Reading{Running: 1e5} })
	require.Eventually(t, func() bool { return len(r.scaler.Targets()[0].Unread) == 1 }, soon, time.Millisecond)
	require.Contains(t, r.scaler.Targets()[0].Unread["10.0.0.1"], "believed if the next agrees")
	require.Equal(t, 1, *r.scaler.Targets()[0].Replicas)
	require.Eventually(t, func() bool { v, err := r.value(t, object(nil)); return err == nil && v == 16 }, soon, time.Millisecond, "but one that stays is believed")
}
