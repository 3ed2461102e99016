package scalercmd

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	pb "github.com/kedacore/keda/v2/pkg/scalers/externalscaler"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/pilotlight-dev/pilotlight/cmd/internal/cli"
	"github.com/pilotlight-dev/pilotlight/internal/exitcode"
)

func write(t *testing.T, name, body string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, []byte(body), 0o600))
	return path
}

// From the file to a push: a request that waits at a gateway wakes the model.
func TestDemandSourceFile(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `llm_d_epp_flow_control_queue_size{model_name="llama"} 2`+"\n")
	}))
	t.Cleanup(srv.Close)
	file := write(t, "sources.yaml", "sources: [{name: epp, type: epp, url: '"+srv.URL+"/metrics', namespaces: [ai], interval: 200ms}]")
	empty := write(t, "targets.yaml", "targets: [{namespace: ai, name: llama, maxReplicaCount: 4}]")
	r := start(t, "--static-targets", empty, "--demand-sources", file)
	c := pb.NewExternalScalerClient(dial(t, r.keda, insecure.NewCredentials()))
	so := &pb.ScaledObjectRef{Namespace: "ai", Name: "llama", ScalerMetadata: map[string]string{"targetRequests": "4", "modelName": "llama", "demandFrom": "epp"}}
	push, err := c.StreamIsActive(t.Context(), so)
	require.NoError(t, err)
	for active := false; !active; {
		got, err := push.Recv()
		require.NoError(t, err)
		active = got.GetResult()
	}
	so.Namespace = "other"
	_, err = c.GetMetricSpec(t.Context(), so)
	require.Equal(t, codes.InvalidArgument, status.Code(err))
	require.ErrorContains(t, err, "namespace other")
	require.Eventually(t, func() bool {
		resp, err := http.DefaultTransport.RoundTrip(get(t, "http://"+r.http+"/metrics"))
		require.NoError(t, err)
		defer func() { _ = resp.Body.Close() }()
		page, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return strings.Contains(string(page), `pilotlight_demand_source_last_success_timestamp_seconds{source="epp"}`)
	}, 30*time.Second, 10*time.Millisecond)
	require.Equal(t, exitcode.OK, r.stop())
}

func get(t *testing.T, url string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	return req
}

func TestBadDemandSourceFileEndsTheStart(t *testing.T) {
	cases := map[string]struct{ path, says string }{
		"Missing": {filepath.Join(t.TempDir(), "no.yaml"), "--demand-sources"},
		"Broken":  {write(t, "a.yaml", "sources: [{name: epp, type: nats, url: 'http://x', namespaces: [ai]}]"), "sources[0].type"},
		"Token":   {write(t, "b.yaml", "sources: [{name: epp, type: epp, url: 'http://x', namespaces: [ai], bearerTokenFile: /no/such}]"), "bearerTokenFile"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			code := Main(t.Context(), cli.Env{Args: []string{
				"--static-targets", write(t, "t.yaml", "targets: []"), "--demand-sources", tc.path,
				"--listen=127.0.0.1:0", "--demand-listen=127.0.0.1:0", "--http-listen=127.0.0.1:0",
			}, Getenv: func(string) string { return "" }, Stdout: io.Discard, Stderr: &out})
			require.Equal(t, exitcode.Usage, code)
			require.Contains(t, out.String(), tc.says)
		})
	}
}
