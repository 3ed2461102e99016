package scaler

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/pilotlight-dev/pilotlight/internal/workload"
	"github.com/pilotlight-dev/pilotlight/scaler/engine"
)

// When no pod can be read the last answer stands for staleAfter. Then the
// replicas are frozen as they are, for as long as it takes, by an answer: after
// errors KEDA 2.21 may take a poll for inactive.
func TestUnknownFreezesTheReplicas(t *testing.T) {
	reg := prometheus.NewRegistry()
	r := newRig(t, Options{Registerer: reg})
	r.hold(0)
	so := soonStale()
	becomes := func(want float64, why string) {
		t.Helper()
		require.Eventually(t, func() bool { r.hold(0); v, err := r.value(t, so); return err == nil && v == want }, soon, time.Millisecond, why)
	}
	scale := func(n int) {
		r.set(func(c *cluster) {
			w := c.workloads[llama]
			w.Replicas = n
			c.workloads[llama] = w
		})
	}
	reads := func(known, reason float64) {
		t.Helper()
		require.InDelta(t, known, gauge(t, reg, "pilotlight_scaler_known", ""), 0, "what the alert looks at")
		require.InDelta(t, reason, gauge(t, reg, "pilotlight_scaler_decision_reason", "unknown"), 0)
	}
	r.pods(2, 5)
	becomes(8, "5 requests")
	reads(1, 0)

	decided := r.scaler.Targets()[0].DecidedAt
	r.set(func(c *cluster) { clear(c.readings) })
	began := time.Now()
	for r.scaler.Targets()[0].Reason != "unknown" {
		v, err := r.value(t, so)
		require.NoError(t, err)
		require.InDelta(t, 8, v, 0, "the last answer stands for staleAfter")
		require.Less(t, time.Since(began), soon)
		r.hold(0)
	}
	require.Greater(t, time.Since(decided), brief)
	v, err := r.value(t, so)
	require.NoError(t, err)
	require.InDelta(t, 8, v, 0)
	active, err := r.client.IsActive(t.Context(), so)
	require.NoError(t, err)
	require.True(t, active.GetResult(), "inactive would take the target to zero")
	target := r.scaler.Targets()[0]
	require.True(t, target.Known)
	require.Equal(t, 2, *target.Replicas)
	require.Len(t, target.Unread, 2)
	reads(0, 1)

	scale(3)
	becomes(12, "what runs is what is kept")
	require.Eventually(t, func() bool { r.hold(14); v, err := r.value(t, so); return err == nil && v == 16 }, soon, time.Millisecond, "requests that are held are known")
	require.Equal(t, "unknown", r.scaler.Targets()[0].Reason)
	becomes(12, "they have gone")

	scale(workload.Unknown)
	require.Eventually(t, func() bool { r.hold(0); _, err = r.value(t, so); return err != nil }, soon, time.Millisecond)
	require.Equal(t, codes.Unavailable, status.Code(err), "nobody says what to keep")
	_, err = r.client.IsActive(t.Context(), so)
	require.Equal(t, codes.Unavailable, status.Code(err), "unknown is not inactive")
	reads(0, 1)

	r.pods(2, 5)
	becomes(8, "it recovers by itself")
	reads(1, 0)
}

// gauge is the value of a target's gauge, of the series with that label if one
// is named; 0 where there is none.
func gauge(t *testing.T, reg *prometheus.Registry, name, label string) float64 {
	t.Helper()
	families, err := reg.Gather()
	require.NoError(t, err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && (label == "" || strings.Contains(m.String(), `"`+label+`"`)) {
				return m.GetGauge().GetValue()
			}
		}
	}
	return 0
}

// Why a pod cannot be read is said where people look.
func TestUnreadPodsAreExplained(t *testing.T) {
	reg := prometheus.NewRegistry()
	r := newRig(t, Options{Registerer: reg})
	r.hold(0)
	r.pods(1, 0)
	r.set(func(c *cluster) {
		clear(c.readings)
		w := c.workloads[llama]
		w.Replicas = workload.Unknown
		c.workloads[llama] = w
	})
	var err error
	require.Eventually(t, func() bool { r.hold(0); _, err = r.value(t, soonStale()); return err != nil }, soon, 10*time.Millisecond)
	require.ErrorContains(t, err, "10.0.0.1: ")
	target := r.scaler.Targets()[0]
	require.Contains(t, target.Unread["10.0.0.1"], engine.ErrRefused.Error())
	require.Nil(t, target.Replicas, "unknown is not zero")
	families, err := reg.Gather()
	require.NoError(t, err)
	for _, f := range families {
		require.NotContains(t, []string{"pilotlight_scaler_wanted_replicas", "pilotlight_scaler_active", "pilotlight_scaler_metric_value_requests"}, f.GetName(),
			"no value is better than a wrong one")
	}
	r.pods(1, 0)
	require.Eventually(t, func() bool { return len(r.scaler.Targets()[0].Unread) == 0 }, soon, time.Millisecond)
}
