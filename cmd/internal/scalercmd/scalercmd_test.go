package scalercmd

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	pb "github.com/kedacore/keda/v2/pkg/scalers/externalscaler"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/pilotlight-dev/pilotlight/cmd/internal/cli"
	"github.com/pilotlight-dev/pilotlight/internal/demandpb"
	"github.com/pilotlight-dev/pilotlight/internal/exitcode"
	"github.com/pilotlight-dev/pilotlight/internal/tlsconf"
	"github.com/pilotlight-dev/pilotlight/internal/tlsconf/tlstest"
)

const metricsBody = `vllm:num_requests_running{model_name="llama",engine="0"} 6.0
vllm:num_requests_waiting{model_name="llama",engine="0"} 3.0
`

// running is a scaler started with flags, as a user starts it.
type running struct {
	keda, demand, http string
	log                string // what it said before it served
	stop               func() int
}

func start(t *testing.T, args ...string) running {
	t.Helper()
	return startIn(t, nil, args...)
}

// startIn starts it in an environment of its own.
func startIn(t *testing.T, env map[string]string, args ...string) running {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	logs, w := io.Pipe()
	code := make(chan int, 1)
	go func() {
		c := Main(ctx, cli.Env{Args: append([]string{"--listen=127.0.0.1:0", "--demand-listen=127.0.0.1:0", "--http-listen=127.0.0.1:0", "--interval=10ms", "--scrape-timeout=20s"}, args...), Getenv: func(name string) string { return env[name] }, Stdout: io.Discard, Stderr: w})
		_ = w.Close()
		code <- c
	}()
	lines := bufio.NewScanner(logs)
	var at struct {
		Msg                string
		Keda, Demand, HTTP string
	}
	var said strings.Builder
	for at.Keda == "" {
		require.True(t, lines.Scan(), "the scaler ended")
		require.NoError(t, json.Unmarshal(lines.Bytes(), &at), lines.Text())
		said.WriteString(lines.Text() + "\n")
	}
	go func() { _, _ = io.Copy(io.Discard, logs) }()
	r := running{log: said.String(), keda: at.Keda, demand: at.Demand, http: at.HTTP, stop: func() int {
		cancel()
		select {
		case c := <-code:
			code <- c
			return c
		case <-time.After(20 * time.Second):
			return -1
		}
	}}
	t.Cleanup(func() { r.stop() })
	return r
}

// targets writes a targets file with one Ready engine that serves metricsBody.
func targets(t *testing.T) string {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, metricsBody) }))
	t.Cleanup(srv.Close)
	host, port, err := net.SplitHostPort(srv.Listener.Addr().String())
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "targets.yaml")
	body := fmt.Sprintf("targets:\n- {namespace: ai, name: llama, maxReplicaCount: 4, pods: [{name: a, host: %s, port: %s, created: 2026-01-01T00:00:00Z, readyAt: 2026-01-01T00:01:00Z}]}\n", host, port)
	require.NoError(t, os.WriteFile(path, []byte(body), 0o600))
	return path
}

func dial(t *testing.T, addr string, creds credentials.TransportCredentials) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(creds))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

var object = &pb.ScaledObjectRef{Namespace: "ai", Name: "llama", ScalerMetadata: map[string]string{
	"scalerAddress": "localhost:6000", "targetRequests": "4", "modelName": "llama",
}}

// exercise makes all five calls as KEDA does.
func exercise(t *testing.T, conn *grpc.ClientConn) {
	t.Helper()
	c := pb.NewExternalScalerClient(conn)
	spec, err := c.GetMetricSpec(t.Context(), object)
	require.NoError(t, err)
	name := spec.GetMetricSpecs()[0].GetMetricName()
	values, err := c.GetMetrics(t.Context(), &pb.GetMetricsRequest{ScaledObjectRef: object, MetricName: name})
	require.NoError(t, err)
	require.InDelta(t, 12, values.GetMetricValues()[0].GetMetricValueFloat(), 0, "9 requests at 4 each: 3 replicas x 4")
	active, err := c.IsActive(t.Context(), object)
	require.NoError(t, err)
	require.True(t, active.GetResult())
	push, err := c.StreamIsActive(t.Context(), object)
	require.NoError(t, err)
	pushed, err := push.Recv()
	require.NoError(t, err)
	require.True(t, pushed.GetResult())
	specs, err := c.StreamMetricSpec(t.Context(), object)
	require.NoError(t, err)
	streamed, err := specs.Recv()
	require.NoError(t, err)
	require.Equal(t, spec.String(), streamed.String())
	_, err = healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{})
	require.NoError(t, err)
}

