package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/pilotlight-dev/pilotlight/test/e2e/plane"
)

const wakeNamespace = "wake"

// The models with our trigger, and those with KEDA's prometheus trigger.
func ours(i int) string   { return fmt.Sprintf("ours-%02d", i) }
func theirs(i int) string { return fmt.Sprintf("theirs-%02d", i) }

// createModels creates the namespace with the Deployments at zero, or with a
// scaler the ScaledObjects.
func (s *stage) createModels(ctx context.Context, prometheus string, scaler *subject) error {
	if scaler == nil {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: wakeNamespace}}
		if _, err := s.Client.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err != nil {
			return err // names the namespace
		}
	}
	for i := range wakes {
		for _, name := range []string{ours(i), theirs(i)} {
			var err error
			if scaler == nil {
				_, err = s.Client.AppsV1().Deployments(wakeNamespace).Create(ctx, deployment(name), metav1.CreateOptions{})
			} else {
				_, err = s.Dyn.Resource(plane.ScaledObjects).Namespace(wakeNamespace).Create(ctx, scaledObject(name, scaler.keda, name == theirs(i), prometheus), metav1.CreateOptions{})
			}
			if err != nil {
				return err // names the object
			}
		}
	}
	return nil
}

func deployment(name string) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	replicas := int32(0)
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: appsv1.DeploymentSpec{
		Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
			NodeName: "nowhere", Containers: []corev1.Container{{Name: "vllm", Image: "vllm"}},
		}},
	}}
}

// scaledObject is a model's. With the prometheus trigger ours is there as well,
// in shadow mode, so that the activator knows the model and the scaler has no
// say.
func scaledObject(name, scaler string, peer bool, prometheus string) *unstructured.Unstructured {
	metadata := map[string]any{"scalerAddress": scaler, "targetRequests": "4", "modelName": name}
	triggers := []any{map[string]any{"type": "external-push", "metricType": "AverageValue", "metadata": metadata}}
	if peer {
		metadata["mode"] = "shadow"
		triggers = append([]any{map[string]any{"type": "prometheus", "metricType": "AverageValue", "metadata": map[string]any{
			"serverAddress": prometheus, "threshold": "4", "activationThreshold": "0",
			"query": fmt.Sprintf(`sum(pilotlight_activator_held_requests{namespace=%q,scaled_object=%q})`, wakeNamespace, name),
		}}}, triggers...)
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "metadata": map[string]any{"name": name, "namespace": wakeNamespace},
		"spec": map[string]any{
			"scaleTargetRef": map[string]any{"name": name}, "minReplicaCount": int64(0), "maxReplicaCount": int64(4),
			"pollingInterval": int64(pollingInterval.Seconds()), "triggers": triggers,
		},
	}}
}

// scaledObjectsReady says which ScaledObject KEDA has not taken up yet: a push
// for one whose metric is not in its status is dropped.
func (s *stage) scaledObjectsReady(ctx context.Context) error {
	list, err := s.Dyn.Resource(plane.ScaledObjects).Namespace(wakeNamespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, o := range list.Items {
		names, _, _ := unstructured.NestedStringSlice(o.Object, "status", "externalMetricNames")
		triggers, _, _ := unstructured.NestedSlice(o.Object, "spec", "triggers")
		conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
		ready := false
		for _, one := range conditions {
			c, _ := one.(map[string]any)
			ready = ready || c["type"] == "Ready" && c["status"] == "True"
		}
		if !ready || len(names) != len(triggers) {
			return fmt.Errorf("KEDA has not taken up %s: %v, metrics %v", o.GetName(), conditions, names)
		}
	}
	return nil
}

// Changes are the moments at which Deployments first asked for a replica.
type changes struct {
	mu    sync.Mutex
	first map[string]time.Time
	more  chan struct{} // closed at the next
}

// watch begins to note changes, until ctx ends.
func watch(ctx context.Context, p *plane.Plane) (*changes, error) {
	w, err := p.Client.AppsV1().Deployments(wakeNamespace).Watch(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("watching the Deployments: %w", err)
	}
	c := &changes{first: map[string]time.Time{}, more: make(chan struct{})}
	go func() {
		for e := range w.ResultChan() { // ends with ctx
			if d, ok := e.Object.(*appsv1.Deployment); ok && *d.Spec.Replicas > 0 {
				c.note(d.Name, time.Now())
			}
		}
	}()
	return c, nil
}

func (c *changes) note(name string, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.first[name]; !ok {
		c.first[name] = now
		close(c.more)
		c.more = make(chan struct{})
	}
}

// at is when a Deployment first asked for a replica, nil if it has not.
func (c *changes) at(name string) *time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at, ok := c.first[name]; ok {
		return &at
	}
	return nil
}

// next is closed when one more asks.
func (c *changes) next() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.more
}
