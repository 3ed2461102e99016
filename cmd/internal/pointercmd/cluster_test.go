package pointercmd_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	kubefake "k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"

	"github.com/pilotlight-dev/pilotlight/cmd/internal/agentwatch"
	"github.com/pilotlight-dev/pilotlight/fetcher/agent"
	"github.com/pilotlight-dev/pilotlight/registry"
)

var (
	deployments   = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	statefulSets  = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "statefulsets"}
	leaderWorkers = schema.GroupVersionResource{Group: "leaderworkerset.x-k8s.io", Version: "v1", Resource: "leaderworkersets"}
	scaledObjects = schema.GroupVersionResource{Group: "keda.sh", Version: "v1alpha1", Resource: "scaledobjects"}
)

// engineAgent is what answers /status beside an engine.
type engineAgent struct {
	mu     sync.Mutex
	status agent.Status
	down   bool
	nudges int
	nudged func(*agent.Status) // what a nudge brings about
}

func (e *engineAgent) set(change func(*agent.Status)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	change(&e.status)
}

func (e *engineAgent) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.down && r.Method == http.MethodPost && r.URL.Path == "/nudge" {
		e.nudges++
		if e.nudged != nil {
			e.nudged(&e.status)
		}
		w.WriteHeader(http.StatusAccepted)
		return
	}
	if e.down || r.URL.Path != "/status" {
		http.Error(w, "bad gateway", http.StatusBadGateway)
		return
	}
	answerJSON(w, e.status)
}

// serving is the status of an agent whose engine serves a version.
func serving(version, digest string, state agent.EngineState) agent.Status {
	return agent.Status{
		V: 1, Ref: "models:/llama@champion", OnChange: agent.Exit, History: []agent.Entry{},
		Published: &agent.Published{Version: version, Digest: digest, At: start},
		Serving:   agent.Serving{Version: version, Digest: digest, State: state, Since: new(start)},
		Pointer:   &agent.Pointer{OK: true, CheckedAt: new(start)},
	}
}

// cluster is an API server with pods whose agents answer through its proxy.
type cluster struct {
	t       *testing.T
	client  *kubefake.Clientset
	dynamic *dynamicfake.FakeDynamicClient

	mu     sync.Mutex
	agents map[string]*engineAgent // by pod
}

func newCluster(t *testing.T, objects ...*unstructured.Unstructured) *cluster {
	t.Helper()
	var list []runtime.Object
	for _, o := range objects {
		list = append(list, o)
	}
	c := &cluster{
		t: t, client: kubefake.NewClientset(), agents: map[string]*engineAgent{},
		dynamic: dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
			deployments: "DeploymentList", statefulSets: "StatefulSetList", leaderWorkers: "LeaderWorkerSetList", scaledObjects: "ScaledObjectList",
		}, list...),
	}
	c.client.AddProxyReactor("pods", func(action clienttesting.Action) (bool, rest.ResponseWrapper, error) {
		get := action.(clienttesting.ProxyGetAction)
		c.mu.Lock()
		a := c.agents[get.GetName()]
		c.mu.Unlock()
		return true, proxied{a, get.GetPort() + "/" + get.GetPath()}, nil
	})
	return c
}

// proxy is the API server's pod proxy for posts.
func (c *cluster) proxy() rest.Interface {
	config := &rest.Config{Host: "http://api", APIPath: "/api", QPS: -1}
	config.GroupVersion, config.NegotiatedSerializer = &corev1.SchemeGroupVersion, scheme.Codecs.WithoutConversion()
	client, err := rest.RESTClientForConfigAndClient(config, &http.Client{Transport: inMemory{"api": http.HandlerFunc(c.post)}})
	require.NoError(c.t, err)
	return client
}

func (c *cluster) post(w http.ResponseWriter, r *http.Request) {
	pod, ok := strings.CutPrefix(r.URL.Path, "/api/v1/namespaces/ai/pods/http:")
	pod, isNudge := strings.CutSuffix(pod, ":9400/proxy/nudge")
	c.mu.Lock()
	a := c.agents[pod]
	c.mu.Unlock()
	if !ok || !isNudge || a == nil {
		http.NotFound(w, r)
		return
	}
	a.ServeHTTP(w, httptest.NewRequestWithContext(r.Context(), r.Method, "/nudge", nil))
}

// proxied is an answer of the API server's pod proxy.
type proxied struct {
	agent *engineAgent
	what  string
}

func (p proxied) DoRaw(context.Context) ([]byte, error) { return nil, errors.New("unbounded") }

