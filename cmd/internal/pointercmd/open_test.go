package pointercmd_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/cmd/internal/pointercmd"
)

// A pod that answers without end does not fill the command line's memory.
func TestAnswersOfPodsAreBounded(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 8<<20)) }))
	t.Cleanup(srv.Close)
	cluster, err := pointercmd.OpenCluster(pointercmd.ClusterFlags{Kubeconfig: kubeconfig(t, srv.URL)}, func(string) string { return "" })
	require.NoError(t, err)
	body, err := cluster.Client.CoreV1().Pods("ai").ProxyGet("http", "a", "9400", "status", nil).DoRaw(t.Context())
	require.NoError(t, err)
	require.LessOrEqual(t, len(body), 2<<20)
}

// Nothing but the command's own words is on stderr, whatever an API server does:
// this one begins an answer and hangs.
func TestTheClusterClientSaysNothing(t *testing.T) {
	ended := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte("{"))
		w.(http.Flusher).Flush()
		select {
		case <-r.Context().Done():
		case <-ended:
		}
	}))
	t.Cleanup(srv.Close)
	t.Cleanup(func() { close(ended) })
	w := newWorld(t)
	w.deps.Cluster = func(f pointercmd.ClusterFlags) (*pointercmd.Cluster, error) {
		return pointercmd.OpenCluster(f, func(string) string { return "" })
	}
	reader, writer, err := os.Pipe()
	require.NoError(t, err)
	before := os.Stderr
	os.Stderr = writer
	out := w.run("status", "llama@champion", "--timeout", "1s", "--kubeconfig", kubeconfig(t, srv.URL))
	os.Stderr = before
	require.NoError(t, writer.Close())
	said, err := io.ReadAll(reader)
	require.NoError(t, err)
	require.Empty(t, string(said))
	require.NotZero(t, out.code)
	require.Equal(t, 1, strings.Count(out.stderr, "\n"), "%s", out.stderr)
}

func kubeconfig(t *testing.T, server string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	config := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}], clusters: [{name: c, cluster: {server: %q}}], users: [{name: u}]}`, server)
	require.NoError(t, os.WriteFile(file, []byte(config), 0o600))
	return file
}
