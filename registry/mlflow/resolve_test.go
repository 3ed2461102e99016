package mlflow_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	fake "github.com/pilotlight-dev/pilotlight/internal/fake/mlflow"
	"github.com/pilotlight-dev/pilotlight/registry"
	"github.com/pilotlight-dev/pilotlight/registry/mlflow"
)

const loggedID = "m-0123456789abcdef0123456789abcdef"

// newRegistry holds llama with versions 1 and 2, and champion on 2.
func newRegistry(t *testing.T, opts fake.Options) (*fake.Server, string) {
	t.Helper()
	server := fake.New(opts)
	for _, source := range []string{"s3://weights/llama/1", "s3://weights/llama/2"} {
		_, err := server.CreateVersion("llama", source)
		require.NoError(t, err)
	}
	require.NoError(t, server.SetAlias("llama", "champion", "2"))
	ts := httptest.NewServer(server)
	t.Cleanup(ts.Close)
	return server, ts.URL + opts.PathPrefix
}

func newClient(t *testing.T, cfg mlflow.Config) *mlflow.Client {
	t.Helper()
	cfg.RetryBase = time.Millisecond
	c, err := mlflow.New(cfg)
	require.NoError(t, err)
	return c
}

func resolve(t *testing.T, c *mlflow.Client, ref string) (registry.Resolution, error) {
	t.Helper()
	parsed, err := registry.ParseRef(ref)
	require.NoError(t, err)
	return c.Resolve(t.Context(), parsed)
}

func TestResolve(t *testing.T) {
	server, url := newRegistry(t, fake.Options{})
	server.AddLoggedModel(loggedID, "s3://weights/1/models/"+loggedID+"/artifacts")
	server.AddRun("abc", "s3://weights/1/abc/artifacts/")
	for name, source := range map[string]string{
		"logged": "models:/" + loggedID, "run": "runs:/abc/model", "chain": "models:/run/1",
		"cloudflare": "r2://weights@acc.r2.cloudflarestorage.com/x",
	} {
		_, err := server.CreateVersion(name, source)
		require.NoError(t, err)
	}
	require.NoError(t, server.SetLocation("logged", "1", "models:/"+loggedID))
	require.NoError(t, server.SetStage("llama", "1", "Production"))
	tests := map[string]struct{ version, location string }{
		"models:/llama@champion":   {"2", "s3://weights/llama/2"},
		"models:/llama/1":          {"1", "s3://weights/llama/1"},
		"models:/llama/latest":     {"2", "s3://weights/llama/2"},
		"models:/llama/Production": {"1", "s3://weights/llama/1"},
		"models:/" + loggedID:      {"", "s3://weights/1/models/" + loggedID + "/artifacts"},
		"models:/logged/1":         {"1", "s3://weights/1/models/" + loggedID + "/artifacts"},
		"models:/run/1":            {"1", "s3://weights/1/abc/artifacts/model"},
		"models:/chain/1":          {"1", "s3://weights/1/abc/artifacts/model"},
		"models:/cloudflare/1":     {"1", "r2://weights@acc.r2.cloudflarestorage.com/x"},
		"s3://weights/fixed":       {"", "s3://weights/fixed"},
	}
	c := newClient(t, mlflow.Config{TrackingURI: url})
	for ref, want := range tests {
		t.Run(ref, func(t *testing.T) {
			res, err := resolve(t, c, ref)
			require.NoError(t, err)
			require.Equal(t, want.version, res.Version)
			require.Equal(t, want.location, res.Location.String())
			require.Equal(t, ref, res.Ref.String())
		})
	}
}

func TestResolveFollowsAMovedAlias(t *testing.T) {
	server, url := newRegistry(t, fake.Options{})
	c := newClient(t, mlflow.Config{TrackingURI: url})
	require.NoError(t, server.SetAlias("llama", "champion", "1"))
	res, err := resolve(t, c, "models:/llama@champion")
	require.NoError(t, err)
	require.Equal(t, "1", res.Version)
}

