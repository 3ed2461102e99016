package mlflow_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	fake "github.com/pilotlight-dev/pilotlight/internal/fake/mlflow"
	"github.com/pilotlight-dev/pilotlight/registry"
	"github.com/pilotlight-dev/pilotlight/registry/mlflow"
)

// Tests of habits of MLflow that clients trip over, each named after one.

// answers serves canned JSON by the call's path below /api/2.0/mlflow/.
func answers(t *testing.T, byCall map[string]string) string {
	t.Helper()
	ts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		call := strings.TrimPrefix(r.URL.Path, "/api/2.0/mlflow/")
		body, ok := byCall[call]
		w.Header().Set("Content-Type", "application/json")
		if !ok {
			w.WriteHeader(http.StatusNotFound)
			body = `{"error_code":"RESOURCE_DOES_NOT_EXIST","message":"no such ` + call + `"}`
		} else if strings.Contains(body, "error_code") {
			w.WriteHeader(http.StatusBadRequest)
		}
		_, _ = w.Write([]byte(body)) //nolint:gosec // a test server
	}))
	t.Cleanup(ts.Close)
	return ts.URL
}

func TestSourceIsNeverUsed(t *testing.T) {
	url := answers(t, map[string]string{
		"registered-models/alias":         `{"model_version":{"name":"llama","version":"3","status":"READY","source":"s3://typed/by/hand"}}`,
		"model-versions/get-download-uri": `{"artifact_uri":"s3://weights/true"}`,
	})
	res, err := resolve(t, newClient(t, mlflow.Config{TrackingURI: url}), champion)
	require.NoError(t, err)
	require.Equal(t, "s3://weights/true", res.Location.String())
}

// Another wording of the 400 that means "no such alias" is looked up in the
// model's list of aliases; a 400 for another reason stays one.
func TestAliasMissingIs400InWordsOfTheServer(t *testing.T) {
	for name, tc := range map[string]struct {
		model string
		want  error
	}{
		"Gone":         {`{"registered_model":{"name":"llama","aliases":[{"alias":"challenger","version":"3"}]}}`, registry.ErrNotFound},
		"NoAliases":    {`{"registered_model":{"name":"llama"}}`, registry.ErrNotFound},
		"AnotherFault": {`{"registered_model":{"name":"llama","aliases":[{"alias":"champion","version":3}]}}`, registry.ErrBroken},
	} {
		t.Run(name, func(t *testing.T) {
			url := answers(t, map[string]string{
				"registered-models/alias": `{"error_code":"INVALID_PARAMETER_VALUE","message":"der Alias fehlt"}`,
				"registered-models/get":   tc.model,
			})
			_, err := resolve(t, newClient(t, mlflow.Config{TrackingURI: url}), champion)
			require.ErrorIs(t, err, tc.want)
			require.ErrorContains(t, err, "der Alias fehlt")
			for _, other := range []error{registry.ErrNotFound, registry.ErrBroken} {
				require.Equal(t, errors.Is(tc.want, other), errors.Is(err, other), "one class only")
			}
		})
	}
}

func TestAliasMissingAndDanglingAreToldApart(t *testing.T) {
	server, url := newRegistry(t, fake.Options{})
	require.NoError(t, server.DeleteVersion("llama", "2"))
	c := newClient(t, mlflow.Config{TrackingURI: url})
	read := func(alias string) error {
		_, err := c.Read(t.Context(), registry.Ref{Kind: registry.KindAlias, Name: "llama", Selector: alias})
		return err
	}
	require.True(t, errors.Is(read("champion"), registry.ErrBroken))
	require.False(t, errors.Is(read("champion"), registry.ErrNotFound))
	require.True(t, errors.Is(read("nobody"), registry.ErrNotFound))
	require.False(t, errors.Is(read("nobody"), registry.ErrBroken))
}

// An SQL store does not touch last_updated_timestamp when an alias moves.
func TestAMoveIsSeenThoughTimestampsStandStill(t *testing.T) {
	frozen := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	server, url := newRegistry(t, fake.Options{Now: func() time.Time { return frozen }})
	c := newClient(t, mlflow.Config{TrackingURI: url})
	require.NoError(t, server.SetAlias("llama", "champion", "1"))
	pos, err := c.Read(t.Context(), championRef(t))
	require.NoError(t, err)
	require.Equal(t, "1", pos.Version)
}

