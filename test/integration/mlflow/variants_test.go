package mlflow_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/fetcher"
	"github.com/pilotlight-dev/pilotlight/internal/exitcode"
	"github.com/pilotlight-dev/pilotlight/registry"
)

// TestProxiedArtifacts runs the server as it starts by default: what its clients
// log lies behind its own proxy. It is read by URLs that the server signs, or
// from the store, if a map says where it lies there.
func TestProxiedArtifacts(t *testing.T) {
	tool(t, "PILOTLIGHT_MLFLOW")
	tool(t, "PILOTLIGHT_FETCHER")
	tool(t, "PILOTLIGHT_CLI")
	t.Parallel()
	tr := startMLflow(t, startStore(t), serverOptions{args: []string{"--serve-artifacts", "--artifacts-destination", "s3://" + bucket + "/proxied"}})
	told := runScript(t, tr)
	require.Contains(t, told[0].Answer.(map[string]any)["location"], "mlflow-artifacts:/")
	root := requireProxied(t, tr, "by presigned URLs")
	for _, o := range manifestOf(t, root).Objects {
		require.True(t, strings.HasPrefix(o.Checksum, "md5:"), "%s: %q", o.Path, o.Checksum)
	}

	// Whoever knows where the proxy keeps them says so.
	tr.artifactMap = "mlflow-artifacts:/=s3://" + bucket + "/proxied"
	tr.requireFetch(t, root, "live", loggedFiles())
	require.Contains(t, tr.requireCLI(t, exitcode.OK, "resolve", "models:/"+model+"@live"), "s3://"+bucket+"/proxied/")
	inOrder(t, append(commands(tr), conformance(tr)))
}

// TestProxyWithoutAStore runs the server with a folder for its artifacts, which
// has no URLs to sign: all comes through the proxy.
func TestProxyWithoutAStore(t *testing.T) {
	tool(t, "PILOTLIGHT_MLFLOW")
	tool(t, "PILOTLIGHT_FETCHER")
	tool(t, "PILOTLIGHT_CLI")
	t.Parallel()
	tr := startMLflow(t, startStore(t), serverOptions{args: []string{"--serve-artifacts", "--artifacts-destination", t.TempDir()}})
	runScript(t, tr)
	root := requireProxied(t, tr, "through the tracking server's proxy")
	for _, o := range manifestOf(t, root).Objects {
		require.Empty(t, o.Checksum, "there is nothing to compare with")
	}
}

// requireProxied fetches what was logged, from behind the proxy, where that is
// allowed, and has the command line prove it. The folder that it returns is what
// the alias `live` leads to.
func requireProxied(t *testing.T, tr tracking, says string) (root string) {
	t.Helper()
	root = filepath.Join(t.TempDir(), "models")
	tr.setLive(t, "2")
	tr.requireFetch(t, root, "live", rawFiles())
	tr.setLive(t, "1")
	code, stderr := tr.fetch(t, root, "live", "--allow-location", "s3://"+bucket)
	require.Equal(t, exitcode.PointerBroken, code, stderr)
	require.Contains(t, stderr, "--allow-location")
	requireTree(t, root, rawFiles())

	code, stderr = tr.fetch(t, root, "live", "--allow-location", "s3://"+bucket, "--allow-location", "mlflow-artifacts:/")
	require.Equal(t, exitcode.OK, code, stderr)
	require.Contains(t, stderr, says)
	require.NotContains(t, stderr, "X-Amz")
	requireTree(t, root, loggedFiles())
	code, stderr = tr.fetch(t, root, "live")
	require.Equal(t, exitcode.OK, code, stderr)
	require.Contains(t, stderr, "reused=true")

	digest := manifestOf(t, root).Digest
	out := tr.requireCLI(t, exitcode.OK, "resolve", "models:/"+model+"@live", "-o", "json")
	require.Contains(t, out, "mlflow-artifacts:/")
	require.Contains(t, out, digest)
	tr.setLive(t, "2")
	require.Contains(t, tr.requireCLI(t, exitcode.OK, "promote", "models:/"+model+"@live", "--to", "1", "--yes", "-o", "json"), digest)
	code, stderr = tr.fetch(t, root, "live")
	require.Equal(t, exitcode.OK, code, stderr)
	return root
}

// manifestOf reads what a root has published.
func manifestOf(t *testing.T, root string) fetcher.Manifest {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, "current/.pilotlight/manifest.json"))
	require.NoError(t, err)
	m, err := fetcher.DecodeManifest(data)
	require.NoError(t, err)
	return m
}

// TestBasicAuth runs the server with its users' app: the right password fetches,
// a wrong one is refused at once, and neither is shown.
func TestBasicAuth(t *testing.T) {
	tool(t, "PILOTLIGHT_MLFLOW")
	tool(t, "PILOTLIGHT_FETCHER")
	tool(t, "PILOTLIGHT_CLI")
	t.Parallel()
	const user, password = "admin", "a-password-of-this-test"
	dir := t.TempDir()
	config := filepath.Join(dir, "auth.ini")
	// Without its cache the server derives a key from the password for every
	// request, which takes most of a second.
	require.NoError(t, os.WriteFile(config, []byte("[mlflow]\nauth_cache_ttl_seconds = 60\ndefault_permission = READ\ndatabase_uri = sqlite:///"+filepath.Join(dir, "auth.db")+
		"\nadmin_username = "+user+"\nadmin_password = "+password+"\nauthorization_function = mlflow.server.auth:authenticate_request_basic_auth\n"), 0o600))
	opts := direct()
	opts.args = append(opts.args, "--app-name", "basic-auth")
	opts.env = map[string]string{
		"MLFLOW_AUTH_CONFIG_PATH": config, "MLFLOW_FLASK_SERVER_SECRET_KEY": "signs cookies of this test",
		// The server asks itself about logged models.
		"MLFLOW_TRACKING_USERNAME": user, "MLFLOW_TRACKING_PASSWORD": password,
	}
	tr := startMLflow(t, startStore(t), opts)
	tr.user, tr.password = user, password
	runScript(t, tr)
	root := filepath.Join(t.TempDir(), "models")
	tr.requireFetch(t, root, "previous", loggedFiles())

	wrong := tr
	wrong.password = "a-wrong-password"
	code, stderr := wrong.fetch(t, root, "previous")
	require.Equal(t, exitcode.RegistryUnreachable, code, stderr)
	require.Contains(t, stderr, "MLFLOW_TRACKING_USERNAME")
	requireTree(t, root, loggedFiles())

	nobody := tr
	nobody.user = ""
	_, err := resolve(t.Context(), nobody, "models:/"+model+"@champion")
	require.ErrorIs(t, err, registry.ErrDenied)
	inOrder(t, append(commands(tr), conformance(tr)))
}
