package scaler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	pb "github.com/kedacore/keda/v2/pkg/scalers/externalscaler"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/pilotlight-dev/pilotlight/internal/demandpb"
	"github.com/pilotlight-dev/pilotlight/internal/workload"
	"github.com/pilotlight-dev/pilotlight/scaler/engine"
)

const soon = 30 * time.Second

func TestValueFollowsTheLoad(t *testing.T) {
	r := newRig(t, Options{})
	r.hold(0)
	so := object(nil)
	v, err := r.value(t, so)
	require.NoError(t, err)
	require.Zero(t, v)
	active, err := r.client.IsActive(t.Context(), so)
	require.NoError(t, err)
	require.False(t, active.GetResult())

	r.pods(1, 9)
	require.Eventually(t, func() bool { v, err := r.value(t, so); return err == nil && v == 12 }, soon, time.Millisecond,
		"9 requests at 4 each are 3 replicas, and 3 x 4 is what the HPA divides")
	active, err = r.client.IsActive(t.Context(), so)
	require.NoError(t, err)
	require.True(t, active.GetResult(), "IsActive agrees with GetMetrics")
}

func TestMetricSpec(t *testing.T) {
	r := newRig(t, Options{})
	r.set(func(c *cluster) { c.err = errors.New("the API server is away") })
	spec, err := r.client.GetMetricSpec(t.Context(), object(nil))
	require.NoError(t, err, "the spec needs no cluster")
	require.Len(t, spec.GetMetricSpecs(), 1)
	require.Equal(t, "pilotlight-requests", spec.GetMetricSpecs()[0].GetMetricName())
	require.InDelta(t, 4, spec.GetMetricSpecs()[0].GetTargetSizeFloat(), 0)

	stream, err := r.client.StreamMetricSpec(t.Context(), object(nil))
	require.NoError(t, err)
	streamed, err := stream.Recv()
	require.NoError(t, err)
	require.Equal(t, spec.String(), streamed.String(), "both RPCs say the same")
	r.scaler.Close()
	_, err = stream.Recv()
	require.ErrorIs(t, err, io.EOF, "a shutdown ends the stream without an error")
}

func TestMetricNames(t *testing.T) {
	r := newRig(t, Options{})
	r.hold(0)
	for _, name := range []string{"pilotlight-requests", "s0-pilotlight-requests", "s12-pilotlight-requests", "S3-Pilotlight-Requests"} {
		resp, err := r.client.GetMetrics(t.Context(), &pb.GetMetricsRequest{ScaledObjectRef: object(nil), MetricName: name})
		require.NoError(t, err, name)
		require.Equal(t, name, resp.GetMetricValues()[0].GetMetricName())
	}
	for _, name := range []string{"", "s0-", "requests", "s0-s1-pilotlight-requests", "pilotlight-requests-2"} {
		_, err := r.client.GetMetrics(t.Context(), &pb.GetMetricsRequest{ScaledObjectRef: object(nil), MetricName: name})
		require.Equal(t, codes.InvalidArgument, status.Code(err), name)
	}
}

// Every RPC refuses faulty metadata in the same words, with every faulty key.
func TestBadMetadata(t *testing.T) {
	r := newRig(t, Options{})
	bad := object(map[string]string{"targetRequests": "none", "engine": "ollama", "treshold": "5"})
	calls := map[string]func(context.Context) error{
		"IsActive":      func(ctx context.Context) error { _, err := r.client.IsActive(ctx, bad); return err },
		"GetMetricSpec": func(ctx context.Context) error { _, err := r.client.GetMetricSpec(ctx, bad); return err },
		"GetMetrics": func(ctx context.Context) error {
			_, err := r.client.GetMetrics(ctx, &pb.GetMetricsRequest{ScaledObjectRef: bad, MetricName: MetricName})
			return err
		},
		"StreamIsActive": func(ctx context.Context) error {
			s, err := r.client.StreamIsActive(ctx, bad)
			if err == nil {
				_, err = s.Recv()
			}
			return err
		},
		"StreamMetricSpec": func(ctx context.Context) error {
			s, err := r.client.StreamMetricSpec(ctx, bad)
			if err == nil {
				_, err = s.Recv()
			}
			return err
		},
	}
	words := map[string]bool{}
	for name, call := range calls {
		err := call(t.Context())
		require.Equal(t, codes.InvalidArgument, status.Code(err), name)
		for _, key := range []string{"targetRequests", "engine", "treshold", "ai/llama"} {
			require.ErrorContains(t, err, key, name)
		}
		words[err.Error()] = true
	}
	require.Len(t, words, 1)
	require.Empty(t, r.scaler.Targets(), "nothing is started for it")

	_, err := r.client.IsActive(t.Context(), &pb.ScaledObjectRef{Name: "llama"})
	require.Equal(t, codes.InvalidArgument, status.Code(err))
}

