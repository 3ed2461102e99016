package openai_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	pb "github.com/kedacore/keda/v2/pkg/scalers/externalscaler"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/pilotlight-dev/pilotlight/internal/fake/engine"
	"github.com/pilotlight-dev/pilotlight/test/integration/process"
)

const (
	model = "llama"
	key   = "sk-not-a-key-of-anybody"
	soon  = time.Minute
)

// tool returns the program or folder that make integration names in a variable.
func tool(t *testing.T, variable string) string {
	t.Helper()
	path := os.Getenv(variable)
	if path == "" {
		t.Skipf("%s is not set: use make integration", variable)
	}
	return path
}

// environment is what the programs see: nothing of the caller's that could lead
// them elsewhere.
func environment() []string {
	return []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "TMPDIR=" + os.TempDir(), "LANG=C.UTF-8", "NO_PROXY=*", "OPENAI_API_KEY=" + key,
	}
}

// world is one model that sleeps, behind an activator and a scaler.
type world struct {
	t       *testing.T
	python  string
	url     string // of the activator's API
	probes  string // of its own port
	log     string // file
	keda    string // address of the scaler's gRPC
	targets string // file
}

func newWorld(t *testing.T, args ...string) *world {
	t.Helper()
	venv, activator, scaler := tool(t, "PILOTLIGHT_OPENAI"), tool(t, "PILOTLIGHT_ACTIVATOR"), tool(t, "PILOTLIGHT_SCALER")
	dir := t.TempDir()
	clients, probes, demand, scalerHTTP := process.FreeAddress(t), process.FreeAddress(t), process.FreeAddress(t), process.FreeAddress(t)
	w := &world{
		t: t, python: filepath.Join(venv, "bin", "python"), url: "http://" + clients + "/v1", probes: "http://" + probes,
		log: filepath.Join(dir, "activator.log"), keda: process.FreeAddress(t), targets: filepath.Join(dir, "targets.yaml"),
	}
	w.place("")
	process.Start(t, process.Options{
		Path: scaler, Env: environment(), Ready: "http://" + scalerHTTP + "/readyz",
		Args: []string{"--listen", w.keda, "--demand-listen", demand, "--http-listen", scalerHTTP, "--static-targets", w.targets},
	})
	process.Start(t, process.Options{
		Path: activator, Env: environment(), Ready: w.probes + "/readyz", Log: w.log,
		Args: append([]string{
			"--listen", clients, "--http-listen", probes, "--scaler", demand, "--insecure", "--static-targets", w.targets,
			"--log-level", "debug", "--shutdown-delay", "1ms",
		}, args...),
	})
	return w
}

// place writes where the model's pod is; "" is nowhere.
func (w *world) place(addr string) {
	w.t.Helper()
	pods := ""
	if host, port, err := net.SplitHostPort(addr); err == nil {
		now := time.Now().UTC().Format(time.RFC3339Nano)
		pods = fmt.Sprintf(", pods: [{name: llama-0, host: %s, port: %s, created: %s, readyAt: %s}]", host, port, now, now)
	}
	text := fmt.Sprintf("targets:\n- {namespace: ai, name: llama, maxReplicaCount: 1, metadata: {targetRequests: %q, modelName: %s, modelAliases: llama-3}%s}\n", "8", model, pods)
	require.NoError(w.t, os.WriteFile(w.targets+".new", []byte(text), 0o600))
	require.NoError(w.t, os.Rename(w.targets+".new", w.targets))
}

