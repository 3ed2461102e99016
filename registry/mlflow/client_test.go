package mlflow_test

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	fake "github.com/pilotlight-dev/pilotlight/internal/fake/mlflow"
	"github.com/pilotlight-dev/pilotlight/registry"
	"github.com/pilotlight-dev/pilotlight/registry/mlflow"
)

const champion = "models:/llama@champion"

func TestAddressesThatWork(t *testing.T) {
	_, url := newRegistry(t, fake.Options{PathPrefix: "/ml/flow"})
	for _, uri := range []string{url, url + "/", url + "//", " " + url} {
		_, err := resolve(t, newClient(t, mlflow.Config{TrackingURI: uri}), champion)
		require.NoError(t, err, uri)
	}
}

func TestAuthentication(t *testing.T) {
	_, url := newRegistry(t, fake.Options{Username: "ann", Password: "hunter2", Token: "tok"})
	withUser := strings.Replace(url, "http://", "http://ann:hunter2@", 1)
	tests := map[string]struct {
		cfg    mlflow.Config
		wantOK bool
		reason string
	}{
		"Basic":           {mlflow.Config{TrackingURI: url, Username: "ann", Password: "hunter2"}, true, "user and password"},
		"Token":           {mlflow.Config{TrackingURI: url, Token: "tok"}, true, "bearer token"},
		"InURI":           {mlflow.Config{TrackingURI: withUser}, true, "credentials in the URI"},
		"BasicBeatsToken": {mlflow.Config{TrackingURI: url, Username: "ann", Password: "wrong-pw", Token: "tok"}, false, "as in MLflow's own client"},
		"None":            {mlflow.Config{TrackingURI: url}, false, "the server wants some"},
		"WrongInURI":      {mlflow.Config{TrackingURI: strings.Replace(url, "http://", "http://ann:wrong-pw@", 1)}, false, "and the error must not show them"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			c := newClient(t, tc.cfg)
			require.NotContains(t, c.Origin(), "@")
			_, err := resolve(t, c, champion)
			if tc.wantOK {
				require.NoError(t, err, tc.reason)
				return
			}
			require.ErrorIs(t, err, registry.ErrDenied, tc.reason)
			require.ErrorContains(t, err, "MLFLOW_TRACKING_USERNAME")
			require.NotContains(t, err.Error(), "wrong-pw")
			require.NotContains(t, err.Error(), "\n")
		})
	}
}

func TestOddAnswers(t *testing.T) {
	answer := func(status int, contentType, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", contentType)
			w.WriteHeader(status)
			_, _ = w.Write([]byte(body))
		}
	}
	tests := map[string]struct {
		handler http.HandlerFunc
		want    error
		words   string
	}{
		"InvalidHost":   {answer(403, "text/plain", "Invalid Host header - possible DNS rebinding attack detected"), registry.ErrDenied, "--allowed-hosts"},
		"Forbidden":     {answer(403, "text/plain", "Permission denied"), registry.ErrDenied, "Permission denied"},
		"ForbiddenJSON": {answer(403, "application/json", `{"error_code":"PERMISSION_DENIED","message":"Permission denied"}`), registry.ErrDenied, "Permission denied"},
		"LoginPage":     {answer(200, "text/html", "<html>Sign in</html>"), registry.ErrDenied, "login"},
		"Workspaces":    {answer(500, "application/json", `{"error_code":"FEATURE_DISABLED","message":"Workspaces are off"}`), registry.ErrDenied, "MLFLOW_WORKSPACE"},
		"IngressIs404":  {answer(404, "text/plain", "default backend - 404"), registry.ErrUnreachable, "path of MLFLOW_TRACKING_URI"},
		"NotJSON":       {answer(200, "application/json", `OK`), registry.ErrUnreachable, "not MLflow's JSON"},
		"NoVersion":     {answer(200, "application/json", `{}`), registry.ErrBroken, "names no version"},
		"Invalid":       {answer(400, "application/json", `{"error_code":"INVALID_PARAMETER_VALUE","message":"bad name"}`), registry.ErrBroken, "bad name"},
		"TooLarge":      {answer(200, "application/json", `{"x":"`+strings.Repeat("x", 5<<20)+`"}`), registry.ErrUnreachable, "larger"},
		"Artifacts": {
			answer(503, "text/plain", "Endpoint disabled due to the mlflow server running in `--artifacts-only` mode."),
			registry.ErrUnreachable, "artifacts-only",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			ts := httptest.NewServer(tc.handler)
			defer ts.Close()
			_, err := resolve(t, newClient(t, mlflow.Config{TrackingURI: ts.URL}), champion)
			require.ErrorIs(t, err, tc.want)
			require.ErrorContains(t, err, tc.words)
			require.ErrorContains(t, err, ts.URL, "the error names the place")
			require.Less(t, len(err.Error()), 1000)
		})
	}
}

