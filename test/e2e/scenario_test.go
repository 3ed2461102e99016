package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/pilotlight-dev/pilotlight/scaler"
	"github.com/pilotlight-dev/pilotlight/test/e2e/plane"
)

// scenario is one namespace with a model, a scaler and an activator of its own.
type scenario struct {
	*world
	t  *testing.T
	ns string

	scaler, activator *plane.Process
	keda, demand      string // the scaler's addresses
	debug             string
	clients, probes   string // the activator's
	admin             string // kubeconfig of who may do everything
	rights            rights // of the scaler and the activator
	line              *recorder
}

// options say what differs from the usual model: one that starts in 2 s, carries
// 4 requests per replica, and has 0 to 4 of them.
type options struct {
	engine   map[string]string // SIM_ variables
	trigger  map[string]string // metadata over the usual; "" removes a key
	spec     map[string]any    // of the ScaledObject, over the usual
	pod      func(*corev1.PodSpec)
	noScaler bool
	noScaled bool // no ScaledObject yet

	noDeployment   bool
	authentication string // a TriggerAuthentication
	replicas       int32
	scalerArgs     []string
	modifiers      map[string]any // scalingModifiers; the trigger is named vllm
	without        string         // a resource that the programs have no rights on
	apiServer      string         // host:port by which the programs reach it; default: its own
}

// patient is a cooldown for scenarios in which KEDA gets errors. KEDA 2.21 takes
// a poll for inactive that meets a failing question of the HPA (the HPA closes the
// scaler under it), and then only the cooldown stands before zero.
func patient(spec map[string]any) map[string]any {
	out := map[string]any{"cooldownPeriod": int64(40), "initialCooldownPeriod": int64(60)}
	maps.Copy(out, spec)
	return out
}

// play starts a scenario.
func play(t *testing.T, o options) *scenario {
	t.Helper()
	w := enter(t)
	s := &scenario{
		world: w, t: t, ns: kebab(t.Name()), keda: freeAddr(t), demand: freeAddr(t), debug: freeAddr(t), clients: freeAddr(t), probes: freeAddr(t),
		admin: w.file("admin.kubeconfig"),
	}
	_, err := w.Client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.ns}}, metav1.CreateOptions{})
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(s.logs(), 0o750))
	s.grant(o)
	s.line = s.record()
	t.Cleanup(s.end)
	if !o.noScaler {
		s.startScaler(o.scalerArgs...)
		s.startActivator()
	}
	if !o.noDeployment {
		s.deployment(o)
	}
	if !o.noScaled {
		s.scaledObject(o)
		s.awaitScaledObject()
	}
	return s
}

func (w *world) file(name string) string { return filepath.Join(w.dir, "plane", name) }
func (s *scenario) logs() string         { return filepath.Join(s.kept, s.ns) }

// end stops what the scenario has started, keeps its timeline, and removes its
// objects, so that no pods go on.
func (s *scenario) end() {
	s.line.keep(s)
	if s.t.Failed() {
		s.explain()
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	_ = s.Dyn.Resource(plane.ScaledObjects).Namespace(s.ns).Delete(ctx, "llama", metav1.DeleteOptions{})
	_ = s.Client.AppsV1().Deployments(s.ns).Delete(ctx, "llama", metav1.DeleteOptions{})
	for _, p := range []*plane.Process{s.activator, s.scaler} {
		if p != nil {
			_ = p.Kill()
		}
	}
	now := int64(0)
	_ = s.Client.CoreV1().Pods(s.ns).DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: &now}, metav1.ListOptions{})
	s.checkRights()
}

func (s *scenario) startScaler(args ...string) {
	s.t.Helper()
	s.launchScaler(args...)
	s.ready("http://"+s.debug+"/readyz", s.scaler)
}

// launchScaler starts it and does not wait.
func (s *scenario) launchScaler(args ...string) {
	s.t.Helper()
	var err error
	s.scaler, err = plane.Run(context.Background(), s.logs(), "scaler", nil, filepath.Join(s.bin, "pilotlight-scaler"), append([]string{
		"--kubeconfig", s.rights.scaler, "--namespace", s.ns, "--state-namespace", s.ns, "--listen", s.keda, "--demand-listen", s.demand, "--http-listen", s.debug,
		"--interval", scalerEvery.String(),
	}, args...)...)
	require.NoError(s.t, err)
}

// startActivator starts it without TLS to the scaler, or with the flags given.
func (s *scenario) startActivator(tls ...string) {
	s.t.Helper()
	s.launchActivator(tls...)
	s.ready("http://"+s.probes+"/readyz", s.activator)
}

