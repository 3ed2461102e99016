package e2e

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// steady demands a number of wanted replicas for a while.
func (s *scenario) steady(n int32, while time.Duration, why string) {
	s.t.Helper()
	for end := time.Now().Add(while); time.Now().Before(end); time.Sleep(300 * time.Millisecond) {
		if wanted, _ := s.replicas(); wanted != unknown {
			require.Equal(s.t, n, wanted, why)
		}
	}
}

func TestAPIServerUnreachableForAMinute(t *testing.T) {
	t.Parallel()
	w := enter(t)
	wire := newWire(t, w.Host)
	s := play(t, options{apiServer: wire.addr})
	l := s.press(6, 100)
	s.await(2, 60*time.Second)
	s.mark("the API server is cut off from scaler and activator")
	wire.set(true)
	s.steady(2, time.Minute, "the same load wants the same replicas")
	s.mark("it is back")
	wire.set(false)
	s.steady(2, 10*time.Second, "and so afterwards")
	_, bad := l.end()
	require.Empty(t, bad, "requests do not need the API server")
	s.await(0, 90*time.Second)
}

func TestAllPodsUnscrapable(t *testing.T) {
	t.Parallel()
	// They stay Ready all the same: what is not Ready would be replaced.
	s := play(t, options{trigger: map[string]string{"staleAfter": "10s"}, pod: func(p *corev1.PodSpec) { p.Containers[0].ReadinessProbe.FailureThreshold = 100 }})
	l := s.press(6, 100)
	s.await(2, 60*time.Second)
	_, bad := l.end()
	require.Empty(t, bad)
	n, _ := s.replicas()
	s.mark("all engines stop answering")
	for _, p := range s.pods() {
		pid, err := s.node.Pid(s.ns, p.Name, "vllm")
		require.NoError(t, err)
		require.NoError(t, syscall.Kill(pid, syscall.SIGSTOP))
		t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
	}
	s.steady(n, 40*time.Second, "unknown is not idle: neither while the last answer stands, nor for several cooldowns after that")
	eventually(t, 30*time.Second, "the scaler says what it does not know", func() (string, bool) {
		d := s.decision()
		if d == nil {
			return "no answer", false
		}
		return fmt.Sprintf("%+v", d), len(d.Unread) == int(n) && // it says which pods it cannot read, and why,
			d.Reason == "unknown" && // after staleAfter that it does not know,
			d.Known && // which is no error, for that would not keep KEDA from zero,
			d.Replicas != nil && *d.Replicas == int(n) // but what there is
	})
}

func TestOnePodHung(t *testing.T) {
	t.Parallel()
	s := play(t, options{})
	l := s.press(6, 50)
	s.await(2, 60*time.Second)
	p := s.pods()[0]
	pid, err := s.node.Pid(s.ns, p.Name, "vllm")
	require.NoError(t, err)
	s.mark("one engine hangs")
	require.NoError(t, syscall.Kill(pid, syscall.SIGSTOP))
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
	before := l.good.Load()
	s.atLeastTwo(15 * time.Second) // it is not taken for idle
	require.Greater(t, l.good.Load(), before, "the other one serves on")
	l.stop()
}

// An engine that dies in a pod which has been warm for longer than a start may take
// is started anew in place, and that takes longer than KEDA's cooldown. The pod is
// waited for: it is no start that has failed.
func TestAnEngineThatStartsAnewInItsPod(t *testing.T) {
	t.Parallel()
	s := play(t, options{
		engine:  map[string]string{"SIM_START_DELAY": "12s"},
		trigger: map[string]string{"coldStart": "12s", "startDeadline": "40s", "keepAlive": "5m"},
	})
	s.good(s.ask(t.Context(), 5))
	s.await(1, 60*time.Second)
	pod := s.pods()[0]
	s.steady(1, time.Until(pod.CreationTimestamp.Add(75*time.Second)), "kept warm") // older than startDeadline, Ready for over a minute
	pid, err := s.node.Pid(s.ns, pod.Name, "vllm")
	require.NoError(t, err)
	s.mark("the engine dies")
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	eventually(t, 30*time.Second, "the pod is not ready any more", func() (string, bool) {
		_, ready := s.replicas()
		return fmt.Sprint(ready), ready == 0
	})
	a := s.ask(t.Context(), 5)
	s.good(a)
	s.mark(fmt.Sprintf("it is back, after %v", a.took.Round(time.Second)))
	s.await(1, 30*time.Second)
	require.Equal(t, pod.Name, s.pods()[0].Name, "the same pod")
	require.EqualValues(t, 1, s.pods()[0].Status.ContainerStatuses[0].RestartCount)
	require.EqualValues(t, 1, s.line.most(), "and no other beside it")
}

