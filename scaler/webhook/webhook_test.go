package webhook

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/internal/workload"
)

const moved = `{"entity":"model_version_alias","action":"created","timestamp":"2026-01-01T00:00:00.123456+00:00","data":{"name":"llama","alias":"champion","version":"3"}}`

// sign makes a delivery as MLflow does.
func sign(t *testing.T, secret, id string, at time.Time, body string) *http.Request {
	t.Helper()
	stamp := strconv.FormatInt(at.Unix(), 10)
	mac := hmac.New(sha256.New, []byte(secret))
	_, _ = mac.Write([]byte(id + "." + stamp + "." + body))
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/webhook", strings.NewReader(body))
	r.Header.Set("X-MLflow-Delivery-Id", id)
	r.Header.Set("X-MLflow-Timestamp", stamp)
	r.Header.Set("X-MLflow-Signature", "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	return r
}

type hook struct {
	*Handler
	secret string // its file
	nudged []string
	reg    *prometheus.Registry
}

func newHook(t *testing.T) *hook {
	t.Helper()
	h := &hook{secret: filepath.Join(t.TempDir(), "secret"), reg: prometheus.NewRegistry()}
	require.NoError(t, os.WriteFile(h.secret, []byte("s3cret\n"), 0o600))
	var err error
	h.Handler, err = New(Options{SecretFile: h.secret, Nudge: func(ref string) { h.nudged = append(h.nudged, ref) }, Registerer: h.reg})
	require.NoError(t, err)
	return h
}

func (h *hook) deliver(r *http.Request) (int, string) {
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, r)
	return rec.Code, rec.Body.String()
}

func TestDeliveries(t *testing.T) {
	change := func(r *http.Request, header, value string) *http.Request {
		r.Header.Set(header, value)
		return r
	}
	now := time.Now()
	cases := map[string]struct {
		request *http.Request
		status  int
		says    string
		nudged  []string
	}{
		"Moved":       {sign(t, "s3cret", "1", now, moved), 202, "models:/llama@champion", []string{"models:/llama@champion"}},
		"Deleted":     {sign(t, "s3cret", "1", now, strings.Replace(moved, "created", "deleted", 1)), 202, "nudged", []string{"models:/llama@champion"}},
		"OtherEvent":  {sign(t, "s3cret", "1", now, `{"entity":"registered_model","action":"created","data":{"name":"llama"}}`), 202, "no alias", nil},
		"OldEnough":   {sign(t, "s3cret", "1", now.Add(-4*time.Minute), moved), 202, "nudged", []string{"models:/llama@champion"}},
		"TooOld":      {sign(t, "s3cret", "1", now.Add(-6*time.Minute), moved), 401, "clocks", nil},
		"Ahead":       {sign(t, "s3cret", "1", now.Add(6*time.Minute), moved), 401, "clocks", nil},
		"OtherSecret": {sign(t, "guess", "1", now, moved), 401, "signature", nil},
		"OtherID":     {change(sign(t, "s3cret", "1", now, moved), "X-MLflow-Delivery-Id", "2"), 401, "signature", nil},
		"OtherTime":   {change(sign(t, "s3cret", "1", now, moved), "X-MLflow-Timestamp", "1"), 401, "signature", nil},
		"NoSignature": {change(sign(t, "s3cret", "1", now, moved), "X-MLflow-Signature", ""), 401, "not signed", nil},
		"NoVersion":   {change(sign(t, "s3cret", "1", now, moved), "X-MLflow-Signature", "abc"), 401, "not signed", nil},
		"NoBase64":    {change(sign(t, "s3cret", "1", now, moved), "X-MLflow-Signature", "v1,%%%"), 401, "signature", nil},
		"LongID":      {sign(t, "s3cret", strings.Repeat("x", 200), now, moved), 401, "not signed", nil},
		"TooLarge":    {sign(t, "s3cret", "1", now, `{"x":"`+strings.Repeat("x", 64<<10)+`"}`), 413, "65536", nil},
		"NoJSON":      {sign(t, "s3cret", "1", now, "hello"), 400, "no event", nil},
		"NoAlias":     {sign(t, "s3cret", "1", now, `{"entity":"model_version_alias","action":"created","data":{"name":"llama"}}`), 400, "no alias", nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			h := newHook(t)
			status, body := h.deliver(tc.request)
			require.Equal(t, tc.status, status, body)
			require.Contains(t, body, tc.says)
			require.NotContains(t, body, "s3cret")
			require.Equal(t, tc.nudged, h.nudged)
		})
	}
}