func TestFiveCallsInPlainText(t *testing.T) {
	r := start(t, "--static-targets", targets(t))
	exercise(t, dial(t, r.keda, insecure.NewCredentials()))
	require.Equal(t, exitcode.OK, r.stop())
}

func TestFiveCallsOverTLS(t *testing.T) {
	ca, err := tlstest.New("ours")
	require.NoError(t, err)
	server, err := ca.Issue(t.TempDir(), "scaler")
	require.NoError(t, err)
	r := start(t, "--static-targets", targets(t), "--tls-cert-file", server.Cert, "--tls-key-file", server.Key)
	client, err := tlsconf.Client(tlsconf.Files{CA: server.CA})
	require.NoError(t, err)
	exercise(t, dial(t, r.keda, credentials.NewTLS(client)))

	_, err = pb.NewExternalScalerClient(dial(t, r.keda, insecure.NewCredentials())).GetMetricSpec(t.Context(), object)
	require.Error(t, err, "plain text is not served beside TLS")
}

func TestFiveCallsOverMutualTLS(t *testing.T) {
	ca, err := tlstest.New("ours")
	require.NoError(t, err)
	server, err := ca.Issue(t.TempDir(), "scaler")
	require.NoError(t, err)
	keda, err := ca.Issue(t.TempDir(), "keda")
	require.NoError(t, err)
	r := start(t, "--static-targets", targets(t), "--tls-cert-file", server.Cert, "--tls-key-file", server.Key, "--tls-client-ca-file", server.CA)
	client, err := tlsconf.Client(keda)
	require.NoError(t, err)
	exercise(t, dial(t, r.keda, credentials.NewTLS(client)))

	anonymous, err := tlsconf.Client(tlsconf.Files{CA: server.CA})
	require.NoError(t, err)
	_, err = pb.NewExternalScalerClient(dial(t, r.keda, credentials.NewTLS(anonymous))).GetMetricSpec(t.Context(), object)
	require.Error(t, err, "a client without a certificate is refused")
	_, err = demandpb.NewDemandClient(dial(t, r.demand, credentials.NewTLS(anonymous))).Report(t.Context())
	if err == nil {
		stream, serr := demandpb.NewDemandClient(dial(t, r.demand, credentials.NewTLS(anonymous))).Report(t.Context())
		require.NoError(t, serr)
		_, err = stream.Recv()
	}
	require.Error(t, err, "and so is an activator")
}

// Demand that an activator reports wakes the model through KEDA's stream.
func TestDemandWakes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "targets.yaml")
	require.NoError(t, os.WriteFile(path, []byte("targets: [{namespace: ai, name: llama, maxReplicaCount: 4}]"), 0o600))
	r := start(t, "--static-targets", path)
	push, err := pb.NewExternalScalerClient(dial(t, r.keda, insecure.NewCredentials())).StreamIsActive(t.Context(), object)
	require.NoError(t, err)
	first, err := push.Recv()
	require.NoError(t, err)
	require.False(t, first.GetResult())
	report, err := demandpb.NewDemandClient(dial(t, r.demand, insecure.NewCredentials())).Report(t.Context())
	require.NoError(t, err)
	require.NoError(t, report.Send(&demandpb.Snapshot{ActivatorId: "a", BootId: "b", Seq: 1, Targets: []*demandpb.TargetDemand{{Namespace: "ai", ScaledObject: "llama", Held: 1}}}))
	ack, err := report.Recv()
	require.NoError(t, err)
	require.Equal(t, uint64(1), ack.GetSeq())
	second, err := push.Recv()
	require.NoError(t, err)
	require.True(t, second.GetResult())
	require.Equal(t, exitcode.OK, r.stop(), "open streams do not keep the scaler from stopping")
	_, err = push.Recv()
	require.ErrorIs(t, err, io.EOF)
}