// What cannot work in this ScaledObject is refused where the ScaledObject is
// known, and is an error, never an inactive answer.
func TestBoundsAreChecked(t *testing.T) {
	r := newRig(t, Options{})
	_, err := r.value(t, object(map[string]string{"demandFrom": "none"}))
	require.Equal(t, codes.InvalidArgument, status.Code(err))
	require.ErrorContains(t, err, "demandFrom")

	r.set(func(c *cluster) { c.err = workload.ErrForbidden })
	_, err = r.value(t, object(map[string]string{"coldStart": "3m"}))
	require.Equal(t, codes.PermissionDenied, status.Code(err))

	missing := object(nil)
	missing.Name = "gone"
	r.set(func(c *cluster) { c.err = nil })
	_, err = r.value(t, missing)
	require.Equal(t, codes.NotFound, status.Code(err))
}

func TestAPIServerAway(t *testing.T) {
	r := newRig(t, Options{})
	r.hold(0)
	so := soonStale()
	r.pods(2, 5)
	require.Eventually(t, func() bool { v, err := r.value(t, so); return err == nil && v == 8 }, soon, time.Millisecond)
	r.set(func(c *cluster) { c.err = errors.New("connection refused") })
	require.Eventually(t, func() bool { return r.scaler.Targets()[0].Error != "" }, soon, time.Millisecond)
	began := time.Now()
	v, err := r.value(t, so)
	for ; err == nil; v, err = r.value(t, so) {
		require.InDelta(t, 8, v, 0, "a short blip is bridged")
		require.Less(t, time.Since(began), soon)
		time.Sleep(time.Millisecond) // real sockets
	}
	require.ErrorContains(t, err, "connection refused")
	require.Greater(t, time.Since(r.scaler.Targets()[0].DecidedAt), brief, "and no blip is shorter")
}

// Engines that hang do not make the scaler hang.
func TestUnaryCallsAreBounded(t *testing.T) {
	r := newRig(t, Options{Patience: 50 * time.Millisecond})
	r.pods(1, 1)
	block := make(chan struct{})
	r.set(func(c *cluster) { c.block = block })
	began := time.Now()
	_, err := r.value(t, object(nil))
	require.Equal(t, codes.Unavailable, status.Code(err))
	require.Less(t, time.Since(began), soon)
	close(block)
	require.Eventually(t, func() bool { _, err := r.value(t, object(nil)); return err == nil }, soon, time.Millisecond)
}

func TestStreamPushesEdgesOnly(t *testing.T) {
	r := newRig(t, Options{Resend: time.Hour, Interval: time.Hour})
	r.hold(0)
	stream, err := r.client.StreamIsActive(t.Context(), object(nil))
	require.NoError(t, err)
	first, err := stream.Recv()
	require.NoError(t, err)
	require.False(t, first.GetResult(), "the current state comes at once")

	began := time.Now()
	r.hold(1)
	second, err := stream.Recv()
	require.NoError(t, err)
	require.True(t, second.GetResult())
	require.Less(t, time.Since(began), soon, "the edge does not wait for the next sample, in an hour")

	more := make(chan *pb.IsActiveResponse, 10)
	go func() {
		for {
			m, err := stream.Recv()
			if err != nil {
				close(more)
				return
			}
			more <- m
		}
	}()
	r.hold(2)
	r.hold(0)
	r.hold(3)
	r.scaler.Close()
	_, open := <-more
	require.False(t, open, "while active nothing is repeated, and a shutdown ends the stream")
}