// woken is closed when KEDA's stream says that the model is to run.
func (w *world) woken() <-chan struct{} {
	w.t.Helper()
	conn, err := grpc.NewClient(w.keda, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(w.t, err)
	ctx, cancel := context.WithCancel(w.t.Context())
	w.t.Cleanup(func() {
		cancel()
		_ = conn.Close() // nothing is sent on it any more
	})
	stream, err := pb.NewExternalScalerClient(conn).StreamIsActive(ctx, &pb.ScaledObjectRef{
		Namespace: "ai", Name: "llama", ScalerMetadata: map[string]string{"targetRequests": "8", "modelName": model, "modelAliases": "llama-3"},
	})
	require.NoError(w.t, err)
	first, err := stream.Recv()
	require.NoError(w.t, err)
	require.False(w.t, first.GetResult(), "it sleeps at first")
	woken := make(chan struct{})
	go func() {
		for {
			if r, err := stream.Recv(); err != nil {
				return // the test has ended
			} else if r.GetResult() {
				close(woken)
				return
			}
		}
	}()
	return woken
}

// await waits for what wakes the model.
func (w *world) await(what <-chan struct{}) {
	w.t.Helper()
	select {
	case <-what:
	case <-time.After(soon):
		w.t.Fatal("KEDA was not told to start the model")
	}
}

// played is a scenario of the script under way.
type played struct {
	t    *testing.T
	cmd  *exec.Cmd
	out  bytes.Buffer
	errs bytes.Buffer
	done chan error
}

func (w *world) play(scenario, model string) *played {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 2*time.Minute)
	w.t.Cleanup(cancel)
	p := &played{t: w.t, done: make(chan error, 1)}
	p.cmd = exec.CommandContext(ctx, w.python, "script.py", scenario, w.url, model) //nolint:gosec // the Makefile's environment, our script
	p.cmd.Env, p.cmd.Stdout, p.cmd.Stderr = environment(), &p.out, &p.errs
	require.NoError(w.t, p.cmd.Start())
	go func() { p.done <- p.cmd.Wait() }()
	return p
}

// result waits for the script's end and reads what it printed.
func (p *played) result(into any) {
	p.t.Helper()
	require.NoError(p.t, <-p.done, "%s", &p.errs)
	require.NoError(p.t, json.Unmarshal(p.out.Bytes(), into), "%s", &p.out)
}

// metric reads a figure of the activator; labels as they are printed.
func (w *world) metric(series string) string {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet, w.probes+"/metrics", nil)
	require.NoError(w.t, err)
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	require.NoError(w.t, err)
	page, err := io.ReadAll(resp.Body)
	require.NoError(w.t, err)
	require.NoError(w.t, resp.Body.Close())
	found := regexp.MustCompile(`(?m)^pilotlight_activator_` + regexp.QuoteMeta(series) + ` (\S+)$`).FindSubmatch(page)
	if found == nil {
		return "0"
	}
	return string(found[1])
}

func (w *world) ended(class string) string {
	w.t.Helper()
	return w.metric(fmt.Sprintf(`requests_total{class=%q,namespace="ai",scaled_object="llama"}`, class))
}

func (w *world) eventually(what string, holds func() bool) {
	w.t.Helper()
	require.Eventually(w.t, holds, soon, 20*time.Millisecond, what)
}

// logged returns the activator's lines about requests. One that is being written
// is left out.
func (w *world) logged() (out []map[string]any) {
	w.t.Helper()
	text, err := os.ReadFile(w.log)
	require.NoError(w.t, err)
	for line := range strings.Lines(string(text)) {
		if !strings.HasSuffix(line, "\n") {
			break
		}
		var l map[string]any
		require.NoError(w.t, json.Unmarshal([]byte(line), &l), line)
		if l["msg"] == "request" {
			out = append(out, l)
		}
	}
	return out
}

// replica is the simulated engine and what it saw.
type replica struct {
	*engine.Engine
	addr string

	mu   sync.Mutex
	keys []string
	gone int // requests whose client went away
}

// start runs an engine until the test ends, and makes it the model's pod.
func (w *world) start(c engine.Config) *replica {
	w.t.Helper()
	c.Model = model
	r := &replica{Engine: engine.New(c)}
	require.NoError(w.t, r.Load(w.t.Context()))
	l, err := (&net.ListenConfig{}).Listen(w.t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(w.t, err)
	srv := &http.Server{Handler: r.watch(r.Handler()), ReadHeaderTimeout: soon}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = srv.Serve(l) // ends with Close
	}()
	w.t.Cleanup(func() {
		_ = srv.Close() // whatever still runs ends with it
		<-served
	})
	r.addr = l.Addr().String()
	w.place(r.addr)
	return r
}

func (r *replica) watch(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Method == http.MethodPost {
			defer func() {
				r.mu.Lock()
				defer r.mu.Unlock()
				r.keys = append(r.keys, req.Header.Get("Authorization"))
				if req.Context().Err() != nil {
					r.gone++
				}
			}()
		}
		next.ServeHTTP(w, req)
	})
}

// saw returns the keys of the requests that have ended, and how many of their
// clients had gone.
func (r *replica) saw() (keys []string, gone int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string{}, r.keys...), r.gone
}
