package simulate

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func TestKEDAScale(t *testing.T) {
	k := KEDA{MaxReplicas: 4, CooldownPeriod: 30 * time.Second, InitialCooldown: 60 * time.Second}
	floor := KEDA{MinReplicas: 2, MaxReplicas: 4, CooldownPeriod: 30 * time.Second}
	active, failed := Answer{Active: true}, Answer{Failed: true}
	ago := func(d time.Duration) KEDAState {
		return KEDAState{Created: epoch.Add(-time.Hour), LastActive: epoch.Add(-d)}
	}
	cases := map[string]struct {
		reason   string
		k        KEDA
		s        KEDAState
		replicas int
		a        Answer
		want     int
		renewed  bool
	}{
		"Wakes":             {"an active trigger takes zero to one", k, ago(time.Hour), 0, active, 1, true},
		"WakesToMin":        {"to minReplicaCount where that is more", floor, ago(time.Hour), 0, active, 2, true},
		"Sleeps":            {"nothing active, cooldown over: N to zero in one step", k, ago(31 * time.Second), 3, Answer{}, 0, false},
		"CoolsDown":         {"nothing active, cooldown running", k, ago(29 * time.Second), 3, Answer{}, 3, false},
		"Renews":            {"activity restarts the cooldown", k, ago(29 * time.Second), 3, active, 3, true},
		"ErrorFreezes":      {"an error alone freezes", k, ago(time.Hour), 3, failed, 3, false},
		"ErrorBesideActive": {"active beside an error does not renew", k, ago(29 * time.Second), 3, Answer{true, true}, 3, false},
		"NeverActive":       {"the initial cooldown counts from creation", k, KEDAState{Created: epoch.Add(-59 * time.Second)}, 1, Answer{}, 1, false},
		"NeverActiveOver":   {"and then ends", k, KEDAState{Created: epoch.Add(-61 * time.Second)}, 1, Answer{}, 0, false},
		"MinHolds":          {"minReplicaCount is a floor", floor, ago(time.Hour), 1, Answer{}, 2, false},
		"StaysAsleep":       {"nothing to do at zero", k, ago(time.Hour), 0, Answer{}, 0, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, s := tc.k.Scale(tc.s, tc.replicas, tc.a, epoch)
			require.Equal(t, tc.want, got, tc.reason)
			require.Equal(t, tc.renewed, s.LastActive.Equal(epoch), tc.reason)
		})
	}
}

func TestHPASync(t *testing.T) {
	plain := HPA{MinReplicas: 1, MaxReplicas: 20, Target: 4, Up: DefaultUp(), Down: Rules{Tolerance: 0.1, Policies: DefaultDown().Policies}}
	exact := plain
	exact.Up.Tolerance, exact.Down.Tolerance = 0, 0
	cases := map[string]struct {
		reason string
		h      HPA
		spec   int
		sum    float64
		want   int
	}{
		"Ceil":              {"ceil(9/4)", plain, 2, 9, 3},
		"WithinTolerance":   {"44/(4x10) = 1.1: unchanged", plain, 10, 44, 10},
		"OutsideTolerance":  {"44.04/(4x10) = 1.101: ceil", plain, 10, 44.04, 12},
		"ToleranceDeadlock": {"one step down at ten replicas never happens", plain, 10, 36, 10},
		"NoTolerance":       {"unless the tolerance is zero", exact, 10, 36, 9},
		"JustOutsideDown":   {"0.899 x 40 asks for nine", plain, 10, 35.96, 9},
		"FourPods":          {"from one, four pods in 15 s", plain, 1, 80, 5},
		"Doubles":           {"from eight, 100 % in 15 s", plain, 8, 80, 16},
		"Max":               {"bounded by maxReplicas", plain, 16, 400, 20},
		"ToOne":             {"never to zero: KEDA does that", plain, 3, 0, 1},
		"Off":               {"at zero replicas the HPA is off", plain, 0, 80, 0},
		"Thousandths":       {"0.3 over 0.1 is three", HPA{MinReplicas: 1, MaxReplicas: 9, Target: 0.1, Up: DefaultUp()}, 1, 0.1 + 0.2, 3},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, _ := tc.h.Sync(HPAState{}, tc.spec, tc.spec, tc.sum, true, epoch)
			require.Equal(t, tc.want, got, tc.reason)
		})
	}
	got, _ := plain.Sync(HPAState{}, 3, 3, 0, false, epoch)
	require.Equal(t, 3, got, "an unknown metric moves nothing")
}

func TestHPAOverTime(t *testing.T) {
	h := HPA{MinReplicas: 1, MaxReplicas: 20, Target: 4, Up: DefaultUp(), Down: DefaultDown()}
	h.Down.Stabilization = 30 * time.Second
	var s HPAState
	steps := []struct {
		at   int // seconds
		sum  float64
		want int
	}{
		{0, 80, 5},   // four pods
		{5, 80, 5},   // the period is not over
		{15, 80, 10}, // 100 % of five
		{30, 80, 20},
		{35, 4, 20}, // the largest of the last 30 s still counts
		{61, 4, 1},  // 31 s of lower recommendations
		{62, 12, 3}, // growing again is not held back
		{70, 4, 3},  // 12 was recommended within 30 s
		{93, 4, 1},
	}
	spec := 1
	for _, step := range steps {
		spec, s = h.Sync(s, spec, spec, step.sum, true, epoch.Add(time.Duration(step.at)*time.Second))
		require.Equal(t, step.want, spec, "at %d s", step.at)
	}
}

// A controller's memory stays small however long it runs.
func TestHPAStateIsBounded(t *testing.T) {
	h := HPA{MinReplicas: 1, MaxReplicas: 20, Target: 4, Up: DefaultUp(), Down: DefaultDown()}
	var s HPAState
	for i := range 10_000 {
		_, s = h.Sync(s, 1+i%3, 1, float64(i%40), true, epoch.Add(time.Duration(i)*15*time.Second))
	}
	require.Less(t, len(s.recommended)+len(s.moved), 60)
}
