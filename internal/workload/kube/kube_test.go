package kube

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	scalefake "k8s.io/client-go/scale/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/pilotlight-dev/pilotlight/internal/workload"
)

var (
	llama   = workload.Ref{Namespace: "ai", Name: "llama"}
	created = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
)

func scaledObject(spec map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject",
		"metadata": map[string]any{"namespace": "ai", "name": "llama", "generation": int64(1)},
		"spec":     spec,
	}}
}

func pod(name string, change func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ai", Name: name, Labels: map[string]string{"app": "llama"}, CreationTimestamp: metav1.Time{Time: created},
	}}
	change(p)
	return p
}

// cluster starts a Source over fakes that hold the objects.
func cluster(t *testing.T, so *unstructured.Unstructured, scaleErr error, objects ...runtime.Object) *Source {
	t.Helper()
	dyn := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{ScaledObjects: "ScaledObjectList"}, so)
	scales := &scalefake.FakeScaleClient{}
	scales.AddReactor("get", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if scaleErr != nil {
			return true, nil, scaleErr
		}
		get, ok := a.(clienttesting.GetAction)
		if !ok || get.GetResource().Resource != "deployments" || get.GetName() != "vllm" {
			return true, nil, apierrors.NewNotFound(a.GetResource().GroupResource(), "scale")
		}
		return true, &autoscalingv1.Scale{Status: autoscalingv1.ScaleStatus{Selector: "app=llama"}}, nil
	})
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}, meta.RESTScopeNamespace)
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	s := New(ctx, Options{Dynamic: dyn, Client: fake.NewClientset(objects...), Scales: scales, Mapper: mapper})
	require.Eventually(t, s.Synced, 30*time.Second, time.Millisecond)
	return s
}

// once is llama as soon as its pods have been listed: a busy machine may take
// longer for that than one question waits.
func once(t *testing.T, s *Source) (w workload.Workload) {
	t.Helper()
	var err error
	require.Eventually(t, func() bool {
		w, err = s.Workload(t.Context(), llama, "")
		return !errors.Is(err, workload.ErrNotReady)
	}, 30*time.Second, time.Millisecond)
	require.NoError(t, err)
	return w
}

func TestWorkload(t *testing.T) {
	ready := func(at time.Time) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Status.PodIP = "10.0.0.1"
			p.Labels["pod-template-hash"] = "5d4f"
			p.Status.Conditions = []corev1.PodCondition{
				{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Time{Time: created.Add(time.Second)}},
				{Type: corev1.PodInitialized, Status: corev1.ConditionFalse, LastTransitionTime: metav1.Time{Time: created.Add(time.Second)}},
				{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Time{Time: at}},
			}
		}
	}
	s := cluster(t, scaledObject(map[string]any{
		"scaleTargetRef": map[string]any{"name": "vllm"}, "maxReplicaCount": int64(4),
		"triggers": []any{
			map[string]any{"type": "cron", "metadata": map[string]any{"timezone": "UTC"}},
			map[string]any{"type": "external-push", "metadata": map[string]any{"targetRequests": "4", "modelName": "llama"}},
		},
	}), nil,
		pod("a", ready(created.Add(time.Minute))),
		pod("b", func(*corev1.Pod) {}),
		pod("c", func(p *corev1.Pod) {
			ready(created)(p)
			p.DeletionTimestamp, p.Finalizers = &metav1.Time{Time: created}, []string{"x"}
		}),
		pod("d", func(p *corev1.Pod) { // was Ready, and is not any more
			ready(time.Time{})(p)
			p.Status.Conditions[2].Status, p.Status.Conditions[2].LastTransitionTime = corev1.ConditionFalse, metav1.Time{Time: created.Add(2 * time.Hour)}
		}),
		pod("e", func(p *corev1.Pod) { // never was: so the kubelet said when it first heard of it
			ready(time.Time{})(p)
			p.Status.Conditions[2].Status, p.Status.Conditions[2].LastTransitionTime = corev1.ConditionFalse, metav1.Time{Time: created.Add(20 * time.Second)}
		}),
		pod("other", func(p *corev1.Pod) { p.Labels = nil }),
	)
	got := once(t, s)
	want := workload.Workload{
		Ref: llama, MaxReplicas: 4, Replicas: 4, Cooldown: 300 * time.Second, Tolerance: 0.1,
		Metadata: map[string]string{"targetRequests": "4", "modelName": "llama"},
		Pods: []workload.Pod{
			{Name: "a", Host: "10.0.0.1", Created: created, Scheduled: created.Add(time.Second), ReadyAt: created.Add(time.Minute), Template: "5d4f"},
			{Name: "b", Created: created},
			{Name: "c", Host: "10.0.0.1", Created: created, Scheduled: created.Add(time.Second), ReadyAt: created, Template: "5d4f", Terminating: true},
			{Name: "d", Host: "10.0.0.1", Created: created, Scheduled: created.Add(time.Second), LostAt: created.Add(2 * time.Hour), Template: "5d4f"},
			{Name: "e", Host: "10.0.0.1", Created: created, Scheduled: created.Add(time.Second), Template: "5d4f"},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	got, err := s.Workload(t.Context(), llama, "app!=llama")
	require.NoError(t, err)
	require.Len(t, got.Pods, 1, "podSelector takes the place of the target's own")
}

func TestCooldownAndTolerance(t *testing.T) {
	behavior := func(up, down any) map[string]any {
		rules := map[string]any{}
		for name, v := range map[string]any{"scaleUp": up, "scaleDown": down} {
			if v != nil {
				rules[name] = map[string]any{"tolerance": v}
			}
		}
		return map[string]any{"cooldownPeriod": int64(30), "advanced": map[string]any{"horizontalPodAutoscalerConfig": map[string]any{"behavior": rules}}}
	}
	cases := map[string]struct {
		up, down any
		want     float64
	}{
		"Both":     {"0", int64(0), 0},
		"Milli":    {"50m", "20m", 0.05},
		"OnlyDown": {nil, "0", 0.1},
		"Nonsense": {"lots", "0", 0.1},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := describe(llama, scaledObject(behavior(tc.up, tc.down)))
			require.InDelta(t, tc.want, w.Tolerance, 1e-9)
			require.Equal(t, 30*time.Second, w.Cooldown)
		})
	}
}

