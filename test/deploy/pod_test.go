package deploy

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/pilotlight-dev/pilotlight/internal/fake/mlflow"
	"github.com/pilotlight-dev/pilotlight/internal/fake/s3"
	"github.com/pilotlight-dev/pilotlight/test/e2e/node"
	"github.com/pilotlight-dev/pilotlight/test/e2e/plane"
)

const aNode = "chart-node"

var client = &http.Client{Timeout: time.Minute}

// chartWorld is a cluster with one node, a registry with two versions of a
// model, and Pilotlight's programs as processes.
type chartWorld struct {
	*server
	t        *testing.T
	node     *node.Node
	ns, bin  string
	registry string
	store    string
	front    string // the activator
	kube     string // kubeconfig
}

// weights is a shard that says which version it is of.
func weights(version string) []byte {
	data := strings.Repeat(version, 300)
	header := fmt.Sprintf(`{"__metadata__":{"version":%q},"w":{"dtype":"U8","shape":[%d],"data_offsets":[0,%d]}}`, version, len(data), len(data))
	return append(append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header...), data...)
}

func newChartWorld(t *testing.T) *chartWorld {
	t.Helper()
	bin, err := binaries()
	require.NoError(t, err)
	w := &chartWorld{server: apiServer(t), t: t, bin: bin}
	w.ns = w.namespace(t, "chart-pods")
	w.kube = filepath.Join(w.Dir, "admin.kubeconfig")
	store, models := s3.New(s3.Options{}), mlflow.New(mlflow.Options{})
	store.CreateBucket("bucket")
	for _, version := range []string{"1", "2"} {
		store.PutObject("bucket", "llama/"+version+"/config.json", []byte(`{"architectures":["Llama"]}`), s3.PutOptions{})
		store.PutObject("bucket", "llama/"+version+"/model.safetensors", weights(version), s3.PutOptions{})
		_, err := models.CreateVersion("llama", "s3://bucket/llama/"+version)
		require.NoError(t, err)
	}
	require.NoError(t, models.SetAlias("llama", "champion", "1"))
	for to, handler := range map[*string]http.Handler{&w.store: store, &w.registry: models} {
		srv := httptest.NewServer(handler)
		t.Cleanup(srv.Close)
		*to = srv.URL
	}
	w.play()
	return w
}

// play starts the node.
func (w *chartWorld) play() {
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	n := node.New(node.Options{
		Client: w.Client, Name: aNode, Bin: w.bin, Dir: w.t.TempDir(), Logger: log,
		Env: []string{"AWS_ACCESS_KEY_ID=a", "AWS_SECRET_ACCESS_KEY=b", "AWS_EC2_METADATA_DISABLED=true"},
	})
	w.node = n
	ctx, stop := context.WithCancel(context.WithoutCancel(w.t.Context()))
	ended := make(chan struct{})
	go func() { defer close(ended); _ = n.Run(ctx) }()
	w.t.Cleanup(func() { stop(); <-ended })
}

// run starts a program of ours and waits until it is ready.
func (w *chartWorld) run(name, probes string, args ...string) {
	w.t.Helper()
	p, err := plane.Run(context.WithoutCancel(w.t.Context()), w.t.TempDir(), name, nil, filepath.Join(w.bin, name), append(args, "--kubeconfig="+w.kube, "--namespace="+w.ns, "--http-listen="+probes)...)
	require.NoError(w.t, err)
	w.t.Cleanup(func() {
		_ = p.Kill()
		if w.t.Failed() {
			w.t.Log(name, p.Tail())
		}
	})
	require.Eventually(w.t, func() bool { return ready(w.t, "http://"+probes+"/readyz") }, time.Minute, 100*time.Millisecond, p.Tail())
}