// A signal that comes while the servers begin is a stop like any other.
func TestStoppedAtOnce(t *testing.T) {
	file := targets(t)
	for range 30 {
		require.Equal(t, exitcode.OK, start(t, "--static-targets", file).stop())
	}
}

func TestHTTP(t *testing.T) {
	r := start(t, "--static-targets", targets(t))
	exercise(t, dial(t, r.keda, insecure.NewCredentials()))
	for path, want := range map[string]string{
		"/healthz": "", "/readyz": "", "/metrics": "pilotlight_scaler_wanted_replicas", "/debug/targets": `"scaledObject": "llama"`,
	} {
		require.Contains(t, r.get(t, path), want, path)
	}
}

// get returns what a path of the scaler's HTTP server answers.
func (r running) get(t *testing.T, path string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+r.http+path, nil)
	require.NoError(t, err)
	resp, err := http.DefaultTransport.RoundTrip(req)
	require.NoError(t, err)
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusOK, resp.StatusCode, path)
	return string(body)
}

// What the user can mend is one line that names it, and exit code 2.
func TestUsageErrors(t *testing.T) {
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	taken := l.Addr().String()
	empty := filepath.Join(t.TempDir(), "empty.yaml")
	require.NoError(t, os.WriteFile(empty, []byte("targets: []"), 0o600))
	cases := map[string]struct {
		args []string
		says string
	}{
		"NoCluster":      {nil, "no cluster"},
		"NoSuchConfig":   {[]string{"--kubeconfig", "none.yaml"}, "none.yaml"},
		"NoSuchTargets":  {[]string{"--static-targets", "none.yaml"}, "none.yaml"},
		"PortInUse":      {[]string{"--static-targets", empty, "--listen", taken}, taken},
		"UnknownFlag":    {[]string{"--colour"}, "--colour"},
		"Argument":       {[]string{"serve"}, "serve"},
		"LogLevel":       {[]string{"--log-level", "loud"}, "--log-level"},
		"NoCertificate":  {[]string{"--static-targets", empty, "--tls-cert-file", "none.crt", "--tls-key-file", "none.key"}, "none.crt"},
		"CAWithoutCert":  {[]string{"--static-targets", empty, "--tls-client-ca-file", "x"}, "--tls-cert-file"},
		"SillyInterval":  {[]string{"--static-targets", empty, "--interval", "1ns"}, "--interval"},
		"TwoStates":      {[]string{"--static-targets", empty, "--state-file", "x", "--state-namespace", "y"}, "--state-namespace"},
		"NoStateCluster": {[]string{"--static-targets", empty, "--state-namespace", "y"}, "--state-file"},
		"NoStateFolder":  {[]string{"--static-targets", empty, "--state-file", "/none/state.json"}, "--state-file"},
		"StateIsFolder":  {[]string{"--static-targets", empty, "--state-file", t.TempDir()}, "--state-file"},
		"StateInFile":    {[]string{"--static-targets", empty, "--state-file", filepath.Join(empty, "state.json")}, "--state-file"},
		"UnknownLogging": {[]string{"--log-format", "xml"}, "--log-format"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Setenv("HOME", t.TempDir())
			t.Setenv("KUBECONFIG", "")
			var stderr strings.Builder
			code := Main(t.Context(), cli.Env{Args: tc.args, Getenv: func(string) string { return "" }, Stdout: io.Discard, Stderr: &stderr})
			require.Equal(t, exitcode.Usage, code, stderr.String())
			require.Contains(t, stderr.String(), tc.says)
			require.Equal(t, 1, strings.Count(stderr.String(), "\n"), "one line: %s", stderr.String())
			require.NotContains(t, stderr.String(), "goroutine")
		})
	}
	var out strings.Builder
	require.Equal(t, exitcode.OK, Main(t.Context(), cli.Env{Args: []string{"--version"}, Stdout: &out, Stderr: io.Discard}))
	require.Contains(t, out.String(), "pilotlight-scaler dev (commit")
}