func TestStreamRepeatsWhileStillAtZero(t *testing.T) {
	r := newRig(t, Options{Resend: 20 * time.Millisecond})
	r.hold(1)
	stream, err := r.client.StreamIsActive(t.Context(), object(nil))
	require.NoError(t, err)
	for range 3 {
		m, err := stream.Recv()
		require.NoError(t, err)
		require.True(t, m.GetResult(), "KEDA may have dropped the first")
	}
}

// A stream that is cancelled leaves nothing behind, and a target that nobody
// asks about any more ends.
func TestNothingLeaks(t *testing.T) {
	r := newRig(t, Options{IdleAfter: 500 * time.Millisecond})
	r.hold(0)
	ctx, cancel := context.WithCancel(t.Context())
	stream, err := r.client.StreamIsActive(ctx, object(nil))
	require.NoError(t, err)
	_, err = stream.Recv()
	require.NoError(t, err)
	require.Len(t, r.scaler.Targets(), 1)
	time.Sleep(time.Second) // longer than IdleAfter: the stream keeps the target
	require.Len(t, r.scaler.Targets(), 1)
	cancel()
	require.Eventually(t, func() bool { return len(r.scaler.Targets()) == 0 }, soon, time.Millisecond)
	_, err = r.value(t, object(nil))
	require.NoError(t, err, "and comes back when it is asked about")
}

// Names that nobody made cost nothing for long, and targets are bounded.
func TestInventedNames(t *testing.T) {
	r := newRig(t, Options{MaxTargets: 2})
	r.hold(0)
	for i := range 10 {
		so := object(nil)
		so.Name = fmt.Sprintf("invented-%d", i)
		_, err := r.client.GetMetricSpec(t.Context(), so)
		require.NoError(t, err)
	}
	require.Empty(t, r.scaler.Targets(), "a spec needs no target")
	for i := range 10 {
		so := object(nil)
		so.Name = fmt.Sprintf("invented-%d", i)
		_, err := r.client.IsActive(t.Context(), so)
		require.Contains(t, []codes.Code{codes.NotFound, codes.ResourceExhausted}, status.Code(err))
	}
	require.Len(t, r.scaler.Targets(), 2)
}

func TestUnknownDemandSourceIsRefused(t *testing.T) {
	r := newRig(t, Options{})
	_, err := r.client.GetMetricSpec(t.Context(), object(map[string]string{"demandFrom": "epp"}))
	require.Equal(t, codes.InvalidArgument, status.Code(err))
	require.ErrorContains(t, err, "demandFrom")
	require.ErrorContains(t, err, "activator and none")
}

// A ScaledObject that cannot work ends the stream with the reason, instead of
// being silent.
func TestStreamTellsOfBounds(t *testing.T) {
	r := newRig(t, Options{})
	stream, err := r.client.StreamIsActive(t.Context(), object(map[string]string{"demandFrom": "none"}))
	require.NoError(t, err)
	_, err = stream.Recv()
	require.Equal(t, codes.InvalidArgument, status.Code(err))
	require.ErrorContains(t, err, "ScaledObject ai/llama")
}

func TestTwoTriggersOfOneScaledObject(t *testing.T) {
	r := newRig(t, Options{})
	r.hold(0)
	r.pods(1, 8)
	a, b := object(nil), object(map[string]string{"targetRequests": "2"})
	require.Eventually(t, func() bool {
		va, errA := r.value(t, a)
		vb, errB := r.value(t, b)
		return errA == nil && errB == nil && va == 8 && vb == 8
	}, soon, time.Millisecond)
	targets := r.scaler.Targets()
	require.Len(t, targets, 2)
	require.ElementsMatch(t, []int{2, 4}, []int{*targets[0].Replicas, *targets[1].Replicas}, "each has its own target and state")
}

func TestShadowServesThePassiveValue(t *testing.T) {
	r := newRig(t, Options{})
	r.hold(0)
	r.pods(1, 8)
	so := object(map[string]string{"mode": "shadow"})
	require.Eventually(t, func() bool { v, err := r.value(t, so); return err == nil && v == 0 }, soon, time.Millisecond)
	active, err := r.client.IsActive(t.Context(), so)
	require.NoError(t, err)
	require.False(t, active.GetResult())
	require.Equal(t, 2, *r.scaler.Targets()[0].Replicas, "what it would do is published")

	r.set(func(c *cluster) {
		w := c.workloads[llama]
		w.SoleTrigger = true
		c.workloads[llama] = w
	})
	require.Eventually(t, func() bool { _, err := r.value(t, so); return status.Code(err) == codes.InvalidArgument }, soon, time.Millisecond)
}