func TestPassingFailuresAreRepeated(t *testing.T) {
	for _, status := range []int{408, 429, 500, 502, 503, 504} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			var calls atomic.Int64
			_, url := newRegistry(t, fake.Options{Intercept: func(w http.ResponseWriter, _ *http.Request) bool {
				if calls.Add(1) > 2 {
					return false
				}
				w.WriteHeader(status)
				return true
			}})
			_, err := resolve(t, newClient(t, mlflow.Config{TrackingURI: url}), champion)
			require.NoError(t, err)
		})
	}
}

func TestRepetitionIsBounded(t *testing.T) {
	var calls atomic.Int64
	_, url := newRegistry(t, fake.Options{Intercept: func(w http.ResponseWriter, _ *http.Request) bool {
		calls.Add(1)
		w.WriteHeader(http.StatusBadGateway)
		return true
	}})
	_, err := resolve(t, newClient(t, mlflow.Config{TrackingURI: url}), champion)
	require.ErrorIs(t, err, registry.ErrUnreachable)
	require.EqualValues(t, mlflow.DefaultAttempts, calls.Load())
}

func TestDownServerIsUnreachable(t *testing.T) {
	ts := httptest.NewServer(http.NotFoundHandler())
	ts.Close()
	_, err := resolve(t, newClient(t, mlflow.Config{TrackingURI: ts.URL}), champion)
	require.ErrorIs(t, err, registry.ErrUnreachable)
	require.ErrorContains(t, err, "connection refused")
}

func TestCredentialsStayAtTheirOrigin(t *testing.T) {
	var leaked atomic.Bool
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		leaked.Store(true)
	}))
	defer other.Close()
	_, url := newRegistry(t, fake.Options{Intercept: func(w http.ResponseWriter, r *http.Request) bool {
		http.Redirect(w, r, other.URL+"/login", http.StatusFound)
		return true
	}})
	_, err := resolve(t, newClient(t, mlflow.Config{TrackingURI: url, Token: "tok"}), champion)
	require.ErrorIs(t, err, registry.ErrDenied)
	require.ErrorContains(t, err, "redirect to another host")
	require.False(t, leaked.Load(), "the other host was not asked at all")
}

func TestRedirectWithinTheOriginIsFollowed(t *testing.T) {
	_, url := newRegistry(t, fake.Options{PathPrefix: "/new", Intercept: func(w http.ResponseWriter, r *http.Request) bool {
		if rest, ok := strings.CutPrefix(r.URL.RequestURI(), "/old"); ok {
			http.Redirect(w, r, "/new"+rest, http.StatusMovedPermanently) //nolint:gosec // the redirect of this test
			return true
		}
		return false
	}})
	_, err := resolve(t, newClient(t, mlflow.Config{TrackingURI: strings.TrimSuffix(url, "/new") + "/old"}), champion)
	require.NoError(t, err)
}

func TestWorkspaceHeaderOnlyWhenSet(t *testing.T) {
	var seen atomic.Value
	_, url := newRegistry(t, fake.Options{Intercept: func(_ http.ResponseWriter, r *http.Request) bool {
		seen.Store(strings.Join(r.Header.Values("X-Mlflow-Workspace"), ","))
		return false
	}})
	for _, workspace := range []string{"", "team-a"} {
		_, err := resolve(t, newClient(t, mlflow.Config{TrackingURI: url, Workspace: workspace}), champion)
		require.NoError(t, err)
		require.Equal(t, workspace, seen.Load())
	}
}

