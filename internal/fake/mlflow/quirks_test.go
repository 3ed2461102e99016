package mlflow_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/internal/fake/mlflow"
)

const api = "/api/2.0/mlflow/"

// server is a registry whose clock moves on by a second at every look.
func server(t *testing.T, opts mlflow.Options) (*mlflow.Server, string) {
	t.Helper()
	var ticks atomic.Int64
	opts.Now = func() time.Time { return time.Unix(1_767_225_600+ticks.Add(1), 0) }
	registry := mlflow.New(opts)
	ts := httptest.NewServer(registry)
	t.Cleanup(ts.Close)
	return registry, ts.URL
}

// get asks and decodes; the status must be 200.
func get[T any](t *testing.T, url string) (out T) {
	t.Helper()
	status, body := call(t, http.MethodGet, url, "")
	require.Equal(t, 200, status, body)
	require.NoError(t, json.Unmarshal([]byte(body), &out))
	return out
}

type modelVersion struct {
	Version string   `json:"version"`
	Updated int64    `json:"last_updated_timestamp"`
	Aliases []string `json:"aliases"`
}

// versions registers llama with n versions.
func versions(t *testing.T, registry *mlflow.Server, n int) {
	t.Helper()
	for range n {
		_, err := registry.CreateVersion("llama", "s3://weights/llama")
		require.NoError(t, err)
	}
}

func TestMovingAnAliasTouchesNoTimestamp(t *testing.T) {
	registry, url := server(t, mlflow.Options{})
	versions(t, registry, 2)
	ask := func() string {
		_, body := call(t, "GET", url+api+"model-versions/search", "")
		_, of := call(t, "GET", url+api+"registered-models/get?name=llama", "")
		return body + of[:strings.Index(of, `"aliases"`)]
	}
	require.NoError(t, registry.SetAlias("llama", "champion", "1"))
	before := ask()
	require.NoError(t, registry.SetAlias("llama", "champion", "2"))
	require.Equal(t, before, ask())
}

func TestWhatADeletedVersionLeaves(t *testing.T) {
	for name, tc := range map[string]struct {
		recent bool
		status int
		words  string
		left   string
	}{
		"DanglingAlias":   {false, 404, "Model Version (name=llama, version=2) not found", `{"alias":"champion","version":"2"}`},
		"NoAliasRecently": {true, 400, "Registered model alias champion not found.", `"last_updated_timestamp"`},
	} {
		t.Run(name, func(t *testing.T) {
			registry, url := server(t, mlflow.Options{Recent: tc.recent})
			versions(t, registry, 2)
			require.NoError(t, registry.SetAlias("llama", "champion", "2"))
			require.NoError(t, registry.DeleteVersion("llama", "2"))
			status, body := call(t, "GET", url+api+"registered-models/alias?name=llama&alias=champion", "")
			require.Equal(t, tc.status, status)
			require.Contains(t, body, tc.words)
			_, body = call(t, "GET", url+api+"registered-models/get?name=llama", "")
			require.Contains(t, body, tc.left)
			require.Equal(t, !tc.recent, strings.Contains(body, "champion"))
			number, err := registry.CreateVersion("llama", "s3://weights/llama")
			require.NoError(t, err)
			require.Equal(t, "3", number, "a number is given out once")
		})
	}
}

func TestTagsAreBounded(t *testing.T) {
	for name, tc := range map[string]struct {
		recent bool
		most   int
	}{"Before": {false, 5_000}, "Recently": {true, 100_000}} {
		t.Run(name, func(t *testing.T) {
			registry, url := server(t, mlflow.Options{Recent: tc.recent})
			versions(t, registry, 1)
			for _, kind := range []string{"registered-models", "model-versions"} {
				set := func(n int) (int, string) {
					// Characters count, not bytes.
					return call(t, "POST", url+api+kind+"/set-tag", `{"name":"llama","version":"1","key":"k","value":"`+strings.Repeat("é", n)+`"}`)
				}
				status, _ := set(tc.most)
				require.Equal(t, 200, status)
				status, body := set(tc.most + 1)
				require.Equal(t, 400, status)
				require.Contains(t, body, "exceeds the maximum length")
			}
		})
	}
}

func TestLatestIsReadAndNeverWritten(t *testing.T) {
	registry, url := server(t, mlflow.Options{})
	versions(t, registry, 3)
	require.NoError(t, registry.SetStage("llama", "1", "Production"))
	got := get[struct {
		Version modelVersion `json:"model_version"`
	}](t, url+api+"registered-models/alias?name=llama&alias=LATEST")
	require.Equal(t, "3", got.Version.Version)
	for _, alias := range []string{"latest", "Latest", "v1", "V12", "a.b", "", strings.Repeat("x", 256)} {
		require.Error(t, registry.SetAlias("llama", alias, "1"), alias)
	}
	for _, alias := range []string{"v1x", "vx", "Ärger_2-b", strings.Repeat("x", 255)} {
		require.NoError(t, registry.SetAlias("llama", alias, "1"), alias)
	}
	require.NoError(t, registry.CreateModel("empty"))
	status, _ := call(t, "GET", url+api+"registered-models/alias?name=empty&alias=latest", "")
	require.Equal(t, 404, status)
}

