package scaler

import (
	"context"
	"sync"
	"testing"
	"time"

	pb "github.com/kedacore/keda/v2/pkg/scalers/externalscaler"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/pilotlight-dev/pilotlight/internal/trigger"
	"github.com/pilotlight-dev/pilotlight/internal/workload"
	"github.com/pilotlight-dev/pilotlight/scaler/policy"
)

// gateway is a demand source of one's own making, named gateway, for namespace
// ai.
type gateway struct {
	mu      sync.Mutex
	demand  policy.Demand
	traffic policy.Traffic
	wakers  map[chan<- struct{}]bool
}

func (g *gateway) Check(ref workload.Ref, t trigger.Trigger) []trigger.Fault {
	if t.DemandFrom != "gateway" || ref.Namespace != "ai" {
		return []trigger.Fault{{Key: "demandFrom", Problem: "there is only gateway, for ai"}}
	}
	return nil
}

func (g *gateway) Open(workload.Ref, trigger.Trigger) Source { return g }

func (g *gateway) Since(context.Context, workload.Ref, time.Time) policy.Demand {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.demand
}

func (g *gateway) Traffic(workload.Ref) policy.Traffic {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.traffic
}

func (g *gateway) Wake(_ workload.Ref, c chan<- struct{}) (stop func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.wakers = map[chan<- struct{}]bool{c: true}
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.wakers, c)
	}
}

func (g *gateway) Says() (blind, problem string) { return "sees what waits", "answered HTTP 500" }

// set changes what the gateway sees and wakes.
func (g *gateway) set(d policy.Demand, t policy.Traffic) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.demand, g.traffic = d, t
	for c := range g.wakers {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

func fromGateway() *pb.ScaledObjectRef { return object(map[string]string{"demandFrom": "gateway"}) }

func (r *rig) active(t *testing.T, so *pb.ScaledObjectRef) bool {
	t.Helper()
	resp, err := r.client.IsActive(t.Context(), so)
	require.NoError(t, err)
	return resp.GetResult()
}

func TestSourceWakesAtZero(t *testing.T) {
	cases := map[string]struct {
		demand  policy.Demand
		traffic policy.Traffic
		reason  string
	}{
		"Held":     {policy.Demand{Known: true, Held: 3}, policy.Traffic{}, "requests wait"},
		"Arrivals": {policy.Demand{Known: true}, policy.Traffic{Known: true, Arrivals: 1}, "the first request was turned away and must not be lost"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			g := &gateway{}
			// The loop looks again only when it is woken.
			r := newRig(t, Options{Sources: g, Interval: time.Hour})
			g.set(policy.Demand{Known: true}, policy.Traffic{Known: tc.traffic.Known})
			require.False(t, r.active(t, fromGateway()))
			require.Eventually(t, func() bool {
				g.set(tc.demand, tc.traffic)
				return r.active(t, fromGateway())
			}, soon, 10*time.Millisecond, tc.reason)
		})
	}
}

func TestSilentSourceIsUnknown(t *testing.T) {
	g := &gateway{}
	r := newRig(t, Options{Sources: g})
	require.False(t, r.active(t, fromGateway()), "at zero unknown does not wake")
	st := r.scaler.Targets()[0]
	require.Equal(t, string(policy.ReasonDemandUnknown), st.Reason)
	require.Equal(t, DemandStatus{From: "gateway", Blind: "sees what waits", Problem: "answered HTTP 500"}, st.Demand)

	g.set(policy.Demand{Known: true, Held: 8}, policy.Traffic{})
	require.Eventually(t, func() bool { return *r.scaler.Targets()[0].Replicas >= 2 }, soon, time.Millisecond)
	wanted := *r.scaler.Targets()[0].Replicas
	r.pods(wanted, 0)
	g.set(policy.Demand{}, policy.Traffic{})
	require.Eventually(t, func() bool {
		st := r.scaler.Targets()[0]
		return st.Terms.Ready == wanted && st.Terms.Held == 0 && *st.Replicas == wanted && st.Reason == string(policy.ReasonDemandUnknown)
	}, soon, time.Millisecond, "and with replicas it does not shrink")
}

func TestSourcesAreCheckedBeforeUse(t *testing.T) {
	elsewhere := fromGateway()
	elsewhere.Namespace = "other"
	for name, opts := range map[string]Options{"NoFile": {}, "Refused": {Sources: &gateway{}}} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, opts)
			_, err := r.client.GetMetricSpec(t.Context(), elsewhere)
			require.Equal(t, codes.InvalidArgument, status.Code(err))
			require.ErrorContains(t, err, "demandFrom")
			require.Empty(t, r.scaler.Targets())
		})
	}
}