func TestAllListsOnlyOurTriggers(t *testing.T) {
	target := map[string]any{"name": "vllm"}
	s := cluster(t, scaledObject(map[string]any{"scaleTargetRef": target, "triggers": []any{
		map[string]any{"type": "external", "metadata": map[string]any{"targetRequests": "4"}},
	}}), nil, pod("a", func(*corev1.Pod) {}))
	once(t, s)
	all, err := s.All(t.Context())
	require.NoError(t, err)
	require.Len(t, all, 1)
	require.Len(t, all[0].Pods, 1)

	foreign := cluster(t, scaledObject(map[string]any{"scaleTargetRef": target, "triggers": []any{
		map[string]any{"type": "prometheus", "metadata": map[string]any{"threshold": "4"}},
		map[string]any{"type": "external", "metadata": map[string]any{"scalerAddress": "elsewhere:1"}},
	}}), nil)
	all, err = foreign.All(t.Context())
	require.NoError(t, err)
	require.Empty(t, all)
}

// An edit with a slip in it does not make a target anybody else's: it is still
// listed, with its pods, and with what it says.
func TestASlipInATriggerLosesNoTarget(t *testing.T) {
	for name, metadata := range map[string]map[string]any{
		"NoNumber":     {"targetRequests": "many", "modelName": "llama"},
		"Misspelt":     {"targetRequest": "4", "modelName": "llama"},
		"Empty":        {"targetRequests": "", "modelName": "llama"},
		"OtherIsAway":  {"targetRequests": "4"},
		"PodSelector":  {"targetRequests": "4", "modelName": "llama", "podSelector": "app in (llama"},
		"ItIsAForeign": {"metricName": "x"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			object := func(metadata map[string]any) *unstructured.Unstructured {
				so := scaledObject(map[string]any{
					"scaleTargetRef": map[string]any{"name": "vllm"},
					"triggers":       []any{map[string]any{"type": "external-push", "metadata": metadata}},
				})
				return so
			}
			s := cluster(t, object(map[string]any{"targetRequests": "4", "modelName": "llama", "podSelector": "app in (llama)"}), nil, pod("a", func(*corev1.Pod) {}))
			listed := func() []workload.Workload {
				all, err := s.All(t.Context())
				require.NoError(t, err)
				return all
			}
			require.Eventually(t, func() bool { all := listed(); return len(all) == 1 && len(all[0].Pods) == 1 }, 30*time.Second, time.Millisecond)
			edited := object(metadata)
			edited.SetGeneration(2)
			_, err := s.opts.Dynamic.Resource(ScaledObjects).Namespace("ai").Update(t.Context(), edited, metav1.UpdateOptions{})
			require.NoError(t, err)
			require.Eventually(t, func() bool {
				so, err := s.object(llama)
				return err == nil && so.GetGeneration() == 2
			}, 30*time.Second, time.Millisecond)
			if name == "ItIsAForeign" {
				require.Empty(t, listed())
				return
			}
			all := listed()
			require.Len(t, all, 1)
			require.Len(t, all[0].Pods, 1)
		})
	}
}