func TestInitialCooldown(t *testing.T) {
	t.Parallel()
	s := play(t, options{replicas: 1, spec: map[string]any{"initialCooldownPeriod": int64(40)}})
	s.steady(1, 10*time.Second, "a fresh ScaledObject waits its initial cooldown")
	s.await(0, 90*time.Second)
}

func TestMinimumOfOne(t *testing.T) {
	t.Parallel()
	s := play(t, options{spec: map[string]any{"minReplicaCount": int64(1)}})
	s.await(1, 60*time.Second)
	l := s.press(6, 100) // one and a half replicas
	s.await(2, 60*time.Second)
	_, bad := l.end()
	require.Empty(t, bad)
	s.await(1, 90*time.Second)
	s.steady(1, 10*time.Second, "never below the minimum")
}

func TestTwoTriggersOnOneScaledObject(t *testing.T) {
	t.Parallel()
	trigger := func(target string) map[string]any {
		return map[string]any{"type": "external-push", "metricType": "AverageValue", "metadata": map[string]any{
			"targetRequests": target, "modelName": "llama", "coldStart": "3s", "keepAlive": "5s", "scaleDownWindow": "5s",
		}}
	}
	s := play(t, options{spec: map[string]any{"triggers": []any{trigger("4"), trigger("2")}}})
	l := s.press(3, 100)       // one and a half replicas of the second, less than one of the first
	s.await(2, 60*time.Second) // the stricter one wins
	_, bad := l.end()
	require.Empty(t, bad)
	s.await(0, 90*time.Second)
}

func TestScalingModifiers(t *testing.T) {
	t.Parallel()
	s := play(t, options{modifiers: map[string]any{"formula": "vllm", "target": "4", "activationTarget": "0"}})
	l := s.press(6, 100) // one and a half replicas
	s.await(2, 60*time.Second)
	_, bad := l.end()
	require.Empty(t, bad)
	s.await(0, 90*time.Second)
}

// With KEDA 2.19 and later a fallback wakes a model at zero; what it must not do
// is lose the model's replicas while the scaler is away.
func TestFallbackWhileTheScalerIsAway(t *testing.T) {
	t.Parallel()
	s := play(t, options{spec: patient(map[string]any{"fallback": map[string]any{"failureThreshold": int64(2), "replicas": int64(1), "behavior": "currentReplicasIfHigher"}})})
	l := s.press(6, 100) // one and a half replicas
	s.await(2, 60*time.Second)
	s.mark("the scaler is killed")
	require.NoError(t, s.scaler.Kill())
	s.steady(2, 20*time.Second, "the replicas stay")
	s.startScaler()
	_, bad := l.end()
	require.Empty(t, bad)
	s.await(0, 3*time.Minute)
}

func TestHeldRequestsSurviveAMinuteWithoutTheScaler(t *testing.T) {
	t.Parallel()
	s := play(t, options{})
	s.mark("the scaler is killed at zero")
	require.NoError(t, s.scaler.Kill())
	done := make(chan answer, 1)
	go func() { done <- s.ask(context.WithoutCancel(t.Context()), 5) }()
	s.steady(0, time.Minute, "nobody can wake it")
	s.startScaler()
	s.mark("it is back")
	s.good(<-done)
	s.await(0, 90*time.Second)
}
