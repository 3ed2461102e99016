package pointercmd_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/cmd/internal/modelsource"
	"github.com/pilotlight-dev/pilotlight/fetcher"
	"github.com/pilotlight-dev/pilotlight/internal/fake/mlflow"
	"github.com/pilotlight-dev/pilotlight/registry"
)

// TestThePreflightIsNotLedAstray gives version 2 a place that somebody would like
// us to go to with the credentials we have, or answers with a redirect there: the
// move is refused, nobody else is asked, and nothing is written.
func TestThePreflightIsNotLedAstray(t *testing.T) {
	const password = "registry-password"
	tests := map[string]struct {
		location string // of version 2; ELSEWHERE is another server
		redirect string // the call that is answered with a redirect to it
		allow    string
		code     int
		says     string
	}{
		"NotAllowed":        {location: "s3://weights/llama/2", allow: "s3://weights/llama/1", code: 3, says: "--allow-location"},
		"SiblingOfAllowed":  {location: "s3://weights/llama-of-others/2", allow: "s3://weights/llama", code: 3, says: "--allow-location"},
		"OutOfTheAllowed":   {location: "s3://weights/llama/../x", allow: "s3://weights/llama", code: 3, says: ".."},
		"ProxyElsewhere":    {location: "mlflow-artifacts://ELSEWHERE/x", code: 3, says: "artifact proxy"},
		"R2Elsewhere":       {location: "r2://weights@ELSEWHERE/x", code: 3, says: "r2.cloudflarestorage.com"},
		"RegistryElsewhere": {location: "models://ELSEWHERE/llama/1", code: 3, says: "broken"},
		"RedirectOfAlias":   {location: "s3://weights/llama/2", redirect: "registered-models/alias", code: 6, says: "redirect to another host"},
		"RedirectOfVersion": {location: "s3://weights/llama/2", redirect: "model-versions/get", code: 6, says: "redirect to another host"},
		"RedirectOfPlace":   {location: "s3://weights/llama/2", redirect: "get-download-uri", code: 6, says: "redirect to another host"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			var asked atomic.Int32
			elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
			t.Cleanup(elsewhere.Close)
			models := mlflow.New(mlflow.Options{Username: "ann", Password: password, Intercept: func(rw http.ResponseWriter, r *http.Request) bool {
				if tc.redirect == "" || !strings.HasSuffix(r.URL.Path, tc.redirect) {
					return false
				}
				http.Redirect(rw, r, elsewhere.URL+r.URL.RequestURI(), http.StatusTemporaryRedirect)
				return true
			}})
			for range 2 {
				_, err := models.CreateVersion("llama", "s3://weights/llama/1")
				require.NoError(t, err)
			}
			require.NoError(t, models.SetLocation("llama", "2", strings.ReplaceAll(tc.location, "ELSEWHERE", strings.TrimPrefix(elsewhere.URL, "http://"))))
			require.NoError(t, models.SetAlias("llama", "champion", "1"))
			tracking, store := httptest.NewServer(models), httptest.NewServer(w.store)
			t.Cleanup(tracking.Close)
			t.Cleanup(store.Close)
			w.env = map[string]string{
				"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "not-a-secret", "AWS_ENDPOINT_URL_S3": store.URL,
				"MLFLOW_TRACKING_URI": tracking.URL, "MLFLOW_TRACKING_USERNAME": "ann", "MLFLOW_TRACKING_PASSWORD": password, "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
			}
			getenv := func(key string) string { return w.env[key] }
			w.deps.Connect = func(endpoint string) (modelsource.Connect, error) { return modelsource.Connector(getenv, endpoint) }
			w.deps.Open = func(ref registry.Ref, connect modelsource.Connect) (fetcher.Resolver, error) {
				return modelsource.Resolver(ref, connect, getenv, nil)
			}
			args := []string{"promote", "llama@champion", "--to", "2", "--yes"}
			if tc.allow != "" {
				args = append(args, "--allow-location", tc.allow)
			}
			out := w.requireCode(tc.code, args...)
			require.Contains(t, out.stderr, tc.says)
			require.NotContains(t, out.stderr+out.stdout, password)
			require.Zero(t, asked.Load(), "somebody else was asked")
			require.Zero(t, models.Calls(http.MethodPost, "registered-models/alias")+models.Calls(http.MethodPost, "registered-models/set-tag"), "something was written")
			require.Zero(t, w.store.Count("ListObjectsV2"), "the store was asked")
		})
	}
}
