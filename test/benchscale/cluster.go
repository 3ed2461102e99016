package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/pilotlight-dev/pilotlight/test/e2e/plane"
)

// writers write to the API server at the same time.
const writers = 32

// A cluster is an API server that holds a fleet.
type cluster struct {
	*plane.Plane
	fleet  fleet
	client kubernetes.Interface
	dyn    dynamic.Interface
}

// fill starts an API server and creates the fleet in it. Nothing else acts
// there: pods are Ready because their status says so.
func fill(ctx context.Context, f fleet, c config) (*cluster, error) {
	p, err := plane.Start(ctx, plane.Options{Bin: c.bin, CRDs: c.crds, Dir: filepath.Join(c.dir, "plane"), StoreOnly: true})
	if err != nil {
		return nil, err
	}
	out := &cluster{Plane: p, fleet: f}
	if err := out.create(ctx); err != nil {
		p.Close()
		return nil, fmt.Errorf("creating the fleet: %w", err)
	}
	return out, nil
}

func (c *cluster) create(ctx context.Context) (err error) {
	fast := rest.CopyConfig(c.Config)
	fast.QPS = -1 // no limit
	if c.client, err = kubernetes.NewForConfig(fast); err != nil {
		return err
	}
	if c.dyn, err = dynamic.NewForConfig(fast); err != nil {
		return err
	}
	for n := range c.fleet.namespaces {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.fleet.namespace(n)}}
		if _, err := c.client.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err != nil {
			return err // names the namespace
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	for i := range c.fleet.objects {
		group.Go(func() error { return c.object(ctx, i) })
	}
	return group.Wait()
}

// object creates a ScaledObject with its Deployment and pods.
func (c *cluster) object(ctx context.Context, i int) error {
	ref := c.fleet.ref(i)
	first, end := c.fleet.podsOf(i)
	var pod corev1.Pod
	text := strings.NewReplacer("NAME", ref.Name, "MODEL", c.fleet.model(i)).Replace(podYAML)
	if err := yaml.UnmarshalStrict([]byte(text), &pod); err != nil {
		return err
	}
	replicas := int32(end - first) //nolint:gosec // a handful
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: ref.Name}, Spec: appsv1.DeploymentSpec{
		Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app.kubernetes.io/instance": ref.Name}},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: pod.Labels}, Spec: pod.Spec},
	}}
	if _, err := c.client.AppsV1().Deployments(ref.Namespace).Create(ctx, d, metav1.CreateOptions{}); err != nil {
		return err // names the Deployment, as below
	}
	if _, err := c.dyn.Resource(plane.ScaledObjects).Namespace(ref.Namespace).Create(ctx, c.scaledObject(i), metav1.CreateOptions{}); err != nil {
		return err
	}
	for k := first; k < end; k++ {
		if err := c.pod(ctx, pod, k); err != nil {
			return err
		}
	}
	return nil
}

func (c *cluster) scaledObject(i int) *unstructured.Unstructured {
	metadata := map[string]any{}
	for k, v := range c.fleet.metadata(i) {
		metadata[k] = v
	}
	ref := c.fleet.ref(i)
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject",
		"metadata": map[string]any{"name": ref.Name, "namespace": ref.Namespace},
		"spec": map[string]any{
			"scaleTargetRef": map[string]any{"name": ref.Name}, "minReplicaCount": int64(0), "maxReplicaCount": int64(maxReplicas),
			"triggers": []any{map[string]any{"type": "external-push", "metricType": "AverageValue", "metadata": metadata}},
		},
	}}
}