func TestWorkloadErrors(t *testing.T) {
	target := map[string]any{"scaleTargetRef": map[string]any{"name": "vllm"}}
	forbidden := apierrors.NewForbidden(schema.GroupResource{Group: "apps", Resource: "deployments/scale"}, "vllm", nil)
	cases := map[string]struct {
		spec     map[string]any
		scaleErr error
		selector string
		is       error
		says     string
	}{
		"Forbidden":    {spec: target, scaleErr: forbidden, is: workload.ErrForbidden, says: "deployments.apps/vllm"},
		"NoTarget":     {spec: map[string]any{"scaleTargetRef": map[string]any{"name": "gone"}}, is: workload.ErrNotFound, says: "gone"},
		"UnknownKind":  {spec: map[string]any{"scaleTargetRef": map[string]any{"name": "x", "kind": "Rocket", "apiVersion": "space/v1"}}, says: "Rocket"},
		"BadSelector":  {spec: target, selector: "a in (", says: "podSelector"},
		"BadTargetRef": {spec: map[string]any{"scaleTargetRef": map[string]any{"apiVersion": "a/b/c"}}, says: "scaleTargetRef"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := cluster(t, scaledObject(tc.spec), tc.scaleErr)
			_, err := s.Workload(t.Context(), llama, tc.selector)
			require.ErrorContains(t, err, tc.says)
			if tc.is != nil {
				require.ErrorIs(t, err, tc.is)
			}
		})
	}
	s := cluster(t, scaledObject(target), nil)
	_, err := s.Workload(t.Context(), workload.Ref{Namespace: "ai", Name: "none"}, "")
	require.ErrorIs(t, err, workload.ErrNotFound)
}

func TestFailure(t *testing.T) {
	waiting := func(reason, message string) corev1.PodStatus {
		c := corev1.ContainerStatus{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}}
		if message != "" {
			c.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{Message: message}
		}
		return corev1.PodStatus{InitContainerStatuses: []corev1.ContainerStatus{c}}
	}
	cases := map[string]struct {
		status corev1.PodStatus
		want   workload.Failure
	}{
		"Creating":  {waiting("ContainerCreating", ""), workload.FailureNone},
		"Image":     {waiting("ImagePullBackOff", ""), workload.FailureImage},
		"Crash":     {waiting("CrashLoopBackOff", "Traceback ..."), workload.FailureCrash},
		"CrashBare": {waiting("CrashLoopBackOff", ""), workload.FailureCrash},
		"Pointer":   {waiting("CrashLoopBackOff", `{"code":3,"reason":"no such alias","ref":"models:/llama@champion"}`), workload.FailurePointer},
		"Integrity": {waiting("CrashLoopBackOff", `{"code":4,"reason":"x","ref":"models:/llama@champion"}`), workload.FailureIntegrity},
		"NoSpace":   {waiting("CrashLoopBackOff", `{"code":5,"reason":"x","ref":"models:/llama@champion"}`), workload.FailureNoSpace},
		"Registry":  {waiting("CrashLoopBackOff", `{"code":6,"reason":"x","ref":"models:/llama@champion"}`), workload.FailureStore},
		"Store":     {waiting("CrashLoopBackOff", `{"code":7,"reason":"x","ref":"models:/llama@champion"}`), workload.FailureStore},
		"Restarts":  {waiting("CrashLoopBackOff", `{"code":88,"reason":"x","ref":"models:/llama@champion"}`), workload.FailureNone},
		"OtherCode": {waiting("CrashLoopBackOff", `{"code":1,"reason":"x","ref":"models:/llama@champion"}`), workload.FailureCrash},
		"NotOurs":   {waiting("CrashLoopBackOff", `{"code":3}`), workload.FailureCrash},
		"Unschedulable": {corev1.PodStatus{Conditions: []corev1.PodCondition{
			{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable},
		}}, workload.FailureUnschedulable},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, _ := failure(&corev1.Pod{Status: tc.status})
			require.Equal(t, tc.want, got)
		})
	}
}