func TestStages(t *testing.T) {
	registry, url := server(t, mlflow.Options{})
	versions(t, registry, 3)
	move := func(version, stage, archive string) (int, string) {
		return call(t, "POST", url+api+"model-versions/transition-stage", `{"name":"llama","version":"`+version+`","stage":"`+stage+`","archive_existing_versions":`+archive+`}`)
	}
	status, _ := move("1", "production", "false")
	require.Equal(t, 200, status)
	status, body := move("2", "Production", "true")
	require.Equal(t, 200, status)
	require.Contains(t, body, `"current_stage":"Production"`)
	status, _ = move("3", "Nirvana", "false")
	require.Equal(t, 400, status)
	status, _ = move("3", "None", "true")
	require.Equal(t, 500, status, "MLflow takes this for its own fault")
	for query, want := range map[string]string{"": "123", "&stages=Production": "2", "&stages=Production&stages=archived": "12", "&stages=Staging": ""} {
		got := get[struct {
			Versions []modelVersion `json:"model_versions"`
		}](t, url+api+"registered-models/get-latest-versions?name=llama"+query)
		numbers := ""
		for _, v := range got.Versions {
			numbers += v.Version
		}
		require.Equal(t, want, numbers, query)
	}
	status, _ = call(t, "GET", url+api+"registered-models/get-latest-versions?name=llama&stages=Nirvana", "")
	require.Equal(t, 400, status)
}

func TestRename(t *testing.T) {
	registry, url := server(t, mlflow.Options{})
	versions(t, registry, 1)
	require.NoError(t, registry.SetAlias("llama", "champion", "1"))
	require.NoError(t, registry.CreateModel("taken"))
	for body, want := range map[string]int{`{"name":"llama","new_name":"taken"}`: 400, `{"name":"llama","new_name":""}`: 400, `{"name":"nobody","new_name":"x"}`: 404} {
		status, _ := call(t, "POST", url+api+"registered-models/rename", body)
		require.Equal(t, want, status, body)
	}
	status, _ := call(t, "POST", url+api+"registered-models/rename", `{"name":"llama","new_name":"llama-2"}`)
	require.Equal(t, 200, status)
	status, body := call(t, "GET", url+api+"registered-models/alias?name=llama-2&alias=champion", "")
	require.Equal(t, 200, status)
	require.Contains(t, body, `"name":"llama-2"`)
	status, _ = call(t, "GET", url+api+"registered-models/get?name=llama", "")
	require.Equal(t, 404, status)
}

func TestAPathThatIsNoCallIsAPage(t *testing.T) {
	_, url := server(t, mlflow.Options{})
	for _, path := range []string{api + "registered-models/nonsense", "/api/9.0/x", "/", api + "webhooks/a/b"} {
		status, body := call(t, "POST", url+path, "{}")
		require.Equal(t, 404, status)
		require.Contains(t, body, "<!doctype html>")
	}
	status, _ := call(t, "PUT", url+api+"registered-models/alias", "{}")
	require.Equal(t, 405, status)
	status, body := call(t, "POST", url+api+"registered-models/create", "[1]")
	require.Equal(t, 500, status)
	require.Contains(t, body, "<!doctype html>")
}

func TestUsers(t *testing.T) {
	registry, url := server(t, mlflow.Options{Users: map[string]mlflow.User{"ann": {Password: "a"}, "bob": {Password: "b", ReadOnly: true}}})
	as := func(user, method, path, body string) (int, string) {
		req, err := http.NewRequestWithContext(t.Context(), method, url+path, strings.NewReader(body))
		require.NoError(t, err)
		if name, password, ok := strings.Cut(user, ":"); ok {
			req.SetBasicAuth(name, password)
		}
		return send(t, req)
	}
	read, write := api+"registered-models/search", api+"registered-models/update"
	require.NoError(t, registry.CreateModel("llama"))
	for name, tc := range map[string]struct {
		user, method, path string
		want               int
	}{
		"Nobody":          {"", "GET", read, 401},
		"WrongPassword":   {"ann:b", "GET", read, 401},
		"Stranger":        {"eve:a", "GET", read, 401},
		"NoPassword":      {"eve:", "GET", read, 401},
		"Reader":          {"bob:b", "GET", read, 200},
		"ReaderWrites":    {"bob:b", "PATCH", write, 403},
		"ReaderWithAPOST": {"bob:b", "POST", api + "registered-models/get-latest-versions", 200},
		"Writer":          {"ann:a", "PATCH", write, 200},
		"Health":          {"", "GET", "/health", 200},
		"ServerInfo":      {"", "GET", "/api/3.0/mlflow/server-info", 401},
	} {
		t.Run(name, func(t *testing.T) {
			status, body := as(tc.user, tc.method, tc.path, `{"name":"llama"}`)
			require.Equal(t, tc.want, status)
			if status == 401 || status == 403 {
				require.False(t, json.Valid([]byte(body)), "MLflow answers text here")
			}
		})
	}
}