// pod creates pod k and says that it is Ready.
func (c *cluster) pod(ctx context.Context, pod corev1.Pod, k int) error {
	pod.Name = c.fleet.pod(k)
	pods := c.client.CoreV1().Pods(c.fleet.ref(c.fleet.objectOf(k)).Namespace)
	made, err := pods.Create(ctx, &pod, metav1.CreateOptions{})
	if err != nil {
		return err // names the pod, as below
	}
	now := metav1.Now()
	host := c.fleet.host(k)
	made.Status = corev1.PodStatus{
		Phase: corev1.PodRunning, PodIP: host, PodIPs: []corev1.PodIP{{IP: host}}, StartTime: &now,
		Conditions: []corev1.PodCondition{ready(corev1.PodScheduled, now), ready(corev1.PodInitialized, now), ready(corev1.ContainersReady, now), ready(corev1.PodReady, now)},
		InitContainerStatuses: []corev1.ContainerStatus{
			{Name: "fetch", Ready: true, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Completed", StartedAt: now, FinishedAt: now}}},
			{Name: "agent", Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}}},
		},
		ContainerStatuses: []corev1.ContainerStatus{{Name: "vllm", Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}}}},
	}
	_, err = pods.UpdateStatus(ctx, made, metav1.UpdateOptions{})
	return err
}

func ready(kind corev1.PodConditionType, now metav1.Time) corev1.PodCondition {
	return corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: now}
}

// podYAML is a pod about as large as the chart's.
const podYAML = `
metadata:
  labels:
    app.kubernetes.io/name: vllm-model
    app.kubernetes.io/instance: NAME
    app.kubernetes.io/managed-by: Helm
    helm.sh/chart: vllm-model-1.0.0
    pod-template-hash: 5d8f7c9b64
    pilotlight.dev/ref-hash: "0123456789"
  annotations: {pilotlight.dev/ref: "models:/NAME@champion", pilotlight.dev/model-version: "12", prometheus.io/scrape: "true"}
spec:
  nodeName: node-1
  terminationGracePeriodSeconds: 330
  tolerations: [{key: nvidia.com/gpu, operator: Exists, effect: NoSchedule}]
  volumes: [{name: models, emptyDir: {}}, {name: shm, emptyDir: {medium: Memory, sizeLimit: 8Gi}}, {name: tmp, emptyDir: {}}]
  initContainers:
  - name: fetch
    image: ghcr.io/pilotlight-dev/fetcher:1.0.0
    args: [init, --model, "models:/NAME@champion", --root, /models, --allow-location, "s3://weights"]
    env: &env
    - {name: MLFLOW_TRACKING_URI, value: "http://mlflow.mlflow:5000"}
    - {name: AWS_ACCESS_KEY_ID, valueFrom: {secretKeyRef: {name: store, key: id}}}
    - {name: AWS_SECRET_ACCESS_KEY, valueFrom: {secretKeyRef: {name: store, key: key}}}
    - {name: POD_UID, valueFrom: {fieldRef: {fieldPath: metadata.uid}}}
    - {name: POD_IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
    resources: {requests: {cpu: "1", memory: 512Mi}, limits: {memory: 1Gi}}
    volumeMounts: [{name: models, mountPath: /models}]
  - name: agent
    image: ghcr.io/pilotlight-dev/fetcher:1.0.0
    restartPolicy: Always
    args: [agent, --model, "models:/NAME@champion", --root, /models, --listen, "$(POD_IP):9400"]
    env: *env
    volumeMounts: [{name: models, mountPath: /models}]
    startupProbe: {httpGet: {path: /readyz, port: 9400}, periodSeconds: 1, failureThreshold: 30}
  containers:
  - name: vllm
    image: vllm/vllm-openai:latest
    args: [serve, /models/current, --served-model-name, MODEL, --shutdown-timeout, "300"]
    env: [{name: HF_HUB_OFFLINE, value: "1"}, {name: VLLM_NO_USAGE_STATS, value: "1"}]
    ports: [{name: http, containerPort: 8000}]
    resources: {requests: {cpu: "4", memory: 32Gi, nvidia.com/gpu: "1"}, limits: {memory: 64Gi, nvidia.com/gpu: "1"}}
    volumeMounts: [{name: models, mountPath: /models}, {name: shm, mountPath: /dev/shm}, {name: tmp, mountPath: /var/cache/vllm}]
    startupProbe: {httpGet: {path: /health, port: http}, periodSeconds: 2, failureThreshold: 900}
    readinessProbe: {httpGet: {path: /health, port: http}, periodSeconds: 5, failureThreshold: 3}
    livenessProbe: {httpGet: {path: /health, port: http}, periodSeconds: 10, failureThreshold: 6}
`
