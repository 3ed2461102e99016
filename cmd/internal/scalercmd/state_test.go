package scalercmd

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "github.com/kedacore/keda/v2/pkg/scalers/externalscaler"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/pilotlight-dev/pilotlight/internal/exitcode"
	"github.com/pilotlight-dev/pilotlight/scaler"
	"github.com/pilotlight-dev/pilotlight/warmup/coldstart"
)

// What an engine says before and after four requests that took 7 s each.
const (
	quiet = `vllm:num_requests_running{model_name="llama"} 0
vllm:num_requests_waiting{model_name="llama"} 0
vllm:request_success_total{model_name="llama"} 0
vllm:request_inference_time_seconds_sum{model_name="llama"} 0
vllm:request_inference_time_seconds_count{model_name="llama"} 0
vllm:request_queue_time_seconds_sum{model_name="llama"} 0
vllm:request_queue_time_seconds_count{model_name="llama"} 0
`
	served = `vllm:num_requests_running{model_name="llama"} 0
vllm:num_requests_waiting{model_name="llama"} 0
vllm:request_success_total{model_name="llama"} 4
vllm:request_inference_time_seconds_sum{model_name="llama"} 28
vllm:request_inference_time_seconds_count{model_name="llama"} 4
vllm:request_queue_time_seconds_sum{model_name="llama"} 0
vllm:request_queue_time_seconds_count{model_name="llama"} 4
`
)

// patient values a second of waiting so much that few requests make replicas
// worth keeping for long.
var patient = &pb.ScaledObjectRef{Namespace: "ai", Name: "llama", ScalerMetadata: map[string]string{
	"targetRequests": "4", "modelName": "llama", "gpuHourlyCost": "0.36", "waitCost": "0.1",
}}

// engines are what all pods of a fleet are.
type engines struct {
	body    atomic.Value // string
	scrapes atomic.Int64
}

func (e *engines) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	_, _ = io.WriteString(w, e.body.Load().(string))
	e.scrapes.Add(1)
}

// fleet writes a targets file with three Ready pods that took 40, 50 and 60 s.
func fleet(t *testing.T, e *engines) string {
	t.Helper()
	e.body.Store(quiet)
	srv := httptest.NewServer(e)
	t.Cleanup(srv.Close)
	host, port, err := net.SplitHostPort(srv.Listener.Addr().String())
	require.NoError(t, err)
	file := "targets:\n- namespace: ai\n  name: llama\n  maxReplicaCount: 4\n  pods:\n"
	for i, ready := range []string{"00:40", "00:50", "01:00"} {
		file += fmt.Sprintf("  - {name: pod-%d, template: 5d4f, host: %s, port: %s, created: 2026-01-01T00:00:00Z, scheduled: 2026-01-01T00:00:10Z, readyAt: 2026-01-01T00:%sZ}\n", i, host, port, ready)
	}
	path := filepath.Join(t.TempDir(), "targets.yaml")
	require.NoError(t, os.WriteFile(path, []byte(file), 0o600))
	return path
}

// target is what /debug/targets says of the only target, once KEDA has asked.
func (r running) target(t *testing.T) scaler.TargetStatus {
	t.Helper()
	_, err := pb.NewExternalScalerClient(dial(t, r.keda, insecure.NewCredentials())).IsActive(t.Context(), patient)
	require.NoError(t, err)
	var targets []scaler.TargetStatus
	require.NoError(t, json.Unmarshal([]byte(r.get(t, "/debug/targets")), &targets))
	require.Len(t, targets, 1)
	return targets[0]
}

// sample is the value of the first series of /metrics that begins with name
// and has all the labels; false if there is none.
func (r running) sample(t *testing.T, name string, labels ...string) (float64, bool) {
	t.Helper()
next:
	for line := range strings.Lines(r.get(t, "/metrics")) {
		if !strings.HasPrefix(line, name+"{") {
			continue
		}
		for _, l := range labels {
			if !strings.Contains(line, l) {
				continue next
			}
		}
		v, err := strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndex(line, " ")+1:]), 64)
		require.NoError(t, err)
		return v, true
	}
	return 0, false
}

// A restart forgets neither how long starts take, nor how long requests do,
// nor for how long a burst has made the replicas worth keeping.
func TestRemembersAcrossRestart(t *testing.T) {
	var e engines
	pods := fleet(t, &e)
	args := []string{"--static-targets", pods, "--state-file", filepath.Join(t.TempDir(), "state.json")}

	first := start(t, args...)
	require.InDelta(t, 6.5, first.target(t).Terms.Residence, 0, "the prior")
	const patience, step = 20 * time.Second, 5 * time.Millisecond
	require.Eventually(t, func() bool { return e.scrapes.Load() >= 9 }, patience, step, "counters count from the second look on")
	e.body.Store(served)
	require.Eventually(t, func() bool { return time.Duration(first.target(t).Terms.HoldLeft) > 5*time.Minute }, patience, step, "longer than a young scaler is careful")
	require.InDelta(t, 7, first.target(t).Terms.Residence, 0)
	starts, ok := first.sample(t, "pilotlight_coldstart_seconds_count", `namespace="ai"`, `scaled_object="llama"`, `slice="total"`)
	require.True(t, ok)
	require.InDelta(t, 3, starts, 0)
	for slice, want := range map[string]float64{"schedule": 30, "fetch": 0, "load": 120, "total": 150} {
		sum, ok := first.sample(t, "pilotlight_coldstart_seconds_sum", `slice="`+slice+`"`)
		require.True(t, ok, slice)
		require.InDelta(t, want, sum, 1e-9, slice)
	}
	require.Equal(t, exitcode.OK, first.stop())

	second := start(t, args...)
	st := second.target(t)
	require.InDelta(t, 7, st.Terms.Residence, 0)
	require.Greater(t, st.Terms.HoldLeft, 4*time.Minute)
	require.Equal(t, 3, *st.Replicas)
	require.Equal(t, "hold", st.Reason)
	_, ok = second.sample(t, "pilotlight_coldstart_seconds_count")
	require.False(t, ok, "the same pods have not started again")
	p50, ok := second.sample(t, "pilotlight_coldstart_learned_seconds", `quantile="0.5"`, `scaled_object="llama"`)
	require.True(t, ok)
	require.InDelta(t, 50, p50, 1e-6)
	p95, ok := second.sample(t, "pilotlight_coldstart_learned_seconds", `quantile="0.95"`)
	require.True(t, ok)
	require.Greater(t, p95, p50)
	require.Equal(t, exitcode.OK, second.stop())

	forgetful := start(t, "--static-targets", pods)
	st = forgetful.target(t)
	require.InDelta(t, 6.5, st.Terms.Residence, 0, "without a file there is nothing to remember")
	require.LessOrEqual(t, st.Terms.HoldLeft, time.Minute)
}