// What is known of a failure is one line, and the fetcher's is known before the
// kubelet calls it a crash loop.
func TestFailureDetail(t *testing.T) {
	ended := func(code int32, message string) corev1.ContainerState {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Message: message}}
	}
	said := func(code int) string {
		return fmt.Sprintf(`{"code":%d,"reason":"no such\nalias","ref":"models:/llama@champion"}`, code)
	}
	cases := map[string]struct {
		c      corev1.ContainerStatus
		want   workload.Failure
		detail string
	}{
		"Pointer":   {corev1.ContainerStatus{Name: "fetch", State: ended(3, said(3))}, workload.FailurePointer, "models:/llama@champion: no such alias"},
		"Usage":     {corev1.ContainerStatus{Name: "fetch", State: ended(2, said(2))}, workload.FailureCrash, "models:/llama@champion: no such alias"},
		"NoSpace":   {corev1.ContainerStatus{Name: "fetch", State: ended(5, said(5))}, workload.FailureNoSpace, "models:/llama@champion: no such alias"},
		"Store":     {corev1.ContainerStatus{Name: "fetch", State: ended(7, said(7))}, workload.FailureNone, ""},
		"Hiccup":    {corev1.ContainerStatus{Name: "fetch", State: ended(1, said(1))}, workload.FailureNone, ""},
		"InTheWay":  {corev1.ContainerStatus{Name: "fetch", State: ended(9, said(9))}, workload.FailureNone, ""},
		"Restarts":  {corev1.ContainerStatus{Name: "agent", State: ended(88, said(88))}, workload.FailureNone, ""},
		"Done":      {corev1.ContainerStatus{Name: "fetch", State: ended(0, said(3))}, workload.FailureNone, ""},
		"Elsewhere": {corev1.ContainerStatus{Name: "vllm", State: ended(3, "Traceback")}, workload.FailureNone, ""},
		"Image": {
			corev1.ContainerStatus{Name: "vllm", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "not\n found"}}},
			workload.FailureImage, "vllm: ErrImagePull: not found",
		},
		"Crash": {
			corev1.ContainerStatus{
				Name: "vllm", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
				LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "OOMKilled"}},
			},
			workload.FailureCrash, "vllm: exit code 137 OOMKilled",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, detail := failure(&corev1.Pod{Status: corev1.PodStatus{InitContainerStatuses: []corev1.ContainerStatus{tc.c}}})
			require.Equal(t, tc.want, got)
			require.Equal(t, tc.detail, detail)
		})
	}
	require.Len(t, oneLine(strings.Repeat("x", 1000)), 303)
}

func TestAgentsAndTriggers(t *testing.T) {
	follows := func(ip, port string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Labels[RefHashLabel], p.Status.PodIP = "0123456789", ip
			if port != "" {
				p.Annotations = map[string]string{PortAnnotation: port, "other": "x"}
			}
		}
	}
	metadata := map[string]any{"targetRequests": "4", "modelName": "llama"}
	s := cluster(t, scaledObject(map[string]any{"scaleTargetRef": map[string]any{"name": "vllm"}, "triggers": []any{
		map[string]any{"type": "external-push", "metadata": metadata},
	}}), nil,
		pod("a", follows("10.0.0.1", "")), pod("b", follows("10.0.0.2", "9500")), pod("c", follows("10.0.0.3", "22")), pod("d", follows("", "")),
		pod("e", func(p *corev1.Pod) { p.Status.PodIP = "10.0.0.5" }),
		pod("f", func(p *corev1.Pod) { follows("10.0.0.6", "")(p); p.Status.Phase = corev1.PodFailed }),
	)
	require.Empty(t, s.Agents("0123456789"), "no namespace is watched yet")
	once(t, s)
	following := []workload.Agent{
		{Namespace: "ai", Pod: "a", Host: "10.0.0.1", Port: DefaultAgentPort, RefHash: "0123456789"}, {Namespace: "ai", Pod: "b", Host: "10.0.0.2", Port: 9500, RefHash: "0123456789"},
	}
	require.Equal(t, following, s.Agents("0123456789"), "neither a privileged port, nor without an address, nor ended")
	require.Empty(t, s.Agents("another"))
	require.Equal(t, following, s.AllAgents(), "and nobody who follows nothing")
	triggers, err := s.Triggers(t.Context())
	require.NoError(t, err)
	require.Equal(t, []workload.Trigger{{Ref: llama, Metadata: map[string]string{"targetRequests": "4", "modelName": "llama"}}}, triggers)
}

// What the cache drops, convert and the selectors do not miss.
func TestTrimKeepsWhatIsRead(t *testing.T) {
	full := pod("a", func(p *corev1.Pod) {
		p.Spec.Containers = []corev1.Container{{Name: "vllm", Image: "big"}}
		p.Annotations = map[string]string{"x": "y", CostAnnotation: "-3"}
		p.Status.Phase, p.Status.PodIP = corev1.PodFailed, "10.0.0.9"
	})
	trimmed, err := trimPod(full)
	require.NoError(t, err)
	small, ok := trimmed.(*corev1.Pod)
	require.True(t, ok)
	require.Equal(t, convert(full), convert(small))
	require.Equal(t, full.Labels, small.Labels)
	require.Empty(t, small.Spec.Containers)
	require.Equal(t, map[string]string{CostAnnotation: "-3"}, small.Annotations)
	require.Equal(t, -3, *convert(small).Cost)
	require.True(t, convert(small).Terminating, "a pod that has ended cannot serve")
}
