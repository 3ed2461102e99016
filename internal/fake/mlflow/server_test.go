package mlflow_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/internal/fake/mlflow"
)

func start(t *testing.T, opts mlflow.Options) (*mlflow.Server, string) {
	t.Helper()
	opts.Now = func() time.Time { return time.UnixMilli(1767225600000) }
	server := mlflow.New(opts)
	ts := httptest.NewServer(server)
	t.Cleanup(ts.Close)
	return server, ts.URL
}

func call(t *testing.T, method, url, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	require.NoError(t, err)
	return send(t, req)
}

func send(t *testing.T, req *http.Request) (int, string) {
	t.Helper()
	resp, err := http.DefaultTransport.RoundTrip(req)
	require.NoError(t, err)
	data, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	return resp.StatusCode, string(data)
}

func TestAliasAnswerHasMLflowsExactShape(t *testing.T) {
	server, url := start(t, mlflow.Options{})
	_, err := server.CreateVersion("llama", "s3://weights/llama/1")
	require.NoError(t, err)
	require.NoError(t, server.SetAlias("llama", "champion", "1"))
	status, body := call(t, "GET", url+"/api/2.0/mlflow/registered-models/alias?name=llama&alias=champion", "")
	require.Equal(t, 200, status)
	require.JSONEq(t, `{"model_version":{"name":"llama","version":"1","creation_timestamp":1767225600000,
		"last_updated_timestamp":1767225600000,"current_stage":"None","description":"","source":"s3://weights/llama/1",
		"run_id":"","status":"READY","run_link":"","aliases":["champion"]}}`, body)
}