func TestTLS(t *testing.T) {
	server := fake.New(fake.Options{})
	_, err := server.CreateVersion("llama", "s3://weights/llama/1")
	require.NoError(t, err)
	ts := httptest.NewTLSServer(server)
	ts.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	defer ts.Close()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ts.Certificate().Raw}), 0o600))
	_, err = resolve(t, newClient(t, mlflow.Config{TrackingURI: ts.URL, ServerCertPath: ca}), "models:/llama/1")
	require.NoError(t, err)
	_, err = resolve(t, newClient(t, mlflow.Config{TrackingURI: ts.URL, InsecureTLS: true}), "models:/llama/1")
	require.NoError(t, err)
	_, err = resolve(t, newClient(t, mlflow.Config{TrackingURI: ts.URL}), "models:/llama/1")
	require.ErrorIs(t, err, registry.ErrUnreachable)
	require.ErrorContains(t, err, "certificate")
}

func TestConfigFromEnv(t *testing.T) {
	env := map[string]string{
		"MLFLOW_TRACKING_URI": "http://mlflow:5000", "MLFLOW_TRACKING_USERNAME": "ann", "MLFLOW_TRACKING_PASSWORD": "hunter2",
		"MLFLOW_TRACKING_INSECURE_TLS": "true", "MLFLOW_WORKSPACE": "w", "MLFLOW_HTTP_REQUEST_TIMEOUT": "7",
	}
	cfg, err := mlflow.ConfigFromEnv(func(k string) string { return env[k] })
	require.NoError(t, err)
	require.True(t, cfg.InsecureTLS)
	require.Equal(t, "7s", cfg.Timeout.String())
	var printed bytes.Buffer
	slog.New(slog.NewJSONHandler(&printed, nil)).Info("config", "cfg", cfg)
	text, err := json.Marshal(cfg) //nolint:gosec // that it hides secrets is the test
	require.NoError(t, err)
	for _, shown := range []string{fmt.Sprintf("%v %+v %#v", cfg, cfg, cfg), string(text), printed.String()} {
		require.NotContains(t, shown, "hunter2", "a secret is never printed")
	}
}

func TestBadConfiguration(t *testing.T) {
	tests := map[string]struct {
		env   map[string]string
		words string
	}{
		"Missing":    {nil, "MLFLOW_TRACKING_URI is not set"},
		"Database":   {map[string]string{"MLFLOW_TRACKING_URI": "sqlite:///mlflow.db"}, "http://host"},
		"Databricks": {map[string]string{"MLFLOW_TRACKING_URI": "databricks"}, "Databricks"},
		"Registry":   {map[string]string{"MLFLOW_TRACKING_URI": "http://a", "MLFLOW_REGISTRY_URI": "file:/x"}, "MLFLOW_REGISTRY_URI"},
		"Query":      {map[string]string{"MLFLOW_TRACKING_URI": "http://a?x=1"}, "query"},
		"Secret":     {map[string]string{"MLFLOW_TRACKING_URI": "ftp://ann:hunter2@host"}, "http://host"},
		"NotAURL":    {map[string]string{"MLFLOW_TRACKING_URI": "http://ann:hunter2@ho st"}, "not a URL"}, //nolint:gosec // no real password
		"Bool":       {map[string]string{"MLFLOW_TRACKING_URI": "http://a", "MLFLOW_TRACKING_INSECURE_TLS": "maybe"}, "true or false"},
		"Timeout":    {map[string]string{"MLFLOW_TRACKING_URI": "http://a", "MLFLOW_HTTP_REQUEST_TIMEOUT": "-1"}, "seconds"},
		"NoCert":     {map[string]string{"MLFLOW_TRACKING_URI": "https://a", "MLFLOW_TRACKING_SERVER_CERT_PATH": "/none"}, "SERVER_CERT_PATH"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			cfg, err := mlflow.ConfigFromEnv(func(k string) string { return tc.env[k] })
			if err == nil {
				_, err = mlflow.New(cfg)
			}
			require.ErrorIs(t, err, mlflow.ErrConfig)
			require.ErrorContains(t, err, tc.words)
			require.NotContains(t, err.Error(), "hunter2")
		})
	}
}
