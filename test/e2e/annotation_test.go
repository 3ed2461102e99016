package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/pilotlight-dev/pilotlight/test/e2e/plane"
)

// annotate sets one of KEDA's annotations of the ScaledObject; "" removes it.
func (s *scenario) annotate(key, value string) {
	s.t.Helper()
	annotations := map[string]any{"autoscaling.keda.sh/" + key: value}
	if value == "" {
		annotations["autoscaling.keda.sh/"+key] = nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": annotations}})
	require.NoError(s.t, err)
	_, err = s.Dyn.Resource(plane.ScaledObjects).Namespace(s.ns).Patch(s.t.Context(), "llama", types.MergePatchType, patch, metav1.PatchOptions{})
	require.NoError(s.t, err)
	s.mark(key + "=" + value)
}

// awaitHPA waits until KEDA has disabled a direction of its HPA, as it does when it
// has seen the annotation.
func (s *scenario) awaitHPA(what string, direction func(*autoscalingv2.HorizontalPodAutoscalerBehavior) *autoscalingv2.HPAScalingRules) {
	s.t.Helper()
	eventually(s.t, 30*time.Second, what, func() (string, bool) {
		hpa, err := s.Client.AutoscalingV2().HorizontalPodAutoscalers(s.ns).Get(s.t.Context(), "keda-hpa-llama", metav1.GetOptions{})
		if err != nil || hpa.Spec.Behavior == nil {
			return fmt.Sprint(err), false
		}
		rules := direction(hpa.Spec.Behavior)
		return fmt.Sprint(rules), rules != nil && rules.SelectPolicy != nil && *rules.SelectPolicy == autoscalingv2.DisabledPolicySelect
	})
}

// patientStart is for scenarios that demand exactly one pod for a while: a start
// that a busy machine makes longer orders no other beside it, and the pod stays
// until KEDA has seen the annotation.
var patientStart = map[string]string{"coldStart": "10s", "keepAlive": "25s"}

func TestPausedIsLeftAlone(t *testing.T) {
	t.Parallel()
	s := play(t, options{trigger: patientStart})
	s.good(s.ask(t.Context(), 5))
	s.await(1, 30*time.Second)
	s.annotate("paused", "true")
	eventually(t, 30*time.Second, "KEDA has paused", func() (string, bool) { c := s.conditions(); return "", c["Paused"] == "True" })
	s.steady(1, time.Minute, "nobody scales what is paused, however idle")
	s.annotate("paused", "")
	s.await(0, 90*time.Second)
}

func TestPausedAtANumber(t *testing.T) {
	t.Parallel()
	s := play(t, options{})
	s.annotate("paused-replicas", "2")
	s.await(2, 60*time.Second)
	s.good(s.ask(t.Context(), 5))
	s.steady(2, 10*time.Second, "it stays at what was asked for")
	s.annotate("paused-replicas", "")
	s.await(0, 120*time.Second)
}

func TestPausedScaleOut(t *testing.T) {
	t.Parallel()
	s := play(t, options{})
	s.annotate("paused-scale-out", "true")
	s.awaitHPA("scaling up is disabled", func(b *autoscalingv2.HorizontalPodAutoscalerBehavior) *autoscalingv2.HPAScalingRules {
		return b.ScaleUp
	})
	done := make(chan answer, 1)
	go func() { done <- s.ask(context.WithoutCancel(t.Context()), 5) }()
	s.steady(0, 10*time.Second, "a request wakes nothing")
	s.annotate("paused-scale-out", "")
	s.good(<-done) // it was held meanwhile
	s.await(0, 90*time.Second)
}

func TestPausedScaleIn(t *testing.T) {
	t.Parallel()
	s := play(t, options{trigger: patientStart})
	s.good(s.ask(t.Context(), 5))
	s.await(1, 30*time.Second)
	s.annotate("paused-scale-in", "true")
	s.awaitHPA("scaling down is disabled", func(b *autoscalingv2.HorizontalPodAutoscalerBehavior) *autoscalingv2.HPAScalingRules {
		return b.ScaleDown
	})
	eventually(t, 90*time.Second, "the scaler wants none", func() (string, bool) {
		d := s.decision()
		return s.says(), d != nil && d.Replicas != nil && *d.Replicas == 0
	})
	s.steady(1, 15*time.Second, "and yet it stays")
	s.annotate("paused-scale-in", "")
	s.await(0, 90*time.Second)
}

func TestForcedActivation(t *testing.T) {
	t.Parallel()
	s := play(t, options{trigger: patientStart})
	s.annotate("force-activation", "true")
	s.await(1, 60*time.Second)
	s.steady(1, 15*time.Second, "one without any request, and no more")
	s.annotate("force-activation", "")
	s.await(0, 90*time.Second)
}
