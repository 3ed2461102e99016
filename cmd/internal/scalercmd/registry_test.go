package scalercmd

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
)

// alone is a collector that notices another at the same time.
type alone struct {
	prometheus.Gauge
	busy    *atomic.Int32
	crowded *atomic.Bool
}

func (a alone) Collect(ch chan<- prometheus.Metric) {
	if a.busy.Add(1) > 1 {
		a.crowded.Store(true)
	}
	time.Sleep(10 * time.Millisecond) // long enough for another to begin
	a.Gauge.Collect(ch)
	a.busy.Add(-1)
}

func TestCollectorsAreAskedOneAfterTheOther(t *testing.T) {
	var busy atomic.Int32
	var crowded atomic.Bool
	r := newRegistry()
	for _, name := range []string{"b", "a", "c"} {
		require.NoError(t, r.Register(alone{prometheus.NewGauge(prometheus.GaugeOpts{Name: name}), &busy, &crowded}))
	}
	var twice prometheus.AlreadyRegisteredError
	require.ErrorAs(t, r.Register(prometheus.NewGauge(prometheus.GaugeOpts{Name: "a"})), &twice)
	families, err := r.parts.Gather()
	require.NoError(t, err)
	var names []string
	for _, f := range families {
		names = append(names, f.GetName())
	}
	require.Equal(t, []string{"a", "b", "c"}, names, "each of them once, in order")
	require.False(t, crowded.Load())
}