// pilotlight runs the CLI.
func (w *chartWorld) pilotlight(args ...string) (int, string) {
	w.t.Helper()
	cmd := exec.CommandContext(w.t.Context(), filepath.Join(w.bin, "pilotlight"), append(args, "--kubeconfig="+w.kube, "--namespace="+w.ns)...)
	cmd.Env = append(os.Environ(), "MLFLOW_TRACKING_URI="+w.registry, "MLFLOW_S3_ENDPOINT_URL="+w.store, "AWS_ACCESS_KEY_ID=a", "AWS_SECRET_ACCESS_KEY=b", "AWS_REGION=us-east-1")
	out, _ := cmd.CombinedOutput()
	return cmd.ProcessState.ExitCode(), string(out)
}

// ask sends one request by way of the activator, and returns which version of
// the weights has answered.
func (w *chartWorld) ask() string { return w.send(w.t.Context(), 2) }

func (w *chartWorld) send(ctx context.Context, tokens int) string {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+w.front+"/v1/chat/completions", strings.NewReader(fmt.Sprintf(`{"model":"llama","max_tokens":%d,"messages":[{"role":"user","content":"hello"}]}`, tokens)))
	if err != nil {
		return err.Error()
	}
	resp, err := client.Do(req)
	if err != nil {
		return err.Error()
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return resp.Status
	}
	return resp.Header.Get("X-Model-Version")
}

