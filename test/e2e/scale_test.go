package e2e

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPushWakesFromZero(t *testing.T) {
	t.Parallel()
	s := play(t, options{})
	wanted, _ := s.replicas()
	require.Zero(t, wanted, "it begins asleep")
	s.mark("one request")
	s.good(s.ask(t.Context(), 5))
	s.await(1, 30*time.Second)
	s.mark("idle")
	s.await(0, 60*time.Second)
}

func TestPollOnlyTriggerWakes(t *testing.T) {
	t.Parallel()
	s := play(t, options{spec: map[string]any{"triggers": []any{map[string]any{
		"type": "external", "metricType": "AverageValue",
		"metadata": map[string]any{"targetRequests": "4", "modelName": "llama", "coldStart": "3s", "keepAlive": "5s", "scaleDownWindow": "5s"},
	}}}})
	s.mark("one request")
	s.good(s.ask(t.Context(), 5))
	s.await(1, 30*time.Second)
	s.await(0, 60*time.Second)
}

func TestBurstScalesOutAndBackToZero(t *testing.T) {
	t.Parallel()
	s := play(t, options{})
	s.mark("12 clients")
	l := s.press(12, 100)
	s.await(3, 90*time.Second)
	good, bad := l.end()
	s.mark("no clients")
	require.Empty(t, bad)
	require.Positive(t, good)
	require.LessOrEqual(t, s.line.most(), int32(4))
	s.await(0, 90*time.Second)
}

// From one replica to many, back to one, which stays for keepAlive, and to zero.
func TestOneToManyToOneToZero(t *testing.T) {
	t.Parallel()
	s := play(t, options{trigger: map[string]string{"keepAlive": "40s"}})
	s.mark("2 clients")
	few := s.press(2, 100)
	s.await(1, 60*time.Second)
	s.mark("8 more")
	many := s.press(8, 100)
	s.await(3, 90*time.Second)
	for _, l := range []*load{few, many} {
		_, bad := l.end()
		require.Empty(t, bad)
	}
	s.mark("no clients")
	s.await(1, 90*time.Second)
	s.steady(1, 10*time.Second, "the last one stays for keepAlive")
	s.await(0, 90*time.Second)
}

func TestALongStreamKeepsThePod(t *testing.T) {
	t.Parallel()
	s := play(t, options{})
	s.mark("one long stream (30 s)")
	a := s.stream(t.Context(), 1500)
	s.good(a)
	require.True(t, strings.HasSuffix(strings.TrimSpace(a.body), "data: [DONE]"), "it is whole, after %v", a.took)
	require.Greater(t, a.took, 25*time.Second, "longer than the hold and the cooldown")
	s.await(1, 10*time.Second)
	s.await(0, 60*time.Second)
}

// A start that takes longer than KEDA's cooldown is not killed, although the
// client has gone.
func TestColdStartLongerThanTheCooldown(t *testing.T) {
	t.Parallel()
	s := play(t, options{engine: map[string]string{"SIM_START_DELAY": "25s"}, trigger: map[string]string{"coldStart": "25s"}})
	ctx, leave := context.WithTimeout(t.Context(), 3*time.Second)
	defer leave()
	s.mark("a client that goes after 3 s")
	require.Zero(t, s.ask(ctx, 5).status)
	s.await(1, 60*time.Second)
	require.Len(t, s.pods(), 1)
	require.Zero(t, s.pods()[0].Status.ContainerStatuses[0].RestartCount)
	s.await(0, 90*time.Second)
}

// What waits while pods load is not steady demand: what a burst orders at once is
// all that it orders, however long the pods take.
func TestNoCascadeWhileLoading(t *testing.T) {
	t.Parallel()
	s := play(t, options{
		engine:  map[string]string{"SIM_START_DELAY": "20s", "SIM_SLOTS": "4"},
		trigger: map[string]string{"coldStart": "20s"}, spec: map[string]any{"maxReplicaCount": int64(20)},
	})
	s.mark("8 requests at once")
	s.good(s.all(t.Context(), 8, 100)...)
	first, most := s.line.wanted(3 * time.Second)
	require.LessOrEqual(t, most, first, "what is wanted does not grow while they load")
	require.LessOrEqual(t, first, 6, "two carry 8 requests; the rest is for what may follow such a burst")
	s.await(0, 90*time.Second)
}