// launchActivator starts it and does not wait.
func (s *scenario) launchActivator(tls ...string) {
	s.t.Helper()
	if len(tls) == 0 {
		tls = []string{"--insecure"}
	}
	var err error
	s.activator, err = plane.Run(context.Background(), s.logs(), "activator", nil, filepath.Join(s.bin, "pilotlight-activator"), append([]string{
		"--kubeconfig", s.rights.activator, "--namespace", s.ns, "--listen", s.clients, "--http-listen", s.probes, "--scaler", s.demand,
		"--log-level", "debug", // every request, for the timeline
	}, tls...)...)
	require.NoError(s.t, err)
}

func (s *scenario) ready(url string, p *plane.Process) {
	s.t.Helper()
	eventually(s.t, 60*time.Second, p.Name+" is ready", func() (string, bool) {
		select {
		case <-p.Done():
			require.FailNow(s.t, p.Name+" has ended", p.Tail())
		default:
		}
		status, body := s.get(url)
		return fmt.Sprint(status, " ", body), status == http.StatusOK
	})
}

// get asks a URL; status 0 is no answer.
func (s *scenario) get(url string) (status int, body string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.t.Context()), 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err.Error()
	}
	return do(req)
}

const deploymentYAML = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: llama}
spec:
  selector: {matchLabels: {app: llama}}
  template:
    metadata: {labels: {app: llama}}
    spec:
      nodeName: ` + nodeName + `
      terminationGracePeriodSeconds: 30
      containers:
      - name: vllm
        image: fakevllm
        args: [serve, --served-model-name, llama, --shutdown-timeout, "25"]
        ports: [{name: http, containerPort: 8000}]
        readinessProbe: {httpGet: {path: /health, port: http}, periodSeconds: 1, timeoutSeconds: 5, failureThreshold: 2}
        lifecycle: {preStop: {sleep: {seconds: 2}}}
`

// deployment makes the model's Deployment, at zero replicas.
func (s *scenario) deployment(o options) {
	s.t.Helper()
	var d appsv1.Deployment
	require.NoError(s.t, yaml.Unmarshal([]byte(deploymentYAML), &d))
	d.Spec.Replicas = &o.replicas
	env := map[string]string{"SIM_START_DELAY": "2s", "SIM_DECODE_INTERVAL": "20ms"}
	maps.Copy(env, o.engine)
	c := &d.Spec.Template.Spec.Containers[0]
	for _, name := range slices.Sorted(maps.Keys(env)) {
		c.Env = append(c.Env, corev1.EnvVar{Name: name, Value: env[name]})
	}
	if o.pod != nil {
		o.pod(&d.Spec.Template.Spec)
	}
	_, err := s.Client.AppsV1().Deployments(s.ns).Create(s.t.Context(), &d, metav1.CreateOptions{})
	require.NoError(s.t, err)
}

const scaledObjectYAML = `
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata: {name: llama}
spec:
  scaleTargetRef: {name: llama}
  minReplicaCount: 0
  maxReplicaCount: 4
  pollingInterval: 2
  cooldownPeriod: 5
  advanced:
    horizontalPodAutoscalerConfig:
      behavior:
        scaleUp: {stabilizationWindowSeconds: 0, tolerance: 0, policies: [{type: Pods, value: 100, periodSeconds: 15}]}
        scaleDown: {stabilizationWindowSeconds: 0, tolerance: 0, policies: [{type: Percent, value: 100, periodSeconds: 15}]}
  triggers:
  - type: external-push
    metricType: AverageValue
    metadata: {targetRequests: "4", modelName: llama, coldStart: 3s, keepAlive: 5s, scaleDownWindow: 5s}
