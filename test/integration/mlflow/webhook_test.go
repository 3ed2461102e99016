package mlflow_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	fakemlflow "github.com/pilotlight-dev/pilotlight/internal/fake/mlflow"
)

// hookSecret signs the deliveries of these tests.
const hookSecret = "a secret of this test"

// A delivery is what a webhook's receiver got. The recorded one is test data for
// whoever writes a receiver.
type delivery struct {
	// Release is what the server called itself.
	Release string            `json:"release"`
	Secret  string            `json:"secret"`
	Header  map[string]string `json:"header"`
	Body    string            `json:"body"`
}

// requireSigned demands that the signature holds for these very bytes.
func (d delivery) requireSigned(t *testing.T) {
	t.Helper()
	at, err := strconv.ParseInt(d.Header["X-Mlflow-Timestamp"], 10, 64)
	require.NoError(t, err)
	id := d.Header["X-Mlflow-Delivery-Id"]
	require.Regexp(t, `^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`, id)
	require.Equal(t, fakemlflow.Sign(d.Secret, id, at, d.Body), d.Header["X-Mlflow-Signature"])
}

// receiver collects deliveries.
func receiver(t *testing.T) (url string, got <-chan delivery) {
	t.Helper()
	ch := make(chan delivery, 100)
	ts := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		d := delivery{Secret: hookSecret, Header: map[string]string{}, Body: string(body)}
		for key := range r.Header {
			d.Header[key] = r.Header.Get(key)
		}
		select {
		case ch <- d:
		default: // nobody reads any more
		}
	}))
	t.Cleanup(ts.Close)
	return ts.URL + "/webhook", ch
}

// requireWebhook subscribes to aliases and moves one until it hears of it: the
// server may know for a second yet that nobody listens.
func requireWebhook(t *testing.T, tr tracking) {
	t.Helper()
	url, got := receiver(t)
	tr.subscribe(t, url)
	var d delivery
	for try := 1; d.Body == ""; try++ {
		require.Less(t, try, 10, "no delivery came")
		tr.setLive(t, strconv.Itoa(1+try%2))
		select {
		case d = <-got:
		case <-time.After(2 * time.Second):
		}
	}
	d.requireSigned(t)
	var body struct {
		Entity, Action, Timestamp string
		Data                      map[string]string
	}
	require.NoError(t, json.Unmarshal([]byte(d.Body), &body))
	require.Equal(t, "model_version_alias", body.Entity)
	require.Equal(t, "created", body.Action, "a move is not told apart")
	require.Equal(t, "live", body.Data["alias"])
	require.Equal(t, model, body.Data["name"])
	require.Contains(t, []string{"1", "2"}, body.Data["version"])
	at, err := time.Parse(time.RFC3339Nano, body.Timestamp)
	require.NoError(t, err)
	require.WithinDuration(t, time.Now(), at, time.Minute)
	record(t, tr, d)
}

// subscribe has moves of aliases announced to url until the test ends: a server
// that calls somebody who has gone tries again and again.
func (tr tracking) subscribe(t *testing.T, url string) {
	t.Helper()
	event := func(action string) map[string]string {
		return map[string]string{"entity": "MODEL_VERSION_ALIAS", "action": action}
	}
	var made struct {
		Webhook struct {
			ID string `json:"webhook_id"`
		} `json:"webhook"`
	}
	tr.call(t, http.MethodPost, "webhooks", map[string]any{
		"name": "watch", "url": url, "secret": hookSecret, "status": "ACTIVE", "events": []any{event("CREATED"), event("DELETED")},
	}, &made)
	t.Cleanup(func() {
		tr.do(context.WithoutCancel(t.Context()), t, http.MethodDelete, "webhooks/"+made.Webhook.ID, nil, nil)
	})
}

const recorded = "testdata/delivery.json"

// record writes a delivery to PILOTLIGHT_RECORD, to be committed as test data.
func record(t *testing.T, tr tracking, d delivery) {
	t.Helper()
	dir := os.Getenv("PILOTLIGHT_RECORD")
	if dir == "" {
		return
	}
	resp, err := http.DefaultTransport.RoundTrip(httptest.NewRequestWithContext(t.Context(), http.MethodGet, tr.url+"/version", nil))
	require.NoError(t, err)
	release, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	d.Release = string(release)
	data, err := json.MarshalIndent(d, "", "  ")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, filepath.Base(recorded)), append(data, '\n'), 0o600))
}

// TestRecordedDelivery holds the fake's deliveries against one of MLflow's: the
// signature is made the same way, and the bytes are written the same way.
func TestRecordedDelivery(t *testing.T) {
	data, err := os.ReadFile(recorded)
	require.NoError(t, err)
	var real delivery
	require.NoError(t, json.Unmarshal(data, &real))
	real.requireSigned(t)

	url, got := receiver(t)
	at, err := strconv.ParseInt(real.Header["X-Mlflow-Timestamp"], 10, 64)
	require.NoError(t, err)
	registry := fakemlflow.New(fakemlflow.Options{Deliver: &http.Client{Timeout: 10 * time.Second}, Now: func() time.Time { return time.Unix(at, 0) }})
	t.Cleanup(registry.Close)
	server := httptest.NewServer(registry)
	t.Cleanup(server.Close)
	tr := tracking{url: server.URL}
	tr.call(t, http.MethodPost, "webhooks", map[string]any{
		"name": "watch", "url": url, "secret": hookSecret, "events": []any{map[string]string{"entity": "MODEL_VERSION_ALIAS", "action": "CREATED"}},
	}, nil)
	for range 2 {
		_, err = registry.CreateVersion(model, "s3://"+bucket+"/x")
		require.NoError(t, err)
	}
	var body struct{ Data map[string]string }
	require.NoError(t, json.Unmarshal([]byte(real.Body), &body))
	require.NoError(t, registry.SetAlias(model, body.Data["alias"], body.Data["version"]))
	registry.Settle()
	fake := <-got
	fake.requireSigned(t)
	require.Equal(t, withoutTime(real.Body), withoutTime(fake.Body))
	for key := range real.Header {
		if key != "User-Agent" && key != "Accept" && key != "Connection" {
			require.Contains(t, fake.Header, key)
		}
	}
}

var timestamp = regexp.MustCompile(`"timestamp": "\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}\+00:00"`)

// withoutTime takes the timestamp out of a body if it has the form that Python
// gives it.
func withoutTime(body string) string { return timestamp.ReplaceAllString(body, "TIME") }
