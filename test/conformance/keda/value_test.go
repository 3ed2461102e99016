package kedaconformance

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"testing"
	"time"

	pb "github.com/kedacore/keda/v2/pkg/scalers/externalscaler"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/pilotlight-dev/pilotlight/internal/workload/static"
)

// 4: KEDA takes the float if it is above zero and the int otherwise, and makes
// zero of what is not finite or negative.
func valuesAreFiniteFloats(t *testing.T) {
	odd := map[string]string{"nan": "NaN", "inf": "+Inf", "minus-inf": "-Inf", "negative": "-5", "absurd": "1e300"}
	engines, targets, two := map[string]*engine{}, []static.Target{}, 2
	for name := range odd {
		engines[name] = newEngine(t, "6")
		one := target("ai", name, engines[name])
		one.Replicas = &two // as it will once the HPA has heard of the 6 requests
		targets = append(targets, one)
	}
	s := serve(t, nil, targets)
	a := s.report()
	a.mu.Lock()
	for name := range odd {
		a.held["ai/"+name] = 0
	}
	a.mu.Unlock()
	for name, gauge := range odd {
		s.becomes(named(name), 8, "6 requests")
		engines[name].set(func(e *engine) { e.running = gauge })
	}
	// While the last answer stands, and for a while after that.
	for began, rest := time.Now(), 20; rest > 0; time.Sleep(50 * time.Millisecond) {
		unknown := 0
		for name, gauge := range odd {
			resp, err := s.GetMetrics(t.Context(), &pb.GetMetricsRequest{ScaledObjectRef: named(name), MetricName: "s0-pilotlight-requests"})
			require.NoError(t, err, gauge)
			v := resp.GetMetricValues()[0]
			require.InDelta(t, 8, v.GetMetricValueFloat(), 0, "%s: the last sound value, which is what runs", gauge)
			require.Zero(t, v.GetMetricValue(), "the int of old")
			if s.reason(named(name)) == "unknown" {
				unknown++
			}
		}
		if unknown == len(odd) {
			rest--
		}
		require.Less(t, time.Since(began), soon, "the last answer stands for ever")
	}
	for name := range odd {
		engines[name].set(func(e *engine) { e.running = "200000" })
		s.becomes(named(name), 32, "it recovers, and 8 replicas are the most")
	}
}

// named is the usual trigger of another ScaledObject.
func named(name string) *pb.ScaledObjectRef {
	so := object(nil)
	so.Name = name
	return so
}

// 6: what IsActive says, taken just after the value.
func activityAgreesWithTheValue(t *testing.T) {
	e := newEngine(t, "0")
	s := serve(t, nil, []static.Target{llama()})
	a := s.report()
	agree := func() {
		t.Helper()
		for range 20 {
			before, err := s.value(object(nil))
			require.NoError(t, err)
			active, err := s.IsActive(t.Context(), object(nil))
			require.NoError(t, err)
			after, err := s.value(object(nil))
			require.NoError(t, err)
			if before == after { // nothing has changed in between
				require.Equal(t, before > 0, active.GetResult(), "value %v", before)
			}
		}
	}
	s.becomes(object(nil), 0, "nobody asks")
	agree()
	a.hold(1)
	s.becomes(object(nil), 4, "one waits")
	agree()
	s.targets(llama(e))
	e.set(func(e *engine) { e.running = "9" })
	s.becomes(object(nil), 12, "9 requests")
	agree()
}

// 7: at most 2 s for any call, whatever the engines do. KEDA has no deadline of
// its own: a call that hangs keeps it from polling and from pushing.
func callsAreBounded(t *testing.T) {
	e := newEngine(t, "6")
	e.set(func(e *engine) { e.hangs = true })
	s := serve(t, nil, []static.Target{llama(e)})
	s.report()
	const slack = 3 * time.Second // the machine's, not the scaler's
	for range 3 {
		began := time.Now()
		_, _ = s.value(object(nil)) // an answer or an error
		require.Less(t, time.Since(began), 2*time.Second+slack)
	}
	e.set(func(e *engine) { e.hangs = false })
	s.becomes(object(nil), 8, "the engine answers")
	e.set(func(e *engine) { e.hangs = true })
	took := make([]time.Duration, 300)
	for i := range took {
		began := time.Now()
		_, _ = s.value(object(nil)) // the last answer, or an error
		_, _ = s.IsActive(t.Context(), object(nil))
		took[i] = time.Since(began)
	}
	slices.Sort(took)
	t.Logf("GetMetricSpec, GetMetrics and IsActive together, engine hanging: p50 %v, p99 %v", took[len(took)/2], took[len(took)*99/100])
	require.Less(t, took[len(took)*99/100], time.Second)
}