// The first tag of a model, written by two at once: MLflow answers one of them
// with its database's words and 400, which a repetition gets past.
func TestTwoWritersOfTheFirstRowAreNotAnError(t *testing.T) {
	for name, call := range map[string]string{"Tag": "registered-models/set-tag", "Alias": "registered-models/alias"} {
		t.Run(name, func(t *testing.T) {
			refused := 0
			_, url := newRegistry(t, fake.Options{Intercept: func(w http.ResponseWriter, r *http.Request) bool {
				if r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, call) || refused > 0 {
					return false
				}
				refused++
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(http.StatusBadRequest)
				_, _ = w.Write([]byte(`{"error_code":"BAD_REQUEST","message":"(sqlite3.IntegrityError) UNIQUE constraint failed: registered_model_tags.key"}`))
				return true
			}})
			c := newClient(t, mlflow.Config{TrackingURI: url, RetryBase: time.Millisecond})
			pos, err := c.Read(t.Context(), championRef(t))
			require.NoError(t, err)
			moved, err := c.Move(t.Context(), pos.Ref, registry.Change{Expect: pos, To: "1"})
			require.NoError(t, err)
			require.NoError(t, moved.HistoryErr)
			require.Equal(t, "1", moved.Version)
			require.Len(t, moved.History, 1)
			require.Equal(t, 1, refused)
		})
	}
}

func TestSearchCarriesNoAliases(t *testing.T) {
	server, url := newRegistry(t, fake.Options{Now: func() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }})
	require.NoError(t, server.SetAlias("llama", "canary", "2"))
	require.NoError(t, server.SetAlias("llama", "old", "1"))
	require.NoError(t, server.SetStatus("llama", "1", fake.StatusFailed))
	list, err := newClient(t, mlflow.Config{TrackingURI: url}).Versions(t.Context(), championRef(t))
	require.NoError(t, err)
	created := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	require.Empty(t, cmp.Diff([]registry.Version{
		{Version: "2", Created: created, Status: "READY", Aliases: []string{"canary", "champion"}},
		{Version: "1", Created: created, Status: "FAILED_REGISTRATION", Aliases: []string{"old"}},
	}, list))
}

func TestVersionsAreOrderedByNumberOverPages(t *testing.T) {
	server := fake.New(fake.Options{})
	for range 450 {
		_, err := server.CreateVersion("llama", "s3://weights/x")
		require.NoError(t, err)
	}
	_, err := server.CreateVersion("llama-2", "s3://weights/x")
	require.NoError(t, err)
	ts := httptest.NewServer(server)
	defer ts.Close()
	list, err := newClient(t, mlflow.Config{TrackingURI: ts.URL}).Versions(t.Context(), championRef(t))
	require.NoError(t, err)
	require.Len(t, list, 450)
	for i, v := range list {
		require.Equal(t, fmt.Sprint(450-i), v.Version)
	}
	require.Equal(t, 3, server.Calls("GET", "model-versions/search"))
}

func TestVersionListThatDoesNotEnd(t *testing.T) {
	var pages atomic.Int64
	for name, token := range map[string]func() string{
		"SameToken": func() string { return "again" },
		"NewTokens": func() string { return fmt.Sprint(pages.Load()) },
	} {
		t.Run(name, func(t *testing.T) {
			pages.Store(0)
			ts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if strings.HasSuffix(r.URL.Path, "/search") {
					pages.Add(1)
					_, _ = fmt.Fprintf(w, `{"model_versions":[{"name":"llama","version":%d}],"next_page_token":%q}`, pages.Load(), token())
					return
				}
				_, _ = w.Write([]byte(`{"registered_model":{"name":"llama"}}`))
			}))
			defer ts.Close()
			list, err := newClient(t, mlflow.Config{TrackingURI: ts.URL}).Versions(t.Context(), championRef(t))
			if name == "SameToken" {
				require.ErrorIs(t, err, registry.ErrBroken)
			} else {
				require.NoError(t, err)
				require.Len(t, list, 25)
			}
			require.LessOrEqual(t, pages.Load(), int64(25))
		})
	}
}

// A database without case compares names its own way.
func TestVersionsOfAnotherCaseAreNotOurs(t *testing.T) {
	url := answers(t, map[string]string{
		"registered-models/get": `{"registered_model":{"name":"llama"}}`,
		"model-versions/search": `{"model_versions":[{"name":"Llama","version":"9"},{"name":"llama","version":"1"}]}`,
	})
	list, err := newClient(t, mlflow.Config{TrackingURI: url}).Versions(t.Context(), championRef(t))
	require.NoError(t, err)
	require.Len(t, list, 1)
}

func TestLatestIsTheHighestNumberOfAllStages(t *testing.T) {
	server := fake.New(fake.Options{})
	for range 10 {
		_, err := server.CreateVersion("llama", "s3://weights/x")
		require.NoError(t, err)
	}
	require.NoError(t, server.SetStage("llama", "10", "Archived"))
	require.NoError(t, server.SetStage("llama", "9", "Production"))
	ts := httptest.NewServer(server)
	defer ts.Close()
	c := newClient(t, mlflow.Config{TrackingURI: ts.URL})
	for _, ref := range []string{"models:/llama/latest", "models:/llama/LATEST"} {
		res, err := resolve(t, c, ref)
		require.NoError(t, err)
		require.Equal(t, "10", res.Version, "as a number, not as text")
	}
}