`

// scaledObject makes the model's ScaledObject.
func (s *scenario) scaledObject(o options) {
	s.t.Helper()
	var obj unstructured.Unstructured
	require.NoError(s.t, yaml.Unmarshal([]byte(scaledObjectYAML), &obj.Object))
	spec := obj.Object["spec"].(map[string]any)
	maps.Copy(spec, o.spec)
	for _, one := range spec["triggers"].([]any) {
		metadata := one.(map[string]any)["metadata"].(map[string]any)
		metadata["scalerAddress"] = s.keda
		if o.authentication != "" {
			one.(map[string]any)["authenticationRef"] = map[string]any{"name": o.authentication}
		}
		for k, v := range o.trigger {
			if metadata[k] = v; v == "" {
				delete(metadata, k)
			}
		}
	}
	if o.modifiers != nil {
		spec["triggers"].([]any)[0].(map[string]any)["name"] = "vllm"
		spec["advanced"].(map[string]any)["scalingModifiers"] = o.modifiers
	}
	_, err := s.Dyn.Resource(plane.ScaledObjects).Namespace(s.ns).Create(s.t.Context(), &obj, metav1.CreateOptions{})
	require.NoError(s.t, err)
}

// awaitScaledObject waits until KEDA has made its HPA and calls it ready.
func (s *scenario) awaitScaledObject() {
	s.t.Helper()
	s.awaitScaledObjectWithin(90 * time.Second)
}

func (s *scenario) awaitScaledObjectWithin(limit time.Duration) {
	s.t.Helper()
	eventually(s.t, limit, "the ScaledObject is ready", func() (string, bool) {
		c := s.conditions()
		return fmt.Sprint(c), c["Ready"] == "True"
	})
	eventually(s.t, limit, "the activator knows the model", func() (string, bool) {
		_, body := s.get("http://" + s.clients + "/v1/models")
		return body, strings.Contains(body, `"llama"`)
	})
}

// conditions are those of the ScaledObject.
func (s *scenario) conditions() map[string]string {
	out := map[string]string{}
	ctx, cancel := s.now()
	defer cancel()
	obj, err := s.Dyn.Resource(plane.ScaledObjects).Namespace(s.ns).Get(ctx, "llama", metav1.GetOptions{})
	if err != nil {
		return out
	}
	list, _, _ := unstructured.NestedSlice(obj.Object, "status", "conditions")
	for _, one := range list {
		if m, ok := one.(map[string]any); ok {
			out[fmt.Sprint(m["type"])] = fmt.Sprint(m["status"])
		}
	}
	return out
}

// unknown is a number of replicas that could not be read.
const unknown = -1

// replicas are how many pods are wanted by the Deployment, and Ready.
func (s *scenario) replicas() (wanted, ready int32) {
	s.t.Helper()
	d, err := s.Client.AppsV1().Deployments(s.ns).Get(context.WithoutCancel(s.t.Context()), "llama", metav1.GetOptions{})
	if err != nil {
		return unknown, unknown
	}
	return *d.Spec.Replicas, d.Status.ReadyReplicas
}

// await waits for a number of replicas, all Ready; for none it waits until the
// last pod has gone, which serves what still comes while it waits in preStop.
func (s *scenario) await(n int32, limit time.Duration) {
	s.t.Helper()
	eventually(s.t, limit, fmt.Sprintf("%d replicas, all ready", n), func() (string, bool) {
		wanted, ready := s.replicas()
		state := fmt.Sprintf("%d wanted, %d ready; the scaler says %s", wanted, ready, s.says())
		if wanted != n || ready != n || n > 0 {
			return state, wanted == n && ready == n
		}
		left, err := s.Client.CoreV1().Pods(s.ns).List(s.t.Context(), metav1.ListOptions{LabelSelector: "app=llama"})
		return fmt.Sprintf("%s; pods that have not gone: %d %v", state, len(left.Items), err), err == nil && len(left.Items) == 0
	})
}

// decision is what the scaler has decided last; nil if it does not say.
func (s *scenario) decision() *scaler.TargetStatus {
	status, body := s.get("http://" + s.debug + "/debug/targets")
	var list []scaler.TargetStatus
	if status != http.StatusOK || json.Unmarshal([]byte(body), &list) != nil || len(list) == 0 {
		return nil
	}
	return &list[0]
}

func (s *scenario) says() string {
	d := s.decision()
	if d == nil || d.Replicas == nil {
		return fmt.Sprintf("nothing (%+v)", d)
	}
	return fmt.Sprintf("%d replicas, because %s", *d.Replicas, d.Reason)
}

// pods lists the names of the model's pods that are not ending.
func (s *scenario) pods() []corev1.Pod {
	s.t.Helper()
	list, err := s.Client.CoreV1().Pods(s.ns).List(s.t.Context(), metav1.ListOptions{LabelSelector: "app=llama"})
	require.NoError(s.t, err)
	return slices.DeleteFunc(list.Items, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil })
}

// awaitEvent waits for an event with a reason: it is written beside the decision.
func (s *scenario) awaitEvent(reason string) {
	s.t.Helper()
	eventually(s.t, 60*time.Second, "an event says "+reason, func() (string, bool) {
		events := s.events()
		return events, strings.Contains(events, reason+":")
	})
}

// events are the messages of the events on the ScaledObject.
func (s *scenario) events() string {
	ctx, cancel := s.now()
	defer cancel()
	list, err := s.Client.CoreV1().Events(s.ns).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err.Error()
	}
	var b strings.Builder
	for _, e := range list.Items {
		if e.InvolvedObject.Kind == "ScaledObject" {
			fmt.Fprintf(&b, "%s %s: %s\n", e.Type, e.Reason, e.Message)
		}
	}
	return b.String()
}