// 8: a poll and the HPA ask at the same time, and KEDA asks again at once after
// an error.
func askingChangesNothing(t *testing.T) {
	s := serve(t, nil, []static.Target{llama(newEngine(t, "6"))})
	s.report()
	so := object(nil)
	s.becomes(so, 8, "6 requests")
	name := s.name(so)
	var askers sync.WaitGroup
	wrong := make(chan string, 1000)
	for range 20 {
		askers.Go(func() {
			for range 20 {
				resp, err := s.GetMetrics(t.Context(), &pb.GetMetricsRequest{ScaledObjectRef: so, MetricName: name})
				active, aerr := s.IsActive(t.Context(), so)
				if err != nil || aerr != nil || !active.GetResult() || resp.GetMetricValues()[0].GetMetricValueFloat() != 8 {
					wrong <- resp.String()
				}
			}
		})
	}
	askers.Wait()
	require.Empty(t, wrong)
	_, debug := s.get("/debug/targets")
	var targets []any
	require.NoError(t, json.Unmarshal([]byte(debug), &targets))
	require.Len(t, targets, 1, "and all of it was about one target")
}

// 9: two triggers of one ScaledObject differ by nothing but their metadata.
func stateByTheWholeTrigger(t *testing.T) {
	s := serve(t, nil, []static.Target{llama(newEngine(t, "6")), target("chat", "llama", newEngine(t, "1"))})
	a := s.report()
	a.mu.Lock()
	a.held["chat/llama"] = 0
	a.mu.Unlock()
	stricter, elsewhere := object(map[string]string{"targetRequests": "2"}), object(nil)
	elsewhere.Namespace = "chat"
	s.becomes(object(nil), 8, "6 requests, 4 each")
	s.becomes(elsewhere, 4, "one request")
	s.becomes(stricter, 6, "6 requests, 2 each")
	for range 20 {
		for so, want := range map[*pb.ScaledObjectRef]float64{object(nil): 8, stricter: 6, elsewhere: 4} {
			v, err := s.value(so)
			require.NoError(t, err)
			require.InDelta(t, want, v, 0, "none disturbs another")
		}
	}
}

// 11: zero or inactive would take a model away that is in use, and in KEDA 2.21
// so may errors. So the last answer stands for a while, and then the replicas
// that there are; an error is for where not even those are known.
func failureIsNeverZero(t *testing.T) {
	const nobodyKnows = -1
	for name, c := range map[string]struct {
		fail func(*server, *engine)
		ends string // what follows the last answer
	}{
		"EngineGone":      {func(_ *server, e *engine) { e.Close() }, "frozen"},
		"EngineHangs":     {func(_ *server, e *engine) { e.set(func(e *engine) { e.hangs = true }) }, "frozen"},
		"EngineBabels":    {func(_ *server, e *engine) { e.set(func(e *engine) { e.running = "six" }) }, "frozen"},
		"ScaledMeanwhile": {func(s *server, e *engine) { e.Close(); s.asksFor(3, e) }, "frozen at three"},
		"ReplicasUnknown": {func(s *server, e *engine) { e.Close(); s.asksFor(nobodyKnows, e) }, "error"},
		"NotAsBefore":     {func(s *server, _ *engine) { s.targets() }, "error"}, // the ScaledObject cannot be found any more
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEngine(t, "6")
			s := serve(t, nil, []static.Target{llama(e)})
			s.report()
			s.asksFor(2, e) // as it will once the HPA has heard of the 6 requests
			so := object(nil)
			s.becomes(so, 8, "6 requests")
			c.fail(s, e)
			began := time.Now()
			for n := 0; n < 20; time.Sleep(50 * time.Millisecond) {
				require.Less(t, time.Since(began), soon, "the last answer does not stand for ever")
				v, err := s.value(so)
				active, aerr := s.IsActive(t.Context(), so)
				if aerr == nil {
					require.True(t, active.GetResult())
				} else {
					require.Equal(t, "error", c.ends, aerr)
				}
				switch {
				case err != nil:
					require.Equal(t, "error", c.ends, err)
					require.Contains(t, []codes.Code{codes.Unavailable, codes.NotFound}, status.Code(err), err)
					if aerr != nil {
						n = 20
					}
				case v != 8:
					require.Equal(t, "frozen at three", c.ends)
					require.InDelta(t, 12, v, 0)
					n++
				case c.ends == "frozen" && s.reason(so) == "unknown":
					n++
				}
			}
			require.Greater(t, time.Since(began), time.Second, "a blip is bridged: staleAfter is 2 s")
		})
	}
	// While no activator reports, what is asleep stays asleep.
	s := serve(t, nil, []static.Target{llama()})
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	active, err := s.IsActive(ctx, object(nil))
	require.NoError(t, err)
	require.False(t, active.GetResult())
}
