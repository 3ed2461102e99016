package pointercmd_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/cmd/internal/modelsource"
	"github.com/pilotlight-dev/pilotlight/fetcher"
	"github.com/pilotlight-dev/pilotlight/internal/fake/mlflow"
	"github.com/pilotlight-dev/pilotlight/registry"
)

// TestVersionsBehindAProxyAreProvenAndMoved reads the versions through the
// tracking server: a whole one is moved to, one that lacks a shard is not.
func TestVersionsBehindAProxyAreProvenAndMoved(t *testing.T) {
	const password = "registry-password"
	w := newWorld(t)
	files := map[string][]byte{}
	for _, v := range []string{"1", "2", "3"} {
		for name, data := range model("v" + v) {
			files[v+"/m/"+name] = data
		}
	}
	delete(files, "3/m/model-00002-of-00002.safetensors")
	models := mlflow.New(mlflow.Options{Username: "ann", Password: password, Artifacts: files})
	for _, v := range []string{"1", "2", "3"} {
		_, err := models.CreateVersion("llama", "mlflow-artifacts:/"+v+"/m")
		require.NoError(t, err)
	}
	require.NoError(t, models.SetAlias("llama", "champion", "1"))
	tracking := httptest.NewServer(models)
	t.Cleanup(tracking.Close)
	w.env = map[string]string{
		"AWS_ENDPOINT_URL_S3": "http://127.0.0.1:1", "MLFLOW_TRACKING_URI": tracking.URL, "MLFLOW_TRACKING_USERNAME": "ann",
		"MLFLOW_TRACKING_PASSWORD": password, "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
	}
	getenv := func(key string) string { return w.env[key] }
	w.deps.Connect = func(endpoint string) (modelsource.Connect, error) { return modelsource.Connector(getenv, endpoint) }
	w.deps.Open = func(ref registry.Ref, connect modelsource.Connect) (fetcher.Resolver, error) {
		return modelsource.Resolver(ref, connect, getenv, nil)
	}
	resolved := func() (doc struct{ Version, Location, Digest string }) {
		require.NoError(t, json.Unmarshal([]byte(w.requireCode(0, "resolve", "llama@champion", "-o", "json").stdout), &doc))
		return doc
	}
	before := resolved()
	require.Equal(t, "mlflow-artifacts:/1/m", before.Location)
	require.Len(t, before.Digest, 64)

	require.Contains(t, w.requireCode(3, "promote", "llama@champion", "--to", "2", "--yes", "--allow-location", "s3://weights").stderr, "--allow-location")
	require.Contains(t, w.requireCode(4, "promote", "llama@champion", "--to", "3", "--yes").stderr, "model-00002-of-00002.safetensors")
	require.Equal(t, before, resolved(), "nothing was moved")

	w.requireCode(0, "promote", "llama@champion", "--to", "2", "--yes", "--allow-location", "mlflow-artifacts:/2")
	after := resolved()
	require.Equal(t, "2", after.Version)
	require.NotEqual(t, before.Digest, after.Digest)
	w.requireCode(0, "rollback", "llama@champion", "--yes")
	require.Equal(t, before, resolved())
	require.Positive(t, models.Calls(http.MethodGet, "mlflow-artifacts/artifacts/{path}"))
}
