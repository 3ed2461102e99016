package kube

import (
	"fmt"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/pilotlight-dev/pilotlight/internal/workload"
)

var metaGet = metav1.GetOptions{}

const (
	defaultMax       = 100               // KEDA's maxReplicaCount where the ScaledObject gives none
	defaultCooldown  = 300 * time.Second // KEDA's cooldownPeriod
	defaultTolerance = 0.1               // the HPA controller's
)

// describe reads the bounds and triggers of a ScaledObject.
func describe(ref workload.Ref, so *unstructured.Unstructured) workload.Workload {
	w := workload.Workload{Ref: ref, UID: string(so.GetUID()), MaxReplicas: defaultMax, Replicas: workload.Unknown}
	if n, ok, _ := unstructured.NestedInt64(so.Object, "spec", "minReplicaCount"); ok {
		w.MinReplicas = int(n)
	}
	if n, ok, _ := unstructured.NestedInt64(so.Object, "spec", "maxReplicaCount"); ok {
		w.MaxReplicas = int(n)
	}
	w.Cooldown = defaultCooldown
	if n, ok, _ := unstructured.NestedInt64(so.Object, "spec", "cooldownPeriod"); ok {
		w.Cooldown = time.Duration(n) * time.Second
	}
	w.Tolerance = max(tolerance(so, "scaleUp"), tolerance(so, "scaleDown"))
	w.Metadata, w.SoleTrigger = own(so)
	return w
}

// own is the metadata of a ScaledObject's first trigger of ours, nil without
// one, and whether there is no other trigger. Ours has one of the two keys that
// every trigger of ours has: with a slip in the other it is ours all the same.
func own(so *unstructured.Unstructured) (metadata map[string]string, sole bool) {
	v, _, _ := unstructured.NestedFieldNoCopy(so.Object, "spec", "triggers")
	triggers, _ := v.([]any)
	sole = len(triggers) <= 1
	for _, t := range triggers {
		fields, ok := t.(map[string]any)
		if !ok || (fields["type"] != "external" && fields["type"] != "external-push") {
			continue
		}
		metadata, _, _ = unstructured.NestedStringMap(fields, "metadata")
		for _, key := range []string{"targetRequests", "modelName"} {
			if _, ours := metadata[key]; ours {
				return metadata, sole
			}
		}
	}
	return nil, sole
}

// tolerance reads behavior.<direction>.tolerance, a quantity; the controller's
// default where there is none.
func tolerance(so *unstructured.Unstructured, direction string) float64 {
	v, ok, err := unstructured.NestedFieldNoCopy(so.Object, "spec", "advanced", "horizontalPodAutoscalerConfig", "behavior", direction, "tolerance")
	if !ok || err != nil {
		return defaultTolerance
	}
	q, err := resource.ParseQuantity(fmt.Sprint(v))
	if err != nil {
		return defaultTolerance
	}
	return min(max(q.AsApproximateFloat64(), 0), 0.5)
}

// neverReadyFor tells a pod that has ceased to be Ready from one that never was: of a
// new pod the kubelet says that it is not Ready when it first hears of it, which
// is seconds after it was scheduled, and the condition does not change again
// before it is true. A pod that was Ready for less than this is taken for one that
// never was.
const neverReadyFor = time.Minute

// convert keeps of a pod what a decision needs.
func convert(p *corev1.Pod) workload.Pod {
	out := workload.Pod{
		Cost: cost(p), Name: p.Name, Host: p.Status.PodIP, Created: p.CreationTimestamp.Time, Template: p.Labels[appsv1.DefaultDeploymentUniqueLabelKey],
		Terminating: p.DeletionTimestamp != nil || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed,
	}
	var notReady time.Time
	for _, c := range p.Status.Conditions {
		if c.Status != corev1.ConditionTrue {
			if c.Type == corev1.PodReady {
				notReady = c.LastTransitionTime.Time
			}
			continue
		}
		switch at := c.LastTransitionTime.Time; c.Type {
		case corev1.PodScheduled:
			out.Scheduled = at
		case corev1.PodInitialized:
			out.Initialised = at
		case corev1.PodReady:
			out.ReadyAt = at
		}
	}
	if !out.Scheduled.IsZero() && notReady.After(out.Scheduled.Add(neverReadyFor)) {
		out.LostAt = notReady
	}
	if out.ReadyAt.IsZero() {
		out.Failure, out.Detail = failure(p)
	}
	return out
}

// Annotations of pods that are read.
const (
	// CostAnnotation is Kubernetes' own: of the pods of a ReplicaSet that are
	// alike otherwise, the one with the lowest goes first.
	CostAnnotation = "controller.kubernetes.io/pod-deletion-cost"
	// PortAnnotation says where the agent in a pod listens; DefaultAgentPort
	// without it.
	PortAnnotation   = "pilotlight.dev/agent-port"
	DefaultAgentPort = 9400
	// RefHashLabel holds the first ten hex digits of the SHA-256 of the model
	// reference that the pod's agent follows.
	RefHashLabel = "pilotlight.dev/ref-hash"
)

// cost reads the deletion cost of a pod.
func cost(p *corev1.Pod) *int {
	n, err := strconv.Atoi(p.Annotations[CostAnnotation])
	if err != nil {
		return nil
	}
	return &n
}

// agent is where a pod's agent listens; false while it has no address, or asks
// for a port that no unprivileged program has.
func agent(p *corev1.Pod) (workload.Agent, bool) {
	port := DefaultAgentPort
	if v, ok := p.Annotations[PortAnnotation]; ok {
		n, err := strconv.Atoi(v)
		if err != nil || n < 1024 || n > 65535 {
			return workload.Agent{}, false
		}
		port = n
	}
	running := p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed
	return workload.Agent{Namespace: p.Namespace, Pod: p.Name, Host: p.Status.PodIP, Port: port, RefHash: p.Labels[RefHashLabel]}, running && p.Status.PodIP != ""
}

// trimPod drops from a cached pod what convert and the selectors do not read.
func trimPod(obj any) (any, error) {
	p, ok := obj.(*corev1.Pod)
	if !ok {
		return obj, nil
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: p.Name, Namespace: p.Namespace, UID: p.UID, ResourceVersion: p.ResourceVersion,
			Annotations: keepAnnotations(p.Annotations), Labels: p.Labels, CreationTimestamp: p.CreationTimestamp, DeletionTimestamp: p.DeletionTimestamp,
		},
		Status: corev1.PodStatus{
			Phase: p.Status.Phase, PodIP: p.Status.PodIP, Conditions: p.Status.Conditions,
			InitContainerStatuses: p.Status.InitContainerStatuses, ContainerStatuses: p.Status.ContainerStatuses,
		},
	}, nil
}

func keepAnnotations(all map[string]string) map[string]string {
	var kept map[string]string
	for _, key := range []string{CostAnnotation, PortAnnotation} {
		if v, ok := all[key]; ok {
			if kept == nil {
				kept = map[string]string{}
			}
			kept[key] = v
		}
	}
	return kept
}

func dropManagedFields(obj any) (any, error) {
	if accessor, err := meta.Accessor(obj); err == nil {
		accessor.SetManagedFields(nil)
	}
	return obj, nil
}