// TestLifeOfAModel walks through the calls that clients make, in order.
func TestLifeOfAModel(t *testing.T) {
	_, url := start(t, mlflow.Options{})
	api := url + "/api/2.0/mlflow/"
	steps := []struct {
		method, call, body string
		wantStatus         int
		want               string
	}{
		{"POST", "registered-models/create", `{"name":"llama"}`, 200, `"name":"llama"`},
		{"POST", "registered-models/create", `{"name":"llama"}`, 400, "RESOURCE_ALREADY_EXISTS"},
		{"POST", "registered-models/create", `{"name":"a/b"}`, 400, "INVALID_PARAMETER_VALUE"},
		{"POST", "model-versions/create", `{"name":"llama","source":"s3://b/1","tags":[{"key":"k","value":"v"}]}`, 200, `"version":"1"`},
		{"POST", "model-versions/create", `{"name":"llama","source":"s3://b/2"}`, 200, `"version":"2"`},
		{"GET", "model-versions/get?name=llama&version=1", "", 200, `"tags":[{"key":"k","value":"v"}]`},
		{"GET", "model-versions/get?name=llama&version=9", "", 404, "RESOURCE_DOES_NOT_EXIST"},
		{"GET", "model-versions/get-download-uri?name=llama&version=2", "", 200, `{"artifact_uri":"s3://b/2"}`},
		{"GET", "registered-models/alias?name=llama&alias=champion", "", 400, "Registered model alias champion not found."},
		{"GET", "registered-models/alias?name=nobody&alias=champion", "", 404, "RESOURCE_DOES_NOT_EXIST"},
		{"POST", "registered-models/alias", `{"name":"llama","alias":"champion","version":"1"}`, 200, `{}`},
		{"POST", "registered-models/alias", `{"name":"llama","alias":"champion","version":2}`, 400, "Value was of type 'int'"},
		{"POST", "registered-models/alias", `{"name":"llama","alias":"champion","version":"2"}`, 200, `{}`},
		{"POST", "registered-models/alias", `{"name":"llama","alias":"latest","version":"2"}`, 400, "'latest' alias name (case insensitive) is reserved."},
		{"POST", "registered-models/alias", `{"name":"llama","alias":"v7","version":"2"}`, 400, "Version alias name 'v7' is reserved."},
		{"POST", "registered-models/alias", `{"name":"llama","alias":"a b","version":"2"}`, 400, "Invalid alias name: 'a b'."},
		{"POST", "registered-models/alias", `{"name":"llama","version":"2"}`, 400, "Missing value for required parameter 'alias'."},
		{"GET", "registered-models/get?name=llama", "", 200, `"aliases":[{"alias":"champion","version":"2"}]`},
		{"GET", "registered-models/search", "", 200, `"aliases":[{"alias":"champion","version":"2"}]`},
		{"GET", "model-versions/search?filter=name%3D%27llama%27&max_results=1", "", 200, `"next_page_token"`},
		{"GET", "registered-models/get-latest-versions?name=llama", "", 200, `"version":"2"`},
		{"POST", "registered-models/get-latest-versions", `{"name":"llama","stages":["Production"]}`, 200, `{}`},
		{"POST", "registered-models/set-tag", `{"name":"llama","key":"pilotlight.history.champion","value":"[]"}`, 200, `{}`},
		{"GET", "registered-models/get?name=llama", "", 200, `"tags":[{"key":"pilotlight.history.champion","value":"[]"}]`},
		{"POST", "registered-models/set-tag", `{"name":"llama","key":"k","value":"` + strings.Repeat("x", 5001) + `"}`, 400, "5000"},
		{"DELETE", "registered-models/delete-tag", `{"name":"llama","key":"pilotlight.history.champion"}`, 200, `{}`},
		{"POST", "model-versions/set-tag", `{"name":"llama","version":"1","key":"a","value":"b"}`, 200, `{}`},
		{"DELETE", "model-versions/delete-tag", `{"name":"llama","version":"1","key":"a"}`, 200, `{}`},
		{"DELETE", "model-versions/delete", `{"name":"llama","version":"2"}`, 200, `{}`},
		{"GET", "registered-models/alias?name=llama&alias=champion", "", 404, "Model Version (name=llama, version=2) not found"},
		{"DELETE", "registered-models/alias?name=llama&alias=champion", "", 400, "required parameter 'name'"},
		{"DELETE", "registered-models/alias", `{"name":"llama","alias":"champion"}`, 200, `{}`},
		{"GET", "registered-models/alias?name=llama&alias=champion", "", 400, "INVALID_PARAMETER_VALUE"},
		{"POST", "registered-models/create", `[`, 400, "required parameter 'name'"},
		{"DELETE", "registered-models/delete", `{"name":"llama"}`, 200, `{}`},
	}
	for _, s := range steps {
		status, body := call(t, s.method, api+s.call, s.body)
		require.Equal(t, s.wantStatus, status, "%s %s: %s", s.method, s.call, body)
		require.Contains(t, body, s.want, "%s %s", s.method, s.call)
		require.True(t, json.Valid([]byte(body)))
	}
}

func TestSearchLeavesAliasesOutOfVersions(t *testing.T) {
	server, url := start(t, mlflow.Options{})
	_, err := server.CreateVersion("llama", "s3://b/1")
	require.NoError(t, err)
	require.NoError(t, server.SetAlias("llama", "champion", "1"))
	_, body := call(t, "GET", url+"/ajax-api/2.0/mlflow/model-versions/search", "")
	require.NotContains(t, body, "aliases")
}

func TestAuthAndHealth(t *testing.T) {
	server, url := start(t, mlflow.Options{Username: "ann", Password: "pw", PathPrefix: "/ml/"})
	status, body := call(t, "GET", url+"/ml/health", "")
	require.Equal(t, 200, status)
	require.Equal(t, "OK", body)
	status, body = call(t, "GET", url+"/ml/api/2.0/mlflow/registered-models/search", "")
	require.Equal(t, 401, status)
	require.False(t, json.Valid([]byte(body)), "MLflow answers text here")
	status, _ = call(t, "GET", url+"/api/2.0/mlflow/registered-models/search", "")
	require.Equal(t, 404, status)
	server.SetDown(true)
	status, _ = call(t, "GET", url+"/ml/api/2.0/mlflow/registered-models/search", "")
	require.Equal(t, 503, status)
}
