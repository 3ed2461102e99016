package kedaconformance

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	pb "github.com/kedacore/keda/v2/pkg/scalers/externalscaler"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"sigs.k8s.io/yaml"

	"github.com/pilotlight-dev/pilotlight/internal/demandpb"
	"github.com/pilotlight-dev/pilotlight/internal/workload/static"
	"github.com/pilotlight-dev/pilotlight/scaler"
	"github.com/pilotlight-dev/pilotlight/test/e2e/plane"
)

// soon bounds what happens at once, on a machine that has other things to do.
const soon = 30 * time.Second

// program is the scaler, built once.
var program = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "pilotlight-conformance")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "pilotlight-scaler")
	if out, err := exec.Command("go", "build", "-trimpath", "-o", path, "../../../cmd/pilotlight-scaler").CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the scaler: %w: %s", err, out)
	}
	return path, nil
})

func TestMain(m *testing.M) {
	// Most of the time the checks wait, so that many may at once.
	if err := flag.Set("test.parallel", "10"); err != nil {
		panic(err)
	}
	code := m.Run()
	if path, err := program(); err == nil {
		_ = os.RemoveAll(filepath.Dir(path))
	}
	os.Exit(code)
}

// server is a scaler that runs, and the file that it has its targets from.
type server struct {
	*plane.Process
	t                  *testing.T
	keda, demand, http string
	file               string
	conn               *grpc.ClientConn
	pb.ExternalScalerClient
}

// serve starts a scaler that looks ten times a second, for targets of a file, and
// dials it as KEDA does, by whatever credentials KEDA would have.
func serve(t *testing.T, creds credentials.TransportCredentials, targets []static.Target, flags ...string) *server {
	t.Helper()
	s := &server{t: t, file: filepath.Join(t.TempDir(), "targets.yaml")}
	s.targets(targets...)
	s.launch(append([]string{"--static-targets", s.file, "--interval", "100ms"}, flags...)...)
	s.dial(creds)
	return s
}

// launch starts the program and finds out where it listens.
func (s *server) launch(args ...string) {
	s.t.Helper()
	path, err := program()
	require.NoError(s.t, err)
	s.Process, err = plane.Run(context.Background(), s.t.TempDir(), "scaler", nil, path, append([]string{"--listen=127.0.0.1:0", "--demand-listen=127.0.0.1:0", "--http-listen=127.0.0.1:0"}, args...)...)
	require.NoError(s.t, err)
	s.t.Cleanup(func() { _ = s.Kill() })
	require.Eventually(s.t, func() bool {
		log, err := os.ReadFile(s.Log)
		require.NoError(s.t, err)
		for line := range bytes.Lines(log) {
			var at struct{ Msg, Keda, Demand, HTTP string }
			if json.Unmarshal(line, &at) == nil && at.Msg == "serving" {
				s.keda, s.demand, s.http = at.Keda, at.Demand, at.HTTP
				return true
			}
		}
		select {
		case <-s.Done():
			require.FailNow(s.t, "the scaler has ended", s.Tail())
		default:
		}
		return false
	}, soon, 10*time.Millisecond)
}

// dial connects as KEDA's client does: round robin, no retries, no keepalive.
func (s *server) dial(creds credentials.TransportCredentials) {
	s.t.Helper()
	if creds == nil {
		creds = insecure.NewCredentials()
	}
	conn, err := grpc.NewClient(s.keda, grpc.WithTransportCredentials(creds), grpc.WithDefaultServiceConfig(`{"loadBalancingConfig": [{"round_robin":{}}]}`))
	require.NoError(s.t, err)
	s.t.Cleanup(func() { _ = conn.Close() })
	s.conn, s.ExternalScalerClient = conn, pb.NewExternalScalerClient(conn)
}

// targets replaces the file.
func (s *server) targets(list ...static.Target) {
	s.t.Helper()
	data, err := yaml.Marshal(static.File{Targets: list})
	require.NoError(s.t, err)
	require.NoError(s.t, os.WriteFile(s.file+".new", data, 0o600))
	require.NoError(s.t, os.Rename(s.file+".new", s.file))
}

// asksFor gives ai/llama these engines and says that n replicas are asked for;
// -1 is that nobody knows.
func (s *server) asksFor(n int, engines ...*engine) {
	s.t.Helper()
	one := llama(engines...)
	one.Replicas = &n
	s.targets(one)
}

// reason is why the scaler has decided last as it has.
func (s *server) reason(so *pb.ScaledObjectRef) string {
	_, body := s.get("/debug/targets")
	var list []scaler.TargetStatus
	if json.Unmarshal([]byte(body), &list) != nil {
		return ""
	}
	for _, one := range list {
		if one.Namespace == so.GetNamespace() && one.ScaledObject == so.GetName() {
			return one.Reason
		}
	}
	return ""
}

// get asks the scaler's HTTP port; status 0 is no answer.
func (s *server) get(path string) (status int, body string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), soon)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.http+path, nil)
	require.NoError(s.t, err)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	data, err := io.ReadAll(resp.Body)
	require.NoError(s.t, err)
	require.NoError(s.t, resp.Body.Close())
	return resp.StatusCode, string(data)
}

