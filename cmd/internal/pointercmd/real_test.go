package pointercmd_test

import (
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/cmd/internal/modelsource"
	"github.com/pilotlight-dev/pilotlight/fetcher"
	"github.com/pilotlight-dev/pilotlight/internal/fake/mlflow"
	"github.com/pilotlight-dev/pilotlight/registry"
)

// TestTheRealBackends plays the whole life of a pointer over the network, with
// the clients that users get: MLflow's, and the store's.
func TestTheRealBackends(t *testing.T) {
	tests := map[string]struct {
		ref    string
		to     []string   // the versions' names
		places [][]string // how to name their places
	}{
		"MLflow": {"llama@champion", []string{"1", "2", "3"}, make([][]string, 3)},
		"Object": {"pointer+s3://weights/pointers/llama", []string{"v1", "v2", "v3"}, [][]string{
			{"--location", "s3://weights/llama/1"}, {"--location", "s3://weights/llama/2"}, {"--location", "s3://weights/llama/3"},
		}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			models := mlflow.New(mlflow.Options{})
			require.NoError(t, models.CreateModel("llama"))
			for _, v := range []string{"1", "2", "3"} {
				_, err := models.CreateVersion("llama", "s3://weights/llama/"+v)
				require.NoError(t, err)
			}
			require.NoError(t, models.SetAlias("llama", "champion", "1"))
			store, tracking := httptest.NewServer(w.store), httptest.NewServer(models)
			t.Cleanup(store.Close)
			t.Cleanup(tracking.Close)
			w.env = map[string]string{
				"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "not-a-secret", "AWS_ENDPOINT_URL_S3": store.URL,
				"MLFLOW_TRACKING_URI": tracking.URL, "USER": "kim",
			}
			getenv := func(key string) string { return w.env[key] }
			w.deps.Connect = func(endpoint string) (modelsource.Connect, error) { return modelsource.Connector(getenv, endpoint) }
			w.deps.Open = func(ref registry.Ref, connect modelsource.Connect) (fetcher.Resolver, error) {
				return modelsource.Resolver(ref, connect, getenv, nil)
			}
			move := func(code int, i int, verb ...string) {
				w.requireCode(code, append(append(verb, tc.ref, "--yes"), tc.places[i]...)...)
			}
			if name == "Object" {
				require.Contains(t, w.requireCode(3, "resolve", tc.ref).stderr, "not found")
				move(0, 0, "pointer", "init", "--version", tc.to[0])
				move(9, 0, "pointer", "init", "--version", tc.to[0])
			}
			move(0, 1, "promote", "--to", tc.to[1], "-m", "first")
			move(0, 2, "promote", "--to", tc.to[2], "-m", "second")
			require.Contains(t, w.requireCode(0, "resolve", tc.ref).stdout, "s3://weights/llama/3")
			require.Contains(t, w.requireCode(0, "rollback", tc.ref, "--yes").stdout, "from "+tc.to[2]+" to "+tc.to[1])
			require.Contains(t, w.requireCode(2, "rollback", tc.ref, "--yes").stderr, "--to "+tc.to[0])
			w.requireCode(0, "rollback", tc.ref, "--to", tc.to[0], "--yes")
			require.Contains(t, w.requireCode(0, "promote", tc.ref, "--to", tc.to[0], "--yes").stdout, "already")
			moves, ok := decode(t, w.requireCode(0, "history", tc.ref, "-o", "json").stdout)["moves"].([]any)
			require.True(t, ok)
			require.GreaterOrEqual(t, len(moves), 4)
			require.Contains(t, w.requireCode(2, "status", tc.ref).stdout, tc.to[0])
			require.Contains(t, w.requireCode(0, "pointer", "show", tc.ref).stdout, "kim@laptop")
			require.Contains(t, w.run("__complete", "promote", tc.ref, "--to", "").stdout, tc.to[2])
		})
	}
}