func TestResolveBrokenPointers(t *testing.T) {
	server, url := newRegistry(t, fake.Options{})
	sources := map[string]string{ //nolint:gosec // no real password
		"proxied": "mlflow-artifacts://elsewhere/1/x", "bucketless": "s3://", "google": "gs://bucket/x", "file": "/mnt/models", "secretive": "wasbs://user:hunter2@host/x?sig=hunter2",
		"circle": "models:/circle/1", "norun": "runs:/none/model", "escape": "s3://weights/../x",
		"hop1": "models:/hop2/1", "hop2": "models:/hop3/1", "hop3": "models:/hop4/1", "hop4": "models:/hop5/1", "hop5": "s3://weights/x",
	}
	for name, source := range sources {
		_, err := server.CreateVersion(name, source)
		require.NoError(t, err)
	}
	for status, model := range map[string]string{fake.StatusPending: "pending", fake.StatusFailed: "failed"} {
		_, err := server.CreateVersion(model, "s3://weights/x")
		require.NoError(t, err)
		require.NoError(t, server.SetStatus(model, "1", status))
	}
	require.NoError(t, server.SetAlias("llama", "dangling", "1"))
	require.NoError(t, server.DeleteVersion("llama", "1"))
	tests := map[string]struct {
		want  error
		words string
	}{
		"models:/nobody@champion": {registry.ErrNotFound, "Registered Model with name=nobody not found"},
		"models:/llama@nobody":    {registry.ErrNotFound, "alias nobody not found"},
		"models:/llama@dangling":  {registry.ErrBroken, "deleted version"},
		"models:/llama/99":        {registry.ErrNotFound, "version=99"},
		"models:/llama/Staging":   {registry.ErrNotFound, "no such version"},
		"models:/" + loggedID:     {registry.ErrNotFound, "Logged model"},
		"models:/pending/1":       {registry.ErrPending, "being registered"},
		"models:/failed/1":        {registry.ErrBroken, "FAILED_REGISTRATION"},
		"models:/proxied/1":       {registry.ErrUnsupported, "artifact proxy"},
		"models:/google/1":        {registry.ErrUnsupported, "only s3:// and r2://"},
		"models:/secretive/1":     {registry.ErrUnsupported, "wasbs://host/x"},
		"models:/file/1":          {registry.ErrUnsupported, "only s3:// and r2://"},
		"models:/bucketless/1":    {registry.ErrBroken, "bucket name"},
		"models:/escape/1":        {registry.ErrBroken, "segment"},
		"models:/circle/1":        {registry.ErrBroken, "circle"},
		"models:/hop1/1":          {registry.ErrBroken, "more than 4 steps"},
		"models:/norun/1":         {registry.ErrNotFound, "Run with id=none"},
		"pointer+s3://bucket/x":   {registry.ErrUnsupported, "pointer"},
	}
	c := newClient(t, mlflow.Config{TrackingURI: url})
	for ref, tc := range tests {
		t.Run(ref, func(t *testing.T) {
			_, err := resolve(t, c, ref)
			require.ErrorIs(t, err, tc.want)
			require.ErrorContains(t, err, tc.words)
			require.ErrorContains(t, err, ref, "the error names what was asked for")
			require.NotContains(t, err.Error(), "hunter2")
		})
	}
}

func TestNumbersAndStringsAreBothRead(t *testing.T) {
	for name, version := range map[string]string{"String": `"3"`, "Number": `3`} {
		t.Run(name, func(t *testing.T) {
			ts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Query().Get("alias") != "" {
					_, _ = w.Write([]byte(`{"model_version":{"name":"llama","version":` + version + `,"creation_timestamp":"1767225600000","status":"READY"}}`))
					return
				}
				_, _ = w.Write([]byte(`{"artifact_uri":"s3://weights/` + r.URL.Query().Get("version") + `"}`)) //nolint:gosec // a test server
			}))
			defer ts.Close()
			res, err := resolve(t, newClient(t, mlflow.Config{TrackingURI: ts.URL}), "models:/llama@champion")
			require.NoError(t, err)
			require.Equal(t, "3", res.Version)
			require.Equal(t, "s3://weights/3", res.Location.String())
		})
	}
}

func TestTrackingAndRegistryMayDiffer(t *testing.T) {
	tracking, trackingURL := newRegistry(t, fake.Options{})
	tracking.AddRun("abc", "s3://weights/run")
	reg, regURL := newRegistry(t, fake.Options{})
	_, err := reg.CreateVersion("run", "runs:/abc/model")
	require.NoError(t, err)
	res, err := resolve(t, newClient(t, mlflow.Config{TrackingURI: trackingURL, RegistryURI: regURL}), "models:/run/1")
	require.NoError(t, err)
	require.Equal(t, "s3://weights/run/model", res.Location.String())
	require.Equal(t, 1, tracking.Calls("GET", "runs/get"))
	require.Zero(t, reg.Calls("GET", "runs/get"))
}