func TestRepeatedDeliveryNudgesOnce(t *testing.T) {
	h := newHook(t)
	now := time.Now()
	for range 3 {
		status, _ := h.deliver(sign(t, "s3cret", "1", now, moved))
		require.Equal(t, 202, status)
	}
	require.Len(t, h.nudged, 1)
	for i := range 2 * maxSeen {
		require.False(t, h.repeated("x"+strconv.Itoa(i), now))
	}
	require.LessOrEqual(t, len(h.seen), maxSeen)
	require.False(t, h.repeated("x0", now.Add(time.Hour)))
}

func TestSecretIsReadAnew(t *testing.T) {
	h := newHook(t)
	require.NoError(t, os.WriteFile(h.secret, []byte("second"), 0o600))
	status, _ := h.deliver(sign(t, "s3cret", "1", time.Now(), moved))
	require.Equal(t, 401, status)
	status, _ = h.deliver(sign(t, "second", "2", time.Now(), moved))
	require.Equal(t, 202, status)
	require.NoError(t, os.Remove(h.secret))
	status, body := h.deliver(sign(t, "second", "3", time.Now(), moved))
	require.Equal(t, 503, status, "MLflow tries again")
	require.NotContains(t, body, h.secret)
	_, err := New(Options{SecretFile: h.secret})
	require.Error(t, err)
	require.NoError(t, os.WriteFile(h.secret, []byte("\n"), 0o600))
	_, err = New(Options{SecretFile: h.secret})
	require.ErrorContains(t, err, "no secret", "an empty one would let everybody in")
}

// pods are agents that count their nudges.
type pods struct {
	mu    sync.Mutex
	hash  string
	list  []workload.Agent
	asked []time.Time
}

func (p *pods) Agents(hash string) []workload.Agent {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked = append(p.asked, time.Now())
	if hash != p.hash {
		return nil
	}
	return p.list
}

func TestNudgesReachEveryAgent(t *testing.T) {
	require.Equal(t, "8274e780f9", RefHash("models:/llama@champion"), "as the chart writes it")
	got := make(chan string, 10)
	agent := func(status int) workload.Agent {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			got <- r.Method + " " + r.URL.Path
			w.Header().Set("Location", "http://127.0.0.1:1/")
			w.WriteHeader(status)
		}))
		t.Cleanup(srv.Close)
		host, port, err := net.SplitHostPort(srv.Listener.Addr().String())
		require.NoError(t, err)
		n, err := strconv.Atoi(port)
		require.NoError(t, err)
		return workload.Agent{Namespace: "ai", Pod: port, Host: host, Port: n}
	}
	gone := agent(202)
	gone.Host = "127.255.255.254"
	p := &pods{hash: RefHash("models:/llama@champion"), list: []workload.Agent{agent(202), agent(202), agent(302), gone}}
	reg := prometheus.NewRegistry()
	n, err := NewNudger(p, nil, reg)
	require.NoError(t, err)
	n.client.Timeout = time.Minute // no agent hangs here, but the machine may be busy
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { n.Run(ctx); close(done) }()
	n.Nudge("models:/llama@champion")
	for range 3 {
		require.Equal(t, "POST /nudge", <-got)
	}
	results := map[string]float64{}
	require.Eventually(t, func() bool {
		families, err := reg.Gather()
		require.NoError(t, err)
		for _, f := range families {
			for _, m := range f.GetMetric() {
				results[m.GetLabel()[0].GetValue()] = m.GetCounter().GetValue()
			}
		}
		return results["ok"]+results["refused"]+results["unreachable"] == 4
	}, 30*time.Second, time.Millisecond)
	require.Equal(t, map[string]float64{"ok": 2, "refused": 1, "unreachable": 1}, results)
	cancel()
	<-done
}

// However many deliveries come, a reference's agents are told once a second.
func TestNudgesAreCoalesced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pods{}
		n, err := NewNudger(p, nil, prometheus.NewRegistry())
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { n.Run(ctx); close(done) }()
		began := time.Now()
		for range 250 {
			n.Nudge("models:/llama@champion")
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(time.Hour)
		cancel()
		<-done
		var at []time.Duration
		for _, moment := range p.asked {
			at = append(at, moment.Sub(began))
		}
		require.Equal(t, []time.Duration{0, time.Second, 2 * time.Second, 3 * time.Second}, at, "at once, then once a second, and the last is not lost")
		for i := range 3 * maxPending {
			n.nudge(strconv.Itoa(i), time.Now().Add(time.Minute))
		}
		require.LessOrEqual(t, len(n.pending), maxPending)
	})
}