func TestNamesAreNotDecoded(t *testing.T) {
	server := fake.New(fake.Options{})
	for _, name := range []string{"my model", "my%20model", "me@home"} {
		_, err := server.CreateVersion(name, "s3://weights/"+name)
		require.NoError(t, err)
		require.NoError(t, server.SetAlias(name, "champion", "1"))
	}
	ts := httptest.NewServer(server)
	defer ts.Close()
	c := newClient(t, mlflow.Config{TrackingURI: ts.URL})
	for ref, want := range map[string]string{
		"models:/my model/1": "s3://weights/my model", "models:/my%20model@champion": "s3://weights/my%20model", "models:/me@home@champion": "s3://weights/me@home",
	} {
		res, err := resolve(t, c, ref)
		require.NoError(t, err)
		require.Equal(t, want, res.Location.String())
	}
}

func TestLoggedModelMustBeReady(t *testing.T) {
	for status, want := range map[string]error{
		"LOGGED_MODEL_READY": nil, "LOGGED_MODEL_PENDING": registry.ErrPending, "LOGGED_MODEL_UPLOAD_FAILED": registry.ErrBroken, "": registry.ErrBroken,
	} {
		url := answers(t, map[string]string{
			"logged-models/" + loggedID: `{"model":{"info":{"model_id":"` + loggedID + `","artifact_uri":"s3://weights/x","status":"` + status + `"}}}`,
		})
		_, err := resolve(t, newClient(t, mlflow.Config{TrackingURI: url}), "models:/"+loggedID)
		if want == nil {
			require.NoError(t, err)
		} else {
			require.ErrorIs(t, err, want, status)
		}
	}
}

// MLflow 3 keeps a model that a run logged apart from the run's artifacts.
func TestRunSourceOfALoggedModel(t *testing.T) {
	const model = `{"model":{"info":{"model_id":"` + loggedID + `","name":"model","artifact_uri":"s3://weights/1/models/` + loggedID + `/artifacts","status":"LOGGED_MODEL_READY"}}}`
	run := func(outputs string) string {
		return `{"run":{"info":{"artifact_uri":"s3://weights/1/abc/artifacts"}` + outputs + `}}`
	}
	const outputs = `,"outputs":{"model_outputs":[{"model_id":"m-deleted","step":0},{"model_id":"` + loggedID + `","step":0}]}`
	const version = `{"model_version":{"name":"llama","version":"1","status":"READY"}}`
	tests := map[string]struct {
		uri    string
		calls  map[string]string
		want   string
		reason string
	}{
		"NoOutputs":  {"runs:/abc/model", map[string]string{"runs/get": run("")}, "s3://weights/1/abc/artifacts/model", "MLflow 2, or artifacts logged as files"},
		"Logged":     {"runs:/abc/model", map[string]string{"runs/get": run(outputs), "artifacts/list": `{}`}, "s3://weights/1/models/" + loggedID + "/artifacts", "the run's folder holds nothing"},
		"CannotList": {"runs:/abc/model", map[string]string{"runs/get": run(outputs)}, "s3://weights/1/models/" + loggedID + "/artifacts", "a server without access to the store"},
		"Inside":     {"runs:/abc/model/sub/dir/", map[string]string{"runs/get": run(outputs), "artifacts/list": `{}`}, "s3://weights/1/models/" + loggedID + "/artifacts/sub/dir", "a folder of the model"},
		"BothThere": {
			"runs:/abc/model",
			map[string]string{"runs/get": run(outputs), "artifacts/list": `{"files":[{"path":"model/MLmodel","is_dir":false,"file_size":812}]}`},
			"s3://weights/1/abc/artifacts/model", "the run's own model",
		},
		"OtherName": {"runs:/abc/other", map[string]string{"runs/get": run(outputs)}, "s3://weights/1/abc/artifacts/other", "no logged model is called so"},
		"WholeRun":  {"runs:/abc", map[string]string{"runs/get": run(outputs)}, "s3://weights/1/abc/artifacts", "no name"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			tc.calls["logged-models/"+loggedID] = model
			tc.calls["model-versions/get"] = version
			tc.calls["model-versions/get-download-uri"] = `{"artifact_uri":"` + tc.uri + `"}`
			res, err := resolve(t, newClient(t, mlflow.Config{TrackingURI: answers(t, tc.calls)}), "models:/llama/1")
			require.NoError(t, err)
			require.Equal(t, tc.want, res.Location.String(), tc.reason)
		})
	}
}
