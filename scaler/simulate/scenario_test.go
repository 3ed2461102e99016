package simulate

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/scaler/simulate/trace"
)

// What no default stands for is refused, and the fault says which.
func TestScenarioRefusesTheImpossible(t *testing.T) {
	cases := map[string]struct {
		spoil func(*Scenario)
		says  string
	}{
		"NegativeSLO":     {func(s *Scenario) { s.SLO = -time.Second }, "SLO -1s"},
		"StuckZero":       {func(s *Scenario) { s.Starts.Stuck = []int{1, 0} }, "counted from 1"},
		"FailingZero":     {func(s *Scenario) { s.Starts.Failing = []int{0} }, "counted from 1"},
		"FailsBefore":     {func(s *Scenario) { s.Starts.FailsAfter = -time.Second }, "-1s"},
		"EndlessPrefill":  {func(s *Scenario) { s.Engine.Prefill = math.Inf(1) }, "prefill +Inf"},
		"PatienceBelow0":  {func(s *Scenario) { s.Patience = -1 }, "patience"},
		"WarmAboveTheMax": {func(s *Scenario) { s.MaxReplicas, s.Warm = 2, 3 }, "3 warm replicas of at most 2"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := Scenario{Requests: []trace.Request{{}}}
			tc.spoil(&s)
			_, err := Run(t.Context(), s, fixed(1))
			require.ErrorIs(t, err, ErrScenario)
			require.ErrorContains(t, err, tc.says)
		})
	}
}
