package mlflow_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	fake "github.com/pilotlight-dev/pilotlight/internal/fake/mlflow"
	"github.com/pilotlight-dev/pilotlight/registry"
	"github.com/pilotlight-dev/pilotlight/registry/mlflow"
)

func TestListArtifacts(t *testing.T) {
	_, url := newRegistry(t, fake.Options{PathPrefix: "/behind/an ingress", Artifacts: map[string][]byte{
		"1/m/MLmodel": []byte("flavors"), "1/m/model/config.json": []byte("{}"), "1/m/model/empty": nil, "10/x": nil,
	}})
	c := newClient(t, mlflow.Config{TrackingURI: url})
	for dir, want := range map[string][]registry.Artifact{
		"":          {{Name: "1", Folder: true}, {Name: "10", Folder: true}},
		"1/m":       {{Name: "MLmodel", Size: 7}, {Name: "model", Folder: true}},
		"1/m/model": {{Name: "config.json", Size: 2}, {Name: "empty"}},
		"nowhere":   {},
	} {
		got, err := c.ListArtifacts(t.Context(), dir)
		require.NoError(t, err, dir)
		require.Equal(t, want, got, dir)
	}
}

// answering is a client of a server that answers everything alike.
func answering(t *testing.T, status int, contentType, body string) *mlflow.Client {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(server.Close)
	return newClient(t, mlflow.Config{TrackingURI: server.URL, Attempts: 1, Token: "a-token"})
}

func TestListingsOfArtifactsThatCannotBe(t *testing.T) {
	got, err := answering(t, 200, "application/json", `{"files":[{"path":"a","file_size":"9007199254740993"}]}`).ListArtifacts(t.Context(), "x")
	require.NoError(t, err)
	require.Equal(t, int64(9007199254740993), got[0].Size, "as a string, and exactly")
	for body, want := range map[string]error{
		`{"files":[{"path":"a","file_size":-1}]}`:   registry.ErrBroken,
		`{"files":[{"path":"a","file_size":1.5}]}`:  registry.ErrBroken,
		`{"files":[{"path":"a","file_size":1e3}]}`:  registry.ErrBroken,
		`{"files":[{"path":"a","file_size":true}]}`: registry.ErrUnreachable,

		`{"files":{}}`:         registry.ErrUnreachable,
		`<html>Sign in</html>`: registry.ErrDenied,
	} {
		_, err := answering(t, 200, "application/json", body).ListArtifacts(t.Context(), "x")
		require.ErrorIs(t, err, want, body)
	}
}

func TestPresignArtifact(t *testing.T) {
	for name, tc := range map[string]struct {
		status int
		body   string
		want   error
	}{
		"OtherStore":   {501, `{"error_code":"NOT_IMPLEMENTED","message":"no"}`, registry.ErrUnsupported},
		"OldServer":    {404, `<!doctype html><title>404 Not Found</title>`, registry.ErrUnsupported},
		"NoSuchMethod": {405, ``, registry.ErrUnsupported},
		"NoSuchFile":   {404, `{"error_code":"RESOURCE_DOES_NOT_EXIST","message":"Not Found"}`, registry.ErrNotFound},
		"Denied":       {403, `Permission denied`, registry.ErrDenied},
		"Down":         {503, `no healthy upstream`, registry.ErrUnreachable},
		"NotServed":    {503, "Endpoint: x disabled due to the mlflow server running with `--no-serve-artifacts`", registry.ErrUnsupported},
		"NoURL":        {200, `{}`, registry.ErrBroken},
		"File":         {200, `{"url":"file:///etc/passwd"}`, registry.ErrBroken},
		"Relative":     {200, `{"url":"/etc/passwd"}`, registry.ErrBroken},
		"User":         {200, `{"url":"https://ann:hunter2@store/x"}`, registry.ErrBroken},
		"Garbage":      {200, `{"url":"http://[hunter2"}`, registry.ErrBroken},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := answering(t, tc.status, "application/json", tc.body).PresignArtifact(t.Context(), "1/m/x")
			require.ErrorIs(t, err, tc.want)
			require.NotContains(t, err.Error(), "hunter2")
		})
	}
	p, err := answering(t, 200, "application/json", `{"url":"https://store/x?sig=hunter2","headers":{"x-ms":"1"},"file_size":7}`).PresignArtifact(t.Context(), "1/m/x")
	require.NoError(t, err)
	require.Equal(t, int64(7), p.Size)
	shown, err := json.Marshal(map[string]any{"p": p})
	require.NoError(t, err)
	for _, text := range []string{fmt.Sprintf("%v", p), fmt.Sprintf("%+v", p), fmt.Sprintf("%#v", p), string(shown)} {
		require.NotContains(t, text, "hunter2")
	}
}

