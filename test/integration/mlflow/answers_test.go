package mlflow_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
)

// rawCalls are requests that MLflow's own client never makes but others do, in an
// order: "METHOD call body". They begin with a model of their own.
var rawCalls = []string{
	`POST registered-models/create {"name":"bare"}`,
	`GET registered-models/get?name=bare`,
	`GET registered-models/alias?name=bare&alias=latest`,
	`POST model-versions/create {"name":"bare","source":"s3://weights/bare/1"}`,
	`POST model-versions/create {"name":"bare","source":"models:/bare/1","tags":[{"key":"k","value":"v"}]}`,
	`GET model-versions/get-download-uri?name=bare&version=2`,
	`POST model-versions/create {"name":"bare","source":"models:/m-00000000000000000000000000000000"}`,
	`POST model-versions/create {"name":"bare","source":"runs:/abc/x"}`,
	`POST model-versions/create {"name":"bare","source":"/etc"}`,
	`POST model-versions/create {"name":"bare"}`,
	`POST registered-models/create {"name":""}`,
	`POST registered-models/create {"name":"a:b"}`,
	`POST registered-models/create {"name":7}`,
	`POST registered-models/create {`,
	`POST registered-models/create [1]`,
	`POST registered-models/create {"name":"bare","tags":[{"key":"k","value":"v"}]}`,
	`POST registered-models/alias {"name":"bare","alias":"champion","version":2}`,
	`POST registered-models/alias {"name":"bare","alias":"champion","version":"two"}`,
	`POST registered-models/alias {"name":"bare","alias":"champion"}`,
	`POST registered-models/alias {"name":"bare","alias":"","version":"1"}`,
	`POST registered-models/alias {"name":"bare","alias":"a.b","version":"1"}`,
	`POST registered-models/alias {"name":"bare","alias":"LATEST","version":"1"}`,
	`POST registered-models/alias {"name":"nobody","alias":"champion","version":"1"}`,
	`POST registered-models/alias {"name":"bare","alias":"Ärger_2","version":"1"}`,
	`POST registered-models/alias {"name":"bare","alias":"champion","version":"1"}`,
	`POST registered-models/alias {"name":"bare","alias":"champion","version":"2"}`,
	`GET registered-models/alias?name=bare&alias=champion`,
	`GET registered-models/alias?name=bare&alias=Champion`,
	`GET registered-models/alias?name=bare`,
	`GET registered-models/alias?alias=champion`,
	`GET model-versions/get?name=bare&version=2`,
	`GET model-versions/get?name=bare&version=99999`,
	`GET model-versions/search?filter=name%3D%27bare%27&max_results=1`,
	`GET model-versions/search?filter=name%3D%27nobody%27`,
	`GET model-versions/search?filter=name`,
	`GET model-versions/search?order_by=colour`,
	`GET registered-models/search?filter=name%3D%27bare%27`,
	`GET registered-models/search?max_results=0`,
	`GET registered-models/search?order_by=colour`,
	`GET registered-models/search?order_by=name%20DESC&filter=name%20LIKE%20%27bar%25%27`,
	`GET model-versions/search?max_results=0`,
	`GET model-versions/search?max_results=x`,
	`GET model-versions/search?page_token=aGVsbG8=`,
	`GET model-versions/search?filter=run_id%3D%27x%27`,
	`GET registered-models/get-latest-versions?name=bare`,
	`POST registered-models/get-latest-versions {"name":"bare","stages":["Production"]}`,
	`POST registered-models/get-latest-versions {"name":"bare","stages":["Nirvana"]}`,
	`POST model-versions/transition-stage {"name":"bare","version":"1","stage":"None","archive_existing_versions":true}`,
	`POST registered-models/set-tag {"name":"bare","value":"x"}`,
	`POST registered-models/set-tag {"name":"bare","key":"pilotlight.history.champion","value":"[]"}`,
	`DELETE registered-models/delete-tag {"name":"bare","key":"never-there"}`,
	`DELETE registered-models/alias {"name":"bare","alias":"never-there"}`,
	`DELETE registered-models/alias?name=bare&alias=champion`,
	`DELETE model-versions/delete {"name":"bare","version":"2"}`,
	`GET registered-models/alias?name=bare&alias=champion`,
	`GET registered-models/get?name=bare`,
	`GET logged-models/m-00000000000000000000000000000000`,
	`GET runs/get?run_id=abc`,
	`GET experiments/get?experiment_id=99`,
	`POST experiments/create {"name":"Default"}`,
	`GET webhooks/abc`,
	`POST webhooks {"name":"w","url":"https://example.com/","events":[]}`,
	`POST webhooks {"name":"w","url":"https://example.com/","events":[{"entity":"MODEL_VERSION_ALIAS","action":"SET"}]}`,
	`POST registered-models/rename {"name":"bare","new_name":""}`,
	`POST registered-models/nonsense {}`,
	`PUT registered-models/alias {"name":"bare","alias":"champion","version":"1"}`,
	`DELETE registered-models/delete {"name":"bare"}`,
	`DELETE registered-models/delete {"name":"bare"}`,
}

// An answer is what two servers must agree on. Of an error the code and the first
// sentence count, of a page that it is one.
type answer struct {
	Call   string
	Status int
	Kind   string // the Content-Type without parameters
	Body   any
}

// requireSameAnswers makes the raw calls to both servers.
func requireSameAnswers(t *testing.T, real, fake tracking) {
	t.Helper()
	if diff := cmp.Diff(answers(t, real), answers(t, fake)); diff != "" {
		t.Fatalf("the fake (+) does not answer as MLflow (-) does:\n%s", diff)
	}
}

func answers(t *testing.T, tr tracking) []answer {
	t.Helper()
	var out []answer
	for _, call := range rawCalls {
		method, rest, _ := strings.Cut(call, " ")
		path, body, _ := strings.Cut(rest, " ")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, method, tr.url+"/api/2.0/mlflow/"+path, strings.NewReader(body))
		require.NoError(t, err)
		req.Header.Set("Content-Type", "application/json")
		if tr.user != "" {
			req.SetBasicAuth(tr.user, tr.password)
		}
		resp, err := http.DefaultTransport.RoundTrip(req)
		require.NoError(t, err)
		data, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		kind, _, _ := strings.Cut(resp.Header.Get("Content-Type"), ";")
		out = append(out, answer{Call: call, Status: resp.StatusCode, Kind: kind, Body: withoutMoments(data)})
	}
	return out
}

var moments = regexp.MustCompile(`("[a-z_]*time(?:stamp)?(?:_ms)?": ?)\d+`)

// withoutMoments takes out of a body what differs between two runs.
func withoutMoments(body []byte) any {
	var fields map[string]any
	if err := json.Unmarshal(moments.ReplaceAll(body, []byte("${1}0")), &fields); err != nil {
		return "no JSON"
	}
	if message, ok := fields["message"].(string); ok {
		first, _, _ := strings.Cut(message, ". ")
		return []any{fields["error_code"], first}
	}
	return fields
}
