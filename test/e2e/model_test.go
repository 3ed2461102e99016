package e2e

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	fakemlflow "github.com/pilotlight-dev/pilotlight/internal/fake/mlflow"
	fakes3 "github.com/pilotlight-dev/pilotlight/internal/fake/s3"
)

const ref = "models:/llama@champion"

// modelYAML is a Deployment as the chart makes it: the fetcher before the engine,
// its agent beside it, and the version that a rollout has pinned.
const modelYAML = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: llama}
spec:
  replicas: 0
  selector: {matchLabels: {app: llama}}
  strategy: {rollingUpdate: {maxSurge: 1, maxUnavailable: 0}}
  template:
    metadata:
      labels: {app: llama, pilotlight.dev/ref-hash: HASH}
      annotations: {pilotlight.dev/ref: "models:/llama@champion"}
    spec:
      nodeName: ` + nodeName + `
      terminationGracePeriodSeconds: 30
      volumes: [{name: models, emptyDir: {}}]
      initContainers:
      - name: fetch
        image: pilotlight-fetcher
        args: [init, --model, "models:/llama@champion", --root, /models, --s3-endpoint, S3, --allow-location, "s3://weights", --termination-message, /dev/termination-log]
        env: &env
        - {name: MLFLOW_TRACKING_URI, value: MLFLOW}
        - {name: AWS_ACCESS_KEY_ID, value: id}
        - {name: AWS_SECRET_ACCESS_KEY, value: not-a-secret}
        - {name: AWS_REGION, value: us-east-1}
        - {name: PILOTLIGHT_MODEL_VERSION, valueFrom: {fieldRef: {fieldPath: "metadata.annotations['pilotlight.dev/model-version']"}}}
        - {name: POD_UID, valueFrom: {fieldRef: {fieldPath: metadata.uid}}}
        - {name: POD_IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
        volumeMounts: [{name: models, mountPath: /models}]
      - name: agent
        image: pilotlight-fetcher
        restartPolicy: Always
        args: [agent, --model, "models:/llama@champion", --root, /models, --s3-endpoint, S3, --allow-location, "s3://weights", --listen, "$(POD_IP):9400", --poll, 2s, --engine-health, "http://$(POD_IP):8000/health"]
        env: *env
        volumeMounts: [{name: models, mountPath: /models}]
        startupProbe: {httpGet: {path: /readyz, port: 9400}, periodSeconds: 1, failureThreshold: 30}
      containers:
      - name: vllm
        image: fakevllm
        args: [serve, /models/current, --served-model-name, llama, --shutdown-timeout, "25"]
        env: [{name: SIM_START_DELAY, value: 2s}, {name: SIM_DECODE_INTERVAL, value: 20ms}]
        ports: [{name: http, containerPort: 8000}]
        readinessProbe: {httpGet: {path: /health, port: http}, periodSeconds: 1, timeoutSeconds: 5, failureThreshold: 2}
        lifecycle: {preStop: {sleep: {seconds: 2}}}
        volumeMounts: [{name: models, mountPath: /models}]
`

// TestModelSwitchedByPointerAndRolledBackWhileServing moves the pointer with the
// real command line, while clients go on asking.
func TestModelSwitchedByPointerAndRolledBackWhileServing(t *testing.T) {
	t.Parallel()
	s := play(t, options{noScaler: true, noScaled: true, noDeployment: true})
	store, registry := fakes3.New(fakes3.Options{}), fakemlflow.New(fakemlflow.Options{})
	storeURL, registryURL := httptest.NewServer(store), httptest.NewServer(registry)
	t.Cleanup(storeURL.Close)
	t.Cleanup(registryURL.Close)
	for version := 1; version <= 2; version++ {
		for name, data := range weights(version) {
			store.PutObject("weights", fmt.Sprintf("llama/%d/%s", version, name), data, fakes3.PutOptions{})
		}
		_, err := registry.CreateVersion("llama", fmt.Sprintf("s3://weights/llama/%d", version))
		require.NoError(t, err)
	}
	require.NoError(t, registry.SetAlias("llama", "champion", "1"))
	env := []string{"MLFLOW_TRACKING_URI=" + registryURL.URL, "AWS_ACCESS_KEY_ID=id", "AWS_SECRET_ACCESS_KEY=not-a-secret", "AWS_REGION=us-east-1"}

	text := strings.NewReplacer("HASH", refHash(), "S3", storeURL.URL, "MLFLOW,", registryURL.URL+",", "value: MLFLOW}", "value: "+registryURL.URL+"}").Replace(modelYAML)
	var d appsv1.Deployment
	require.NoError(t, yaml.Unmarshal([]byte(text), &d))
	_, err := s.Client.AppsV1().Deployments(s.ns).Create(t.Context(), &d, metav1.CreateOptions{})
	require.NoError(t, err)
	s.startScaler()
	s.startActivator()
	s.scaledObject(options{trigger: map[string]string{"keepAlive": "60s"}})
	s.awaitScaledObject()

	s.mark("one request at zero")
	first := s.ask(t.Context(), 10)
	s.good(first)
	require.Contains(t, first.body, "version 1 ")
	eventually(t, 30*time.Second, "explain tells of the pod that serves", func() (string, bool) { // by the scaler's next look
		why := s.cli(env, "explain", s.ns+"/llama", "--scaler", "http://"+s.debug)
		return why, strings.Contains(why, "1 ready, 0 starting") && strings.Contains(why, "demand from   activator")
	})
	l := s.press(2, 50)
	s.mark("promote to 2")
	s.cli(env, "promote", "llama@champion", "--to", "2", "--yes", "--restart", "--message", "better", "-n", s.ns, "--s3-endpoint", storeURL.URL, "--kubeconfig", s.admin)
	s.serves("version 2 ")
	s.mark("roll back")
	s.cli(env, "rollback", "llama@champion", "--yes", "--restart", "--message", "worse", "-n", s.ns, "--s3-endpoint", storeURL.URL, "--kubeconfig", s.admin)
	s.serves("version 1 ")
	good, bad := l.end()
	require.Empty(t, bad, "of %d", good)
	require.Contains(t, s.cli(env, "history", "llama@champion", "-o", "json", "-n", s.ns, "--kubeconfig", s.admin), "worse")
}

// refHash is the label of pods that follow a reference: the first ten hex digits
// of its SHA-256.
func refHash() string {
	sum := sha256.Sum256([]byte(ref))
	return hex.EncodeToString(sum[:])[:10]
}

// cli runs the command line and returns its output.
func (s *scenario) cli(env []string, args ...string) string {
	s.t.Helper()
	cmd := exec.CommandContext(s.t.Context(), filepath.Join(s.bin, "pilotlight"), args...)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	require.NoError(s.t, err, "pilotlight %s: %s", strings.Join(args, " "), out)
	return string(out)
}

// serves waits until every pod that is not ending is ready and answers with a
// text.
func (s *scenario) serves(text string) {
	s.t.Helper()
	eventually(s.t, 2*time.Minute, "all pods serve "+text, func() (string, bool) {
		d, err := s.Client.AppsV1().Deployments(s.ns).Get(s.t.Context(), "llama", metav1.GetOptions{})
		if err != nil || d.Status.ObservedGeneration < d.Generation || d.Status.UpdatedReplicas != d.Status.Replicas || d.Status.ReadyReplicas < d.Status.Replicas || d.Status.Replicas == 0 {
			return fmt.Sprintf("%v %+v", err, d.Status), false
		}
		pods := s.pods()
		for _, p := range pods {
			if !isReady(p) {
				return p.Name + " is not ready", false
			}
		}
		a := s.ask(s.t.Context(), 10)
		return a.body, strings.Contains(a.body, text)
	})
	eventually(s.t, 60*time.Second, "the pods of the other version have gone", func() (string, bool) {
		all, err := s.Client.CoreV1().Pods(s.ns).List(s.t.Context(), metav1.ListOptions{LabelSelector: "app=llama"})
		return fmt.Sprint(len(all.Items), err), err == nil && len(all.Items) == len(s.pods())
	})
	for range 5 {
		a := s.ask(s.t.Context(), 10)
		require.Contains(s.t, a.body, text, "and no other version after that")
	}
}

func isReady(p corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// weights are a small model whose files differ by version.
func weights(version int) map[string][]byte {
	header, _ := json.Marshal(map[string]any{ // plain maps
		"__metadata__": map[string]string{"version": fmt.Sprint(version)},
		"w":            map[string]any{"dtype": "U8", "shape": []int{4}, "data_offsets": []int{0, 4}},
	})
	data := append([]byte{byte(len(header)), byte(len(header) >> 8), 0, 0, 0, 0, 0, 0}, header...)
	return map[string][]byte{
		"config.json":       fmt.Appendf(nil, `{"architectures":["Test"],"version":%d}`, version),
		"model.safetensors": append(data, byte(version), 2, 3, 4),
	}
}
