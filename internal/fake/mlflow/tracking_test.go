package mlflow_test

import (
	"encoding/json"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/internal/fake/mlflow"
)

type logged struct {
	Model struct {
		Info struct {
			ID       string `json:"model_id"`
			Location string `json:"artifact_uri"`
			Status   string `json:"status"`
			Tags     []struct{ Key, Value string }
		} `json:"info"`
	} `json:"model"`
}

// TestRegisterALoggedModel takes the client's way from an experiment to a version.
func TestRegisterALoggedModel(t *testing.T) {
	_, url := server(t, mlflow.Options{Recent: true, ArtifactRoot: "s3://weights/mlflow/"})
	status, body := call(t, "POST", url+api+"experiments/create", `{"name":"nightly"}`)
	require.Equal(t, 200, status)
	require.JSONEq(t, `{"experiment_id":"1"}`, body)
	status, _ = call(t, "POST", url+api+"experiments/create", `{"name":"nightly"}`)
	require.Equal(t, 400, status)
	_, byName := call(t, "GET", url+api+"experiments/get-by-name?experiment_name=nightly", "")
	_, byID := call(t, "GET", url+api+"experiments/get?experiment_id=1", "")
	require.JSONEq(t, byID, byName)
	require.Contains(t, byID, `"artifact_location":"s3://weights/mlflow/1"`)

	var lm logged
	status, body = call(t, "POST", url+api+"logged-models", `{"experiment_id":"1","name":"llm","tags":[{"key":"a","value":"b"}]}`)
	require.Equal(t, 200, status)
	require.NoError(t, json.Unmarshal([]byte(body), &lm))
	id := lm.Model.Info.ID
	require.Regexp(t, regexp.MustCompile(`^m-[0-9a-f]{32}$`), id)
	require.Equal(t, "LOGGED_MODEL_PENDING", lm.Model.Info.Status)
	require.Equal(t, "s3://weights/mlflow/1/models/"+id+"/artifacts", lm.Model.Info.Location)
	status, _ = call(t, "PATCH", url+api+"logged-models/"+id, `{"status":"LOGGED_MODEL_READY"}`)
	require.Equal(t, 200, status)
	status, _ = call(t, "PATCH", url+api+"logged-models/"+id+"/tags", `{"tags":[{"key":"c","value":"d"}]}`)
	require.Equal(t, 200, status)
	lm = get[logged](t, url+api+"logged-models/"+id)
	require.Equal(t, "LOGGED_MODEL_READY", lm.Model.Info.Status)
	require.Len(t, lm.Model.Info.Tags, 2)

	status, _ = call(t, "POST", url+api+"registered-models/create", `{"name":"llama"}`)
	require.Equal(t, 200, status)
	create := func(fields string) (int, string) {
		return call(t, "POST", url+api+"model-versions/create", `{"name":"llama",`+fields+`}`)
	}
	status, body = create(`"source":"models:/` + id + `"`)
	require.Equal(t, 400, status, "a recent server wants to be told the model's id")
	require.Contains(t, body, "model_id")
	status, _ = create(`"source":"models:/` + id + `","model_id":"` + id + `"`)
	require.Equal(t, 200, status)
	status, _ = create(`"source":"models:/llama/1"`)
	require.Equal(t, 200, status)
	for _, version := range []string{"1", "2"} {
		_, body = call(t, "GET", url+api+"model-versions/get-download-uri?name=llama&version="+version, "")
		require.JSONEq(t, `{"artifact_uri":"`+lm.Model.Info.Location+`"}`, body, "resolved when it was registered")
	}
	for _, fields := range []string{`"source":"/etc"`, `"source":"runs:/1/x"`, `"source":""`} {
		status, _ = create(fields)
		require.Equal(t, 400, status, fields)
	}
	status, _ = create(`"source":"models:/llama/9"`)
	require.Equal(t, 500, status)
}

func TestRuns(t *testing.T) {
	registry, url := server(t, mlflow.Options{ArtifactRoot: "s3://weights"})
	status, body := call(t, "POST", url+api+"runs/create", `{"experiment_id":"0","run_name":"r"}`)
	require.Equal(t, 200, status)
	id := regexp.MustCompile(`"run_id":"([0-9a-f]{32})"`).FindStringSubmatch(body)[1]
	require.Contains(t, body, `"artifact_uri":"s3://weights/0/`+id+`/artifacts"`)
	status, body = call(t, "POST", url+api+"runs/update", `{"run_id":"`+id+`","status":"FINISHED"}`)
	require.Equal(t, 200, status)
	require.Contains(t, body, `"status":"FINISHED"`)
	_, body = call(t, "GET", url+api+"runs/get?run_id="+id, "")
	require.Contains(t, body, `"status":"FINISHED"`)
	registry.AddRun("mine", "s3://elsewhere/x")
	_, body = call(t, "GET", url+api+"runs/get?run_id=mine", "")
	require.Contains(t, body, `"artifact_uri":"s3://elsewhere/x"`)
	for _, path := range []string{"runs/get?run_id=x", "logged-models/m-1", "experiments/get?experiment_id=9", "experiments/get-by-name?experiment_name=x"} {
		status, _ = call(t, "GET", url+api+path, "")
		require.Equal(t, 404, status, path)
	}
	require.Equal(t, 1, registry.Calls("GET", "logged-models/{id}"))
}
