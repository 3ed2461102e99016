package mlflow_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/internal/fake/mlflow"
)

// inbox receives deliveries and answers with the statuses it is given, then 200.
type inbox struct {
	mu       sync.Mutex
	statuses []int
	headers  []http.Header
	bodies   []string
}

func (b *inbox) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body) // a request cut short has a body that no test expects
	b.mu.Lock()
	defer b.mu.Unlock()
	b.headers, b.bodies = append(b.headers, r.Header), append(b.bodies, string(body))
	if len(b.statuses) > 0 {
		w.WriteHeader(b.statuses[0])
		b.statuses = b.statuses[1:]
	}
	_, _ = io.WriteString(w, "thanks") // as above
}

// listening is a registry with a webhook for everything there is.
func listening(t *testing.T, secret string) (registry *mlflow.Server, url, id string, box *inbox) {
	t.Helper()
	box = &inbox{}
	receiver := httptest.NewServer(box)
	t.Cleanup(receiver.Close)
	registry, url = server(t, mlflow.Options{Deliver: &http.Client{Timeout: 10 * time.Second}, Backoff: time.Millisecond})
	t.Cleanup(registry.Close)
	status, body := call(t, "POST", url+api+"webhooks", `{"name":"watch","url":"`+receiver.URL+`/hook","secret":"`+secret+`","events":[
		{"entity":"MODEL_VERSION_ALIAS","action":"CREATED"},{"entity":"MODEL_VERSION_ALIAS","action":"DELETED"},
		{"entity":"REGISTERED_MODEL","action":"CREATED"},{"entity":"MODEL_VERSION","action":"CREATED"},
		{"entity":"MODEL_VERSION_TAG","action":"SET"},{"entity":"MODEL_VERSION_TAG","action":"DELETED"}]}`)
	require.Equal(t, 200, status, body)
	require.NotContains(t, body, "secret")
	return registry, url, regexp.MustCompile(`"webhook_id":"([^"]+)"`).FindStringSubmatch(body)[1], box
}

func TestDeliveriesAreSignedAndWrittenAsPythonWrites(t *testing.T) {
	registry, url, _, box := listening(t, "s")
	status, _ := call(t, "POST", url+api+"registered-models/create", `{"name":"größe 🔥 <\"a\"&>"}`)
	require.Equal(t, 200, status)
	registry.Settle()
	require.Len(t, box.bodies, 1)
	require.Regexp(t, `^\{"entity": "registered_model", "action": "created", "timestamp": "2026-01-01T00:00:\d\d\.000000\+00:00", `+
		`"data": \{"name": "gr\\u00f6\\u00dfe \\ud83d\\udd25 <\\"a\\"&>", "tags": \{\}, "description": null\}\}$`, box.bodies[0])
	h := box.headers[0]
	at, err := strconv.ParseInt(h.Get("X-MLflow-Timestamp"), 10, 64)
	require.NoError(t, err)
	require.Equal(t, mlflow.Sign("s", h.Get("X-MLflow-Delivery-Id"), at, box.bodies[0]), h.Get("X-MLflow-Signature"))
	// HMAC-SHA256("s", "id.1.body") by another program.
	require.Equal(t, "v1,Pla56iejvDGRpblOw4DdijSPKF+Oft/FlF0iBaAKOq0=", mlflow.Sign("s", "id", 1, "body"))
}

func TestWhatIsAnnounced(t *testing.T) {
	registry, url, _, box := listening(t, "")
	step := func(method, path, body string) []string {
		status, answer := call(t, method, url+api+path, body)
		require.Equal(t, 200, status, answer)
		registry.Settle()
		defer func() { box.bodies = nil }()
		var out []string
		for _, text := range box.bodies {
			var b struct {
				Entity, Action string
				Data           map[string]any
			}
			require.NoError(t, json.Unmarshal([]byte(text), &b))
			line := b.Entity + "." + b.Action
			for _, key := range []string{"alias", "version", "key", "value", "source"} {
				if v, ok := b.Data[key]; ok {
					line += " " + v.(string)
				}
			}
			out = append(out, line)
		}
		return out
	}
	require.Equal(t, []string{"registered_model.created"}, step("POST", "registered-models/create", `{"name":"llama"}`))
	require.Equal(t, []string{"model_version.created 1 s3://b/1"}, step("POST", "model-versions/create", `{"name":"llama","source":"s3://b/1","tags":[{"key":"a","value":"b"}]}`))
	require.Equal(t, []string{"model_version.created 2 s3://b/2"}, step("POST", "model-versions/create", `{"name":"llama","source":"s3://b/2"}`))
	require.Equal(t, []string{"model_version_alias.created champion 1"}, step("POST", "registered-models/alias", `{"name":"llama","alias":"champion","version":"1"}`))
	require.Equal(t, []string{"model_version_alias.created champion 2"}, step("POST", "registered-models/alias", `{"name":"llama","alias":"champion","version":"2"}`), "a move")
	require.Equal(t, []string{"model_version_tag.set 1 k v"}, step("POST", "model-versions/set-tag", `{"name":"llama","version":"1","key":"k","value":"v"}`))
	require.Equal(t, []string{"model_version_tag.deleted 1 k"}, step("DELETE", "model-versions/delete-tag", `{"name":"llama","version":"1","key":"k"}`))
	require.Empty(t, step("POST", "model-versions/transition-stage", `{"name":"llama","version":"1","stage":"Staging"}`))
	require.Empty(t, step("POST", "registered-models/set-tag", `{"name":"llama","key":"k","value":"v"}`))
	require.Empty(t, step("DELETE", "model-versions/delete", `{"name":"llama","version":"2"}`), "though its alias leads nowhere now")
	require.Equal(t, []string{"model_version_alias.deleted champion"}, step("DELETE", "registered-models/alias", `{"name":"llama","alias":"champion"}`))
	require.Empty(t, box.headers[0].Get("X-MLflow-Signature"), "nothing is signed without a secret")

	require.NoError(t, registry.SetAlias("llama", "live", "1"))
	registry.Settle()
	require.Len(t, box.bodies, 1, "the Go API announces too")
}

