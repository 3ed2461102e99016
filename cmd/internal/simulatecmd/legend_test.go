package simulatecmd

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/scaler/simulate"
)

// Only lanes with a strip are named, and only colours that are drawn.
func TestLegendNamesTheStripsThereAre(t *testing.T) {
	lane := func(name string, reasons ...string) *simulate.Result {
		r := &simulate.Result{Controller: name}
		for _, reason := range reasons {
			r.Timeline = append(r.Timeline, simulate.Moment{Reason: reason})
		}
		return r
	}
	plain := []*simulate.Result{lane("knative", "panic", "stable"), lane("running+waiting", "load", "load")}
	require.Len(t, legend(plain), 1, "no reasons to speak of: no strip")
	rows := legend(append(plain, lane("pilotlight", "backlog", "idle", "keep-alive", "hold")))
	require.Len(t, rows, 2)
	var names []string
	for _, m := range rows[1] {
		names = append(names, m.name)
	}
	require.Equal(t, []string{"Strip below pilotlight, why replicas were wanted:", "backlog", "held"}, names)
}

func TestReplicaTicksStayAmongTheReplicas(t *testing.T) {
	for _, tick := range (replicaTicks{8}).Ticks(-1.2, 12.8) {
		require.GreaterOrEqual(t, tick.Value, 0.0)
		require.LessOrEqual(t, tick.Value, 8.0)
	}
}
