package scalercmd

import (
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/cmd/internal/cli"
	"github.com/pilotlight-dev/pilotlight/internal/exitcode"
)

func post(t *testing.T, url string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader("{}"))
	require.NoError(t, err)
	resp, err := http.DefaultTransport.RoundTrip(req)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	return resp.StatusCode
}

// The webhook is there only with a secret, and then lets nobody in without it.
func TestWebhookNeedsASecret(t *testing.T) {
	kubeconfig, _ := apiServer(t, http.StatusNotFound)
	without := start(t, "--kubeconfig", kubeconfig)
	require.Equal(t, http.StatusNotFound, post(t, "http://"+without.http+"/webhook"))
	require.Equal(t, exitcode.OK, without.stop())
	with := start(t, "--kubeconfig", kubeconfig, "--mlflow-webhook-secret-file", write(t, "secret", "s3cret"))
	require.Equal(t, http.StatusUnauthorized, post(t, "http://"+with.http+"/webhook"))
	require.Equal(t, exitcode.OK, with.stop())
}

func TestBadFlags(t *testing.T) {
	kubeconfig, _ := apiServer(t, http.StatusNotFound)
	static := write(t, "t.yaml", "targets: []")
	cases := map[string]struct {
		args []string
		says string
	}{
		"NoSecretFile":    {[]string{"--kubeconfig", kubeconfig, "--mlflow-webhook-secret-file", filepath.Join(t.TempDir(), "none")}, "--mlflow-webhook-secret-file"},
		"WebhookNoAgents": {[]string{"--static-targets", static, "--mlflow-webhook-secret-file", write(t, "s", "x")}, "needs a cluster"},
		"CostNoPods":      {[]string{"--static-targets", static, "--pod-deletion-cost"}, "needs a cluster"},
		"AgentPoll":       {[]string{"--static-targets", static, "--agent-poll", "10ms"}, "--agent-poll"},
		"ModelNames":      {[]string{"--static-targets", static, "--model-names", "world"}, "--model-names"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			code := Main(t.Context(), cli.Env{
				Args:   append(tc.args, "--listen=127.0.0.1:0", "--demand-listen=127.0.0.1:0", "--http-listen=127.0.0.1:0", "--log-level=error"),
				Getenv: func(string) string { return "" }, Stdout: io.Discard, Stderr: &out,
			})
			require.Equal(t, exitcode.Usage, code, out.String())
			require.Contains(t, out.String(), tc.says)
		})
	}
}
