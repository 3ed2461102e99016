package scalercmd

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	pb "github.com/kedacore/keda/v2/pkg/scalers/externalscaler"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/pilotlight-dev/pilotlight/cmd/internal/cli"
	"github.com/pilotlight-dev/pilotlight/cmd/internal/clusterflags"
	"github.com/pilotlight-dev/pilotlight/internal/exitcode"
)

func TestElectionNeedsAPod(t *testing.T) {
	for name, args := range map[string][]string{
		"NoPod":     {"--leader-elect", "--kubeconfig", "/nonexistent"},
		"NoCluster": {"--leader-elect", "--static-targets", "x.yaml"},
	} {
		t.Run(name, func(t *testing.T) {
			var stderr strings.Builder
			code := Main(t.Context(), cli.Env{Args: args, Getenv: func(string) string { return "" }, Stdout: io.Discard, Stderr: &stderr})
			require.Equal(t, exitcode.Usage, code, stderr.String())
		})
	}
	_, err := leaderFlags{elect: true, lease: "x"}.open(clusterflags.Flags{}, func(string) string { return "" }, nil)
	require.ErrorContains(t, err, "POD_NAME")
	_, err = leaderFlags{elect: true, lease: "x"}.open(clusterflags.Flags{Static: "x"}, func(string) string { return "" }, nil)
	require.ErrorContains(t, err, "needs a cluster")
}

func TestAStandbyRefusesAllButHealth(t *testing.T) {
	var g gate
	require.Equal(t, codes.Unavailable, status.Code(g.refuse("/externalscaler.ExternalScaler/IsActive")))
	require.Equal(t, codes.Unavailable, status.Code(g.refuse("/demand.Demand/Report")))
	require.NoError(t, g.refuse("/grpc.health.v1.Health/Check"))
	g.open.Store(true)
	require.NoError(t, g.refuse("/externalscaler.ExternalScaler/IsActive"))
}

// The only scaler there is answers from the first call on.
func TestWithoutAnElectionNobodyStandsBy(t *testing.T) {
	path := targets(t)
	for range 30 {
		r := start(t, "--static-targets", path)
		_, err := pb.NewExternalScalerClient(dial(t, r.keda, insecure.NewCredentials())).
			GetMetricSpec(t.Context(), &pb.ScaledObjectRef{Namespace: "ai", Name: "llama", ScalerMetadata: map[string]string{"targetRequests": "4", "modelName": "llama"}})
		require.NoError(t, err)
		require.Equal(t, exitcode.OK, r.stop())
	}
}

// The page of a standby would be empty, as if KEDA had asked about nothing.
func TestAStandbySaysSoOnItsPage(t *testing.T) {
	rec := httptest.NewRecorder()
	(&program{registry: newRegistry()}).handler().ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/debug/targets", nil))
	require.Equal(t, http.StatusServiceUnavailable, rec.Code)
	require.Contains(t, rec.Body.String(), "stands by")
}