func TestAStartThatNeverBecomesReady(t *testing.T) {
	t.Parallel()
	s := play(t, options{engine: map[string]string{"SIM_HANG_START": "1"}, trigger: map[string]string{"startDeadline": "20s"}})
	s.mark("one request")
	a := s.ask(t.Context(), 5)
	require.Equal(t, http.StatusServiceUnavailable, a.status, a.body)
	require.Contains(t, a.body, "deadline", "with the reason")
	s.awaitEvent("StartFailed")
	s.await(0, 60*time.Second)
}

// A start that crashes again and again is told to who waits, at once, and does
// not keep the model awake for ever.
func TestAStartThatCrashes(t *testing.T) {
	t.Parallel()
	s := play(t, options{engine: map[string]string{"SIM_FAIL_START": "1", "SIM_START_DELAY": "1s"}, trigger: map[string]string{"startDeadline": "20s"}})
	s.mark("one request")
	a := s.ask(t.Context(), 5)
	require.Equal(t, http.StatusServiceUnavailable, a.status, a.body)
	require.Contains(t, a.body, "crash", "with the reason")
	s.awaitEvent("StartFailing")
	s.await(0, 90*time.Second)
}

func TestScalerRestartedAtZero(t *testing.T) {
	t.Parallel()
	s := play(t, options{})
	require.NoError(t, s.scaler.Kill())
	s.mark("the scaler is killed")
	s.startScaler()
	s.mark("it is back: one request")
	s.good(s.ask(t.Context(), 5))
	s.await(0, 60*time.Second)
}

func TestScalerRestartedAtN(t *testing.T) {
	t.Parallel()
	s := play(t, options{spec: patient(nil)})
	l := s.press(10, 100) // two and a half replicas
	s.await(3, 90*time.Second)
	s.mark("the scaler is killed")
	require.NoError(t, s.scaler.Kill())
	s.steady(3, 10*time.Second, "nobody shrinks while it is away")
	s.startScaler()
	s.mark("it is back")
	s.steady(3, 10*time.Second, "nor when it comes back with the same load")
	_, bad := l.end()
	require.Empty(t, bad)
	s.await(0, 3*time.Minute)
}

func TestScalerRestartedInTheMiddleOfAStart(t *testing.T) {
	t.Parallel()
	s := play(t, options{spec: patient(nil), engine: map[string]string{"SIM_START_DELAY": "20s"}, trigger: map[string]string{"coldStart": "20s"}})
	done := make(chan answer, 1)
	go func() { done <- s.ask(t.Context(), 5) }()
	eventually(t, 60*time.Second, "a pod was ordered", func() (string, bool) { wanted, _ := s.replicas(); return "", wanted == 1 })
	s.mark("the scaler is killed")
	require.NoError(t, s.scaler.Kill())
	s.startScaler()
	s.mark("it is back")
	s.good(<-done)
	require.EqualValues(t, 1, s.line.most())
	s.await(0, 3*time.Minute)
}

// KEDA makes no HPA for a ScaledObject whose scaler does not answer, and tries
// again by itself.
func TestScalerAbsentWhenTheScaledObjectIsMade(t *testing.T) {
	t.Parallel()
	s := play(t, options{noScaler: true, noScaled: true})
	s.scaledObject(options{})
	eventually(t, 60*time.Second, "KEDA says that it is not ready", func() (string, bool) { c := s.conditions(); return "", c["Ready"] == "False" })
	s.mark("the scaler comes")
	s.startScaler()
	s.startActivator()
	s.awaitScaledObject()
	s.good(s.ask(t.Context(), 5))
	s.await(0, 90*time.Second)
}