func TestRefusedDeliveriesAreRepeated(t *testing.T) {
	for name, tc := range map[string]struct {
		statuses []int
		want     int
	}{
		"Once":      {[]int{200}, 1},
		"Busy":      {[]int{503, 429}, 3},
		"ForGood":   {[]int{500, 502, 503, 504, 200}, 4},
		"NotWanted": {[]int{404}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			registry, _, _, box := listening(t, "s")
			box.statuses = tc.statuses
			_, err := registry.CreateVersion("llama", "s3://b/1")
			require.NoError(t, err)
			require.NoError(t, registry.SetAlias("llama", "champion", "1"))
			registry.Settle()
			require.Len(t, box.bodies, tc.want)
			require.Equal(t, box.headers[0].Get("X-MLflow-Delivery-Id"), box.headers[tc.want-1].Get("X-MLflow-Delivery-Id"), "so that repeats can be told")
		})
	}
}

func TestWebhookLife(t *testing.T) {
	registry, url, id, box := listening(t, "s")
	_, one := call(t, "GET", url+api+"webhooks/"+id, "")
	_, list := call(t, "GET", url+api+"webhooks", "")
	require.Contains(t, list, id)
	require.Contains(t, one, `"status":"ACTIVE"`)

	status, body := call(t, "POST", url+api+"webhooks/"+id+"/test", `{"event":{"entity":"MODEL_VERSION_ALIAS","action":"DELETED"}}`)
	require.Equal(t, 200, status)
	require.JSONEq(t, `{"result":{"success":true,"response_status":200,"response_body":"thanks"}}`, body)
	require.Contains(t, box.bodies[0], `"data": {"name": "example_model", "alias": "example_alias"}`)
	box.statuses = []int{404}
	_, body = call(t, "POST", url+api+"webhooks/"+id+"/test", `{}`)
	require.JSONEq(t, `{"result":{"success":false,"response_status":404,"response_body":"thanks"}}`, body)

	status, body = call(t, "PATCH", url+api+"webhooks/"+id, `{"status":"DISABLED"}`)
	require.Equal(t, 200, status)
	require.Contains(t, body, `"name":"watch"`)
	before := len(box.bodies)
	_, err := registry.CreateVersion("llama", "s3://b/1")
	require.NoError(t, err)
	require.NoError(t, registry.SetAlias("llama", "champion", "1"))
	registry.Settle()
	require.Len(t, box.bodies, before, "a disabled webhook hears nothing")

	status, _ = call(t, "DELETE", url+api+"webhooks/"+id, `{}`)
	require.Equal(t, 200, status)
	for _, method := range []string{"GET", "PATCH", "DELETE"} {
		status, _ = call(t, method, url+api+"webhooks/"+id, `{}`)
		require.Equal(t, 404, status, method)
	}
}

func TestWebhooksThatAreRefused(t *testing.T) {
	_, url := server(t, mlflow.Options{})
	const alias = `[{"entity":"MODEL_VERSION_ALIAS","action":"CREATED"}]`
	for name, fields := range map[string]string{
		"NoName":      `"url":"http://h/","events":` + alias,
		"BadName":     `"name":"-","url":"http://h/","events":` + alias,
		"BadScheme":   `"name":"w","url":"ftp://h/","events":` + alias,
		"NoHost":      `"name":"w","url":"http:///x","events":` + alias,
		"NoEvents":    `"name":"w","url":"http://h/","events":[]`,
		"WrongAction": `"name":"w","url":"http://h/","events":[{"entity":"MODEL_VERSION_ALIAS","action":"SET"}]`,
		"NoEntity":    `"name":"w","url":"http://h/","events":[{"entity":"WEATHER","action":"SET"}]`,
		"BadStatus":   `"name":"w","url":"http://h/","status":"ASLEEP","events":` + alias,
	} {
		t.Run(name, func(t *testing.T) {
			status, body := call(t, "POST", url+api+"webhooks", "{"+fields+"}")
			require.Equal(t, 400, status)
			require.Contains(t, body, "INVALID_PARAMETER_VALUE")
		})
	}
	_, body := call(t, "GET", url+api+"webhooks", "")
	require.Equal(t, "{}", body)
}