func (p proxied) Stream(ctx context.Context) (io.ReadCloser, error) {
	if p.agent == nil || p.what != "9400/status" {
		return nil, errors.New("no endpoints available for " + p.what)
	}
	rec := httptest.NewRecorder()
	p.agent.ServeHTTP(rec, httptest.NewRequestWithContext(ctx, http.MethodGet, "/status", nil))
	if rec.Code != http.StatusOK {
		return nil, errors.New("an error on the server (unknown)")
	}
	return io.NopCloser(bytes.NewReader(rec.Body.Bytes())), nil
}

// addPod starts a pod of llama@champion with an agent.
func (c *cluster) addPod(name string, st agent.Status, change ...func(*corev1.Pod)) *engineAgent {
	c.t.Helper()
	ref, err := registry.ParseModel("llama@champion")
	require.NoError(c.t, err)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ai", Name: name, Annotations: map[string]string{agentwatch.RefAnnotation: "llama@champion"},
			Labels: map[string]string{agentwatch.RefLabel: agentwatch.RefHash(ref)},
		},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.0.0.1"},
	}
	for _, f := range change {
		f(pod)
	}
	a := &engineAgent{status: st}
	c.mu.Lock()
	c.agents[name] = a
	c.mu.Unlock()
	_, err = c.client.CoreV1().Pods("ai").Create(c.t.Context(), pod, metav1.CreateOptions{})
	require.NoError(c.t, err)
	return a
}

func (c *cluster) deletePod(name string) {
	require.NoError(c.t, c.client.CoreV1().Pods("ai").Delete(context.Background(), name, metav1.DeleteOptions{}))
}

func terminating(p *corev1.Pod) {
	p.DeletionTimestamp = new(metav1.NewTime(start))
	p.DeletionGracePeriodSeconds = new(int64(30))
	p.Finalizers = []string{"test/stays"}
}

func crashing(p *corev1.Pod) {
	p.Status = corev1.PodStatus{Phase: corev1.PodPending, InitContainerStatuses: []corev1.ContainerStatus{{
		State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
		LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			Message: `{"code":4,"reason":"cut","ref":"models:/llama@champion"}`,
		}},
	}}}
}

// workload is a Deployment, StatefulSet or LeaderWorkerSet of llama@champion.
func workloadOf(kind, name string, replicas int64, annotations map[string]any) *unstructured.Unstructured {
	if annotations == nil {
		annotations = map[string]any{}
	}
	annotations[agentwatch.RefAnnotation] = "models:/llama@champion"
	template := map[string]any{"metadata": map[string]any{"annotations": annotations}}
	spec := map[string]any{"replicas": replicas, "template": template}
	version := "apps/v1"
	if kind == "LeaderWorkerSet" {
		version = "leaderworkerset.x-k8s.io/v1"
		spec = map[string]any{"replicas": replicas, "leaderWorkerTemplate": map[string]any{
			"size": int64(2), "workerTemplate": template, "leaderTemplate": map[string]any{"metadata": map[string]any{}},
		}}
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": version, "kind": kind, "metadata": map[string]any{"namespace": "ai", "name": name}, "spec": spec,
	}}
}

// writerOf is a Deployment that fills a shared volume.
func writerOf(name string) *unstructured.Unstructured {
	o := workloadOf("Deployment", name, 1, nil)
	metadata := o.Object["spec"].(map[string]any)["template"].(map[string]any)["metadata"].(map[string]any)
	metadata["labels"] = map[string]any{agentwatch.RoleLabel: agentwatch.RoleWriter}
	return o
}

func pausedObject(target string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject",
		"metadata": map[string]any{"namespace": "ai", "name": "llama-so", "annotations": map[string]any{"autoscaling.keda.sh/paused-replicas": "0"}},
		"spec":     map[string]any{"scaleTargetRef": map[string]any{"name": target}},
	}}
}

// pin is the version annotation of a workload's first template.
func (c *cluster) pin(resource schema.GroupVersionResource, name string, path ...string) string {
	c.t.Helper()
	o, err := c.dynamic.Resource(resource).Namespace("ai").Get(context.Background(), name, metav1.GetOptions{})
	require.NoError(c.t, err)
	if len(path) == 0 {
		path = []string{"spec", "template"}
	}
	pin, _, err := unstructured.NestedString(o.Object, append(path, "metadata", "annotations", "pilotlight.dev/model-version")...)
	require.NoError(c.t, err)
	return pin
}

// after does something later, in the faked time of a bubble.
func after(d time.Duration, do func()) {
	go func() {
		time.Sleep(d)
		do()
	}()
}

// nudges are those of all agents.
func (c *cluster) nudges() (sum int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, a := range c.agents {
		a.set(func(*agent.Status) { sum += a.nudges })
	}
	return sum
}