// name is the metric's, as the spec says it.
func (s *server) name(so *pb.ScaledObjectRef) string {
	s.t.Helper()
	spec, err := s.GetMetricSpec(s.t.Context(), so)
	require.NoError(s.t, err)
	return spec.GetMetricSpecs()[0].GetMetricName()
}

// value asks for the metric, under the name that the HPA knows it by.
func (s *server) value(so *pb.ScaledObjectRef) (float64, error) {
	s.t.Helper()
	resp, err := s.GetMetrics(s.t.Context(), &pb.GetMetricsRequest{ScaledObjectRef: so, MetricName: s.name(so)})
	if err != nil {
		return 0, err
	}
	require.Len(s.t, resp.GetMetricValues(), 1, "KEDA sums up whatever comes")
	return resp.GetMetricValues()[0].GetMetricValueFloat(), nil
}

// becomes waits for a value.
func (s *server) becomes(so *pb.ScaledObjectRef, want float64, why string) {
	s.t.Helper()
	var last any
	require.Eventually(s.t, func() bool {
		v, err := s.value(so)
		last = []any{v, err}
		return err == nil && v == want
	}, soon, 20*time.Millisecond, "%s: want %v, last %v", why, want, last)
}

// object is a trigger of ai/llama as KEDA passes it on; "" takes a key away.
func object(change map[string]string) *pb.ScaledObjectRef {
	metadata := map[string]string{
		"scalerAddress": "pilotlight-scaler.keda:6000", "targetRequests": "4", "modelName": "llama",
		"keepAlive": "0s", "scaleDownWindow": "0s", "staleAfter": "2s",
	}
	for k, v := range change {
		if metadata[k] = v; v == "" {
			delete(metadata, k)
		}
	}
	return &pb.ScaledObjectRef{Namespace: "ai", Name: "llama", ScalerMetadata: metadata}
}

// llama is a target with these engines, all Ready for long.
func llama(engines ...*engine) static.Target {
	return target("ai", "llama", engines...)
}

func target(namespace, name string, engines ...*engine) static.Target {
	out := static.Target{Namespace: namespace, Name: name, MaxReplicas: 8}
	for i, e := range engines {
		host, port, _ := net.SplitHostPort(e.Listener.Addr().String())
		n, _ := strconv.Atoi(port)
		long := time.Now().Add(-time.Hour)
		out.Pods = append(out.Pods, static.Pod{Name: fmt.Sprintf("%s-%d", name, i), Host: host, Port: n, Created: long, ReadyAt: long.Add(time.Minute)})
	}
	return out
}

// engine is one whose gauges a test sets.
type engine struct {
	*httptest.Server
	mu               sync.Mutex
	running, waiting string
	hangs            bool
}

func newEngine(t *testing.T, running string) *engine {
	t.Helper()
	e := &engine{running: running, waiting: "0"}
	e.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		e.mu.Lock()
		running, waiting, hangs := e.running, e.waiting, e.hangs
		e.mu.Unlock()
		if hangs {
			<-r.Context().Done()
			return
		}
		_, _ = fmt.Fprintf(w, "vllm:num_requests_running{model_name=\"llama\"} %s\nvllm:num_requests_waiting{model_name=\"llama\"} %s\n", running, waiting)
	}))
	t.Cleanup(e.Close)
	return e
}

func (e *engine) set(change func(*engine)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	change(e)
}

// activator reports what it holds, as the real one does.
type activator struct {
	mu   sync.Mutex
	held map[string]uint64 // by namespace/name
	now  chan struct{}
}

// report begins to report, ten times a second and whenever something changes.
func (s *server) report() *activator {
	s.t.Helper()
	conn, err := grpc.NewClient(s.demand, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(s.t, err)
	stream, err := demandpb.NewDemandClient(conn).Report(s.t.Context())
	require.NoError(s.t, err)
	a := &activator{held: map[string]uint64{"ai/llama": 0}, now: make(chan struct{}, 1)}
	ctx, stop := context.WithCancel(s.t.Context())
	var sending sync.WaitGroup
	sending.Go(func() {
		for seq := uint64(1); ctx.Err() == nil; seq++ {
			if stream.Send(a.snapshot(seq)) != nil {
				return // the scaler has ended
			}
			select {
			case <-ctx.Done():
			case <-a.now:
			case <-time.After(100 * time.Millisecond):
			}
		}
	})
	s.t.Cleanup(func() { stop(); _ = conn.Close(); sending.Wait() })
	return a
}

func (a *activator) snapshot(seq uint64) *demandpb.Snapshot {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := &demandpb.Snapshot{ActivatorId: "a", BootId: "b", Seq: seq}
	for key, held := range a.held {
		ref := bytes.SplitN([]byte(key), []byte("/"), 2)
		out.Targets = append(out.Targets, &demandpb.TargetDemand{Namespace: string(ref[0]), ScaledObject: string(ref[1]), Held: held})
	}
	return out
}

// hold says that n requests wait for ai/llama.
func (a *activator) hold(n uint64) {
	a.mu.Lock()
	a.held["ai/llama"] = n
	a.mu.Unlock()
	select {
	case a.now <- struct{}{}:
	default:
	}
}