func TestDebugTargetsAndMetrics(t *testing.T) {
	reg := prometheus.NewRegistry()
	r := newRig(t, Options{Registerer: reg})
	r.hold(2)
	r.pods(2, 5)
	r.set(func(c *cluster) { delete(c.readings, "10.0.0.2") })
	require.Eventually(t, func() bool { v, err := r.value(t, object(nil)); return err == nil && v == 8 }, soon, time.Millisecond)

	ask := func(query string) (targets []TargetStatus) {
		rec := httptest.NewRecorder()
		r.scaler.DebugHandler().ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/debug/targets"+query, nil))
		require.NoError(t, json.Unmarshal(rec.Body.Bytes(), &targets))
		return targets
	}
	for _, other := range []string{"?namespace=ml", "?scaledObject=mistral", "?namespace=ai&scaledObject=mistral"} {
		require.Empty(t, ask(other))
	}
	targets, named := ask(""), ask("?namespace=ai&scaledObject=llama")
	require.Len(t, targets, 1)
	require.Len(t, named, 1)
	require.Equal(t, targets[0].Namespace, named[0].Namespace)
	require.Equal(t, targets[0].ScaledObject, named[0].ScaledObject)
	require.Equal(t, targets[0].Trigger, named[0].Trigger)
	require.Equal(t, "llama", targets[0].ScaledObject)
	require.Equal(t, 1, targets[0].Terms.Unread)
	require.InDelta(t, 7, targets[0].Terms.Load, 0)

	families, err := reg.Gather()
	require.NoError(t, err)
	names := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetValue())
			}
			value := m.GetGauge().GetValue()
			if m.GetCounter() != nil {
				value = m.GetCounter().GetValue()
			}
			names[f.GetName()+" "+strings.Join(labels, " ")] = value
		}
	}
	hash := targets[0].Trigger
	require.InDelta(t, 2, names["pilotlight_scaler_wanted_replicas ai llama "+hash], 0)
	require.InDelta(t, 1, names["pilotlight_scaler_pods ai llama unread "+hash], 0)
	require.Positive(t, names["pilotlight_scaler_unread_total ai refused llama "+hash])
}

func TestTargetStateForActivators(t *testing.T) {
	r := newRig(t, Options{})
	state := func() demandpb.State { return r.scaler.TargetState(llama).GetState() }
	require.Equal(t, demandpb.State_STATE_UNKNOWN, state())
	r.hold(0)
	_, err := r.value(t, object(nil))
	require.NoError(t, err)
	require.Equal(t, demandpb.State_STATE_ASLEEP, state())
	r.hold(1)
	require.Eventually(t, func() bool { return state() == demandpb.State_STATE_STARTING }, soon, time.Millisecond)
	r.set(func(c *cluster) {
		w := c.workloads[llama]
		w.Replicas, w.Pods = 1, []workload.Pod{{Name: "a", Created: time.Now().Add(-time.Hour), Failure: workload.FailureImage}}
		c.workloads[llama] = w
	})
	require.Eventually(t, func() bool { return state() == demandpb.State_STATE_FAILED }, soon, time.Millisecond)
	require.Equal(t, "image", r.scaler.TargetState(llama).GetReason())
	require.Positive(t, r.scaler.TargetState(llama).GetRetryAfterSeconds())
	r.pods(1, 0)
	require.Eventually(t, func() bool { return state() == demandpb.State_STATE_READY }, soon, time.Millisecond)
}

// No engine reading, however odd, makes the scaler serve what KEDA would turn
// into zero.
func TestServedValuesAreFinite(t *testing.T) {
	r := newRig(t, Options{})
	r.hold(0)
	r.pods(1, 0)
	r.set(func(c *cluster) { c.readings["10.0.0.1"] = engine.Reading{Running: math.MaxFloat64} })
	require.Eventually(t, func() bool { v, err := r.value(t, object(nil)); return err == nil && v == 16 }, soon, time.Millisecond,
		"bounded by maxReplicaCount")
}