// Nothing of what the tracking server is sent is sent along with a presigned URL,
// and nothing that proves who asks, even if the server says so.
func TestPresignedURLsAreFollowedByThemselves(t *testing.T) {
	var got http.Header
	var elsewhere int
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere++ }))
	t.Cleanup(other.Close)
	store := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r.Header.Clone()
		http.SetCookie(w, &http.Cookie{Name: "session", Value: "x"})
		if r.URL.Query().Has("away") {
			http.Redirect(w, r, other.URL, http.StatusFound)
		}
	}))
	t.Cleanup(store.Close)
	c := newClient(t, mlflow.Config{TrackingURI: store.URL, Username: "ann", Password: "hunter2", Workspace: "team"})
	p := registry.Presigned{URL: store.URL + "/x?sig=1", Headers: map[string]string{
		"authorization": "Basic aaa", "Cookie": "a=b", "x-ms-version": "7", "range": "bytes=5-6", "X-MLFLOW-WORKSPACE": "team",
	}}
	for range 2 {
		resp, err := c.OpenPresigned(t.Context(), p, http.Header{"Range": {"bytes=0-1"}})
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, http.Header{"Accept-Encoding": {"identity"}, "Range": {"bytes=0-1"}, "User-Agent": {"pilotlight"}, "X-Ms-Version": {"7"}}, got)
	}
	resp, err := c.OpenPresigned(t.Context(), registry.Presigned{URL: store.URL + "/x?away=1"}, nil)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusFound, resp.StatusCode)
	require.Zero(t, elsewhere)

	store.Close()
	_, err = c.OpenPresigned(t.Context(), p, nil) //nolint:bodyclose // there is none
	require.ErrorContains(t, err, strings.TrimPrefix(store.URL, "http://"))
	require.NotContains(t, err.Error(), "sig=1")
}

// Stores have their own authorities, by the variables that the store's own client
// reads; the tracking server's are not theirs.
func TestStoresOfPresignedURLsHaveTheirOwnAuthorities(t *testing.T) {
	store := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(store.Close)
	for name, tc := range map[string]struct {
		env  map[string]string
		want string
	}{
		"Unknown":      {nil, "certificate"},
		"TrackingOnly": {map[string]string{"MLFLOW_TRACKING_INSECURE_TLS": "true"}, "certificate"},
		"Insecure":     {map[string]string{"MLFLOW_S3_IGNORE_TLS": "true"}, ""},
		"Bundle":       {map[string]string{"AWS_CA_BUNDLE": "/nonexistent"}, "AWS_CA_BUNDLE"},
	} {
		t.Run(name, func(t *testing.T) {
			env := map[string]string{"MLFLOW_TRACKING_URI": "https://tracking.example"}
			for k, v := range tc.env {
				env[k] = v
			}
			resp, err := fromEnv(t, env).OpenPresigned(t.Context(), registry.Presigned{URL: store.URL}, nil)
			if tc.want == "" {
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
				return
			}
			require.ErrorContains(t, err, tc.want)
		})
	}
}

func TestOpenArtifact(t *testing.T) {
	files := map[string][]byte{"1/m/a dir/100% of #1?.txt": []byte("content"), "1/m/README.html": []byte("<html>a model card</html>")}
	_, url := newRegistry(t, fake.Options{Token: "a-token", Artifacts: files})
	c := newClient(t, mlflow.Config{TrackingURI: url, Token: "a-token"})
	for name, want := range files {
		resp, err := c.OpenArtifact(t.Context(), name)
		require.NoError(t, err, name)
		got, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, want, got)
	}
	_, err := c.OpenArtifact(t.Context(), "1/m/none") //nolint:bodyclose // there is none
	require.ErrorIs(t, err, registry.ErrNotFound)
	_, err = answering(t, 200, "text/html", "<html>Sign in</html>").OpenArtifact(t.Context(), "1/m/config.json") //nolint:bodyclose // there is none
	require.ErrorIs(t, err, registry.ErrDenied)
	_, err = answering(t, 500, "text/plain", "oops").OpenArtifact(t.Context(), "1/m/config.json") //nolint:bodyclose // there is none
	require.ErrorIs(t, err, registry.ErrUnreachable)
}

// The server copies a file to its own disk before it sends the first byte.
func TestAProxiedFileMayTakeLongToBegin(t *testing.T) {
	const answers = 50 * time.Millisecond
	ts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(10 * answers)
		_, _ = io.WriteString(w, "content")
	}))
	defer ts.Close()
	c := newClient(t, mlflow.Config{TrackingURI: ts.URL, Timeout: answers, Attempts: 1})
	_, err := c.Resolve(t.Context(), championRef(t))
	require.ErrorIs(t, err, registry.ErrUnreachable, "a call is not waited for")
	resp, err := c.OpenArtifact(t.Context(), "1/m/model.bin")
	require.NoError(t, err)
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, "content", string(body))
}