// Series end with their target, and only then.
func TestStartMetricsEndWithTheTarget(t *testing.T) {
	c := newColdstarts()
	live := []scaler.TargetStatus{{Namespace: "ai", ScaledObject: "llama", Trigger: "t"}, {Namespace: "ai", ScaledObject: "mistral", Trigger: "t"}}
	c.targets = func() []scaler.TargetStatus { return live }
	reg := prometheus.NewPedanticRegistry()
	require.NoError(t, reg.Register(c))
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for _, st := range live {
		var pods []coldstart.Pod
		for i := range 3 {
			pods = append(pods, coldstart.Pod{Name: strconv.Itoa(i), Created: at, Scheduled: at.Add(time.Second), Initialised: at.Add(30 * time.Second), Ready: at.Add(time.Minute)})
		}
		c.learner.Observe(coldstart.Key{Namespace: st.Namespace, Name: st.ScaledObject, Trigger: st.Trigger}, pods, at)
	}
	count := func(name string) int {
		families, err := reg.Gather()
		require.NoError(t, err)
		for _, f := range families {
			if f.GetName() == name {
				return len(f.GetMetric())
			}
		}
		return 0
	}
	require.Equal(t, 8, count("pilotlight_coldstart_seconds"))
	require.Equal(t, 4, count("pilotlight_coldstart_learned_seconds"))
	live = live[:1]
	require.Equal(t, 4, count("pilotlight_coldstart_seconds"), "four slices of the one that lives")
	require.Equal(t, 2, count("pilotlight_coldstart_learned_seconds"))
}

// apiServer is a cluster that answers everything with one status, and the
// paths it was asked for. It returns a kubeconfig.
func apiServer(t *testing.T, status int) (kubeconfig string, asked func() string) {
	t.Helper()
	var mu sync.Mutex
	var paths strings.Builder
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		paths.WriteString(r.Method + " " + r.URL.Path + "\n")
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		reason := map[int]string{http.StatusForbidden: "Forbidden", http.StatusNotFound: "NotFound"}[status]
		_, _ = fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"code":%d}`, reason, status)
	}))
	t.Cleanup(srv.Close)
	kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(kubeconfig, []byte(fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c}}]
clusters: [{name: c, cluster: {server: %q}}]
`, srv.URL)), 0o600))
	return kubeconfig, func() string {
		mu.Lock()
		defer mu.Unlock()
		return paths.String()
	}
}

func TestStateInACluster(t *testing.T) {
	const lost, unreached = "lost with this process", "could not be reached"
	cases := map[string]struct {
		status int
		env    map[string]string
		args   []string
		asks   string // namespace whose ConfigMaps are read
		says   string
		reason string
	}{
		"Flag":      {http.StatusNotFound, map[string]string{"POD_NAMESPACE": "mine"}, []string{"--state-namespace", "theirs"}, "theirs", "", "the flag wins"},
		"Pod":       {http.StatusNotFound, map[string]string{"POD_NAMESPACE": "mine"}, nil, "mine", "", "the pod's own"},
		"Neither":   {http.StatusNotFound, nil, nil, "", lost, "served all the same"},
		"Forbidden": {http.StatusForbidden, map[string]string{"POD_NAMESPACE": "mine"}, nil, "mine", unreached, "served all the same"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			kubeconfig, asked := apiServer(t, tc.status)
			r := startIn(t, tc.env, append(tc.args, "--kubeconfig", kubeconfig)...)
			for _, says := range []string{lost, unreached} {
				require.Equal(t, says == tc.says, strings.Contains(r.log, says), "%s: %s", tc.reason, r.log)
			}
			const get = "GET /api/v1/namespaces/"
			require.Equal(t, tc.asks != "", strings.Contains(asked(), "/configmaps/pilotlight-state-"), tc.reason)
			if tc.asks != "" {
				require.Contains(t, asked(), get+tc.asks+"/configmaps/pilotlight-state-0\n", tc.reason)
			}
			require.Equal(t, exitcode.OK, r.stop())
		})
	}
}

// In a cluster a file can be asked for too: then no ConfigMap is touched.
func TestStateFileInACluster(t *testing.T) {
	kubeconfig, asked := apiServer(t, http.StatusNotFound)
	r := startIn(t, map[string]string{"POD_NAMESPACE": "mine"}, "--kubeconfig", kubeconfig, "--state-file", filepath.Join(t.TempDir(), "state.json"))
	require.NotContains(t, asked(), "configmaps")
	require.Equal(t, exitcode.OK, r.stop())
}