// get reads a page, or says why there is none.
func get(t *testing.T, url string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	resp, err := client.Do(req)
	if err != nil {
		return err.Error()
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	require.NoError(t, err)
	return string(text)
}

// create makes the objects of a render, its pods on our node.
func (w *chartWorld) create(docs []Document) {
	w.t.Helper()
	for _, d := range docs {
		if d.Object.GetKind() == "Deployment" {
			require.NoError(w.t, unstructured.SetNestedField(d.Object.Object, aNode, "spec", "template", "spec", "nodeName"))
			require.NoError(w.t, unstructured.SetNestedField(d.Object.Object, int64(0), "spec", "replicas"))
		}
		mapping, err := w.mapper.RESTMapping(d.Object.GroupVersionKind().GroupKind())
		require.NoError(w.t, err)
		_, err = w.Dyn.Resource(mapping.Resource).Namespace(w.ns).Create(w.t.Context(), &d.Object, metav1.CreateOptions{})
		require.NoError(w.t, err)
	}
}

func (w *chartWorld) replicas() int32 {
	d, err := w.Client.AppsV1().Deployments(w.ns).Get(w.t.Context(), "llama", metav1.GetOptions{})
	require.NoError(w.t, err)
	return *d.Spec.Replicas
}

// recorded records what Prometheus would see of the run, with a few clients that
// ask again and again until quiet is called.
func (w *chartWorld) recorded(scaler, proxy string, agent, engine int) (quiet func()) {
	record(w.t, func() []scraped {
		pages := []scraped{
			{"http://" + scaler + "/metrics", map[string]string{"namespace": "keda", "job": "pilotlight-scaler", "pod": "pilotlight-scaler-0"}},
			{"http://" + proxy + "/metrics", map[string]string{"job": "pilotlight-activator", "pod": "pilotlight-activator-0"}},
		}
		for _, port := range []int{agent, engine} {
			pages = append(pages, scraped{fmt.Sprintf("http://127.0.0.1:%d/metrics", port), map[string]string{"namespace": w.ns, "job": "llama", "pod": "llama-0"}})
		}
		return pages
	})
	ctx, stop := context.WithCancel(w.t.Context())
	var clients sync.WaitGroup
	for i := range 6 {
		clients.Go(func() {
			for ctx.Err() == nil {
				pause := time.Duration(100+150*i) * time.Millisecond
				if w.send(ctx, 60+20*i) == "503 Service Unavailable" {
					pause = 2 * time.Second // as Retry-After asks, or so
				}
				select {
				case <-ctx.Done():
				case <-time.After(pause):
				}
			}
		})
	}
	return func() { stop(); clients.Wait() }
}

func portOf(t *testing.T, addr string) int {
	t.Helper()
	_, port, err := net.SplitHostPort(addr)
	require.NoError(t, err)
	n, err := strconv.Atoi(port)
	require.NoError(t, err)
	return n
}

// TestAPodOfTheChartServesScalesAndRollsBack runs what the chart renders: one
// request wakes the model from zero; its pod fetches the weights that the
// pointer names, and serves them; they are moved and rolled back by the CLI;
// and it goes back to zero.
func TestAPodOfTheChartServesScalesAndRollsBack(t *testing.T) {
	t.Parallel()
	w := newChartWorld(t)
	keda, demand, probes, front := freeAddr(t), freeAddr(t), freeAddr(t), freeAddr(t)
	w.front = front
	engine, agent := portOf(t, freeAddr(t)), portOf(t, freeAddr(t)) // other clusters of this machine have the usual ones
	w.run("pilotlight-scaler", probes, "--listen="+keda, "--demand-listen="+demand, "--interval=500ms", "--state-namespace="+w.ns)
	proxy := freeAddr(t)
	w.run("pilotlight-activator", proxy, "--listen="+front, "--scaler="+demand, "--insecure")
	docs, _, err := Render(Release{Chart: "vllm-model", Name: "llama", Namespace: w.ns, Kube: "v1.36.0", Values: map[string]any{
		"model":    map[string]any{"name": "llama", "ref": "models:/llama@champion", "allowLocations": []any{"s3://bucket/"}},
		"registry": map[string]any{"uri": w.registry},
		"store":    map[string]any{"endpoint": w.store, "region": "us-east-1"},
		"fetcher":  map[string]any{"agent": map[string]any{"port": agent}},
		"engine": map[string]any{
			"port":  engine,
			"image": map[string]any{"repository": "fakevllm", "tag": "v0.18.1"},
			// Before the pod, not on its address, so that the agent reaches it.
			"env": []any{map[string]any{"name": "POD_IP", "value": "0.0.0.0"}, map[string]any{"name": "SIM_START_DELAY", "value": "1s"}},
		},
		"drain":      map[string]any{"preStopSeconds": 1, "shutdownTimeoutSeconds": 5, "graceSeconds": 10},
		"pilotlight": map[string]any{"scalerAddress": keda, "authentication": ""},
		"scaling": map[string]any{
			"maxReplicas": 1, "pollingInterval": 2, "cooldownPeriod": 5, "coldStartSeconds": 5,
			"metadata": map[string]any{"keepAlive": "20s"},
		},
	}})
	require.NoError(t, err)
	w.create(docs)
	t.Cleanup(func() {
		if pods, err := w.Client.CoreV1().Pods(w.ns).List(context.WithoutCancel(t.Context()), metav1.ListOptions{}); t.Failed() && err == nil {
			for _, p := range pods.Items {
				for _, c := range []string{"fetch", "agent", "engine"} {
					text, _ := os.ReadFile(w.node.LogPath(w.ns, p.Name, c))
					t.Logf("%s of %s: %s", c, p.Name, text)
				}
			}
		}
	})

	known := func() bool {
		body := get(t, "http://"+front+"/v1/models")
		return strings.Contains(body, `"llama"`)
	}
	require.Eventually(t, known, time.Minute, 100*time.Millisecond, "the activator has seen the ScaledObject")
	quiet := func() {}
	if os.Getenv("PILOTLIGHT_DEPLOY_RECORD") != "" {
		quiet = w.recorded(probes, proxy, agent, engine)
	}
	began := time.Now()
	require.Equal(t, "1", w.ask(), "one request wakes the model, with the pointer's version")
	t.Log("from zero to an answer:", time.Since(began).Round(100*time.Millisecond))
	for _, move := range [][]string{{"2", "promote", "models:/llama@champion", "--to", "2"}, {"1", "rollback", "models:/llama@champion"}} {
		code, out := w.pilotlight(append(move[1:], "--yes", "--restart", "--wait", "--timeout=60s", fmt.Sprint("--agents=127.0.0.1:", agent))...)
		require.Zero(t, code, out)
		// Both pods have the same ports here, so the new one's agent may crash once
		// while the old one ends, which is a failed start until it is ready.
		require.Eventually(t, func() bool { return w.ask() == move[0] }, time.Minute, time.Second, "version %s answers", move[0])
	}
	quiet()
	require.Eventually(t, func() bool { return w.replicas() == 0 }, 2*time.Minute, time.Second, "back to zero")
}
