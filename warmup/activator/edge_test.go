package activator

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/internal/tlsconf"
	"github.com/pilotlight-dev/pilotlight/internal/tlsconf/tlstest"
	"github.com/pilotlight-dev/pilotlight/internal/workload"
)

// call sends a request with headers (name, value, ...) and no body.
func (tn *town) call(t *testing.T, method, path string, headers ...string) reply {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://x"+path, http.NoBody)
	require.NoError(t, err)
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := tn.client.Do(req)
	require.NoError(t, err)
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	return reply{resp.StatusCode, resp.Header, string(body), nil}
}

// What does not ask for an answer of a model wakes none, whatever it is.
func TestWhatDoesNotWake(t *testing.T) {
	cases := map[string]struct {
		method, path string
		headers      []string
		status       int
		allow        string
	}{
		"List":            {http.MethodGet, "/v1/models", nil, 200, ""},
		"HeadOfList":      {http.MethodHead, "/v1/models", nil, 200, ""},
		"Model":           {http.MethodGet, "/v1/models/llama", nil, 200, ""},
		"NoModel":         {http.MethodGet, "/v1/models/gpt-9", nil, 404, ""},
		"Health":          {http.MethodGet, "/health", nil, 200, ""},
		"HeadOfHealth":    {http.MethodHead, "/health", nil, 200, ""},
		"Ping":            {http.MethodGet, "/ping", nil, 200, ""},
		"PrefixedHealth":  {http.MethodGet, "/team/llama/health", nil, 200, ""},
		"Preflight":       {http.MethodOptions, "/v1/chat/completions", []string{"Origin", "https://a.example", "Access-Control-Request-Method", "POST"}, 204, "POST, OPTIONS"},
		"Options":         {http.MethodOptions, "/v1/models", nil, 204, "GET, HEAD, OPTIONS"},
		"OptionsNowhere":  {http.MethodOptions, "/metrics", nil, 404, ""},
		"GetOfInference":  {http.MethodGet, "/v1/chat/completions", nil, 405, "POST, OPTIONS"},
		"HeadOfInference": {http.MethodHead, "/v1/chat/completions", nil, 405, "POST, OPTIONS"},
		"PostOfList":      {http.MethodPost, "/v1/models", nil, 405, "GET, HEAD, OPTIONS"},
		"NoUpgrade":       {http.MethodGet, "/v1/realtime?model=llama", nil, 426, "GET, OPTIONS"},
		"StoredAsleep":    {http.MethodGet, "/v1/responses/resp_1?model=llama", nil, 503, ""},
		"StoredDots":      {http.MethodGet, "/v1/responses/..?model=llama", nil, 404, ""},
		"Metrics":         {http.MethodGet, "/metrics", nil, 404, ""},
		"Sleep":           {http.MethodPost, "/sleep", nil, 404, ""},
		"LoRA":            {http.MethodPost, "/v1/unload_lora_adapter", nil, 404, ""},
		"Invocations":     {http.MethodPost, "/invocations", nil, 404, ""},
		"RPC":             {http.MethodPost, "/collective_rpc", nil, 404, ""},
		"Encoded":         {http.MethodPost, "/v1%2Fload_lora_adapter", nil, 404, ""},
		"Docs":            {http.MethodGet, "/docs", nil, 404, ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			in(t, Options{Origins: []string{"*"}}, func(t *testing.T, tn *town) {
				tn.set(t, target(llama, map[string]string{"pathPrefix": "/team/llama"}))
				got := tn.call(t, tc.method, tc.path, tc.headers...)
				require.Equal(t, tc.status, got.status, got.body)
				require.Equal(t, tc.allow, got.header.Get("Allow"))
				if tc.method == http.MethodHead {
					require.Empty(t, got.body)
				}
				require.Zero(t, tn.Snapshot()[0].GetArrivalsTotal())
				require.Zero(t, tn.Snapshot()[0].GetHeld())
			})
		})
	}
}

func TestPreflight(t *testing.T) {
	ask := []string{"Origin", "https://a.example", "Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "authorization, x-stainless-os"}
	cases := map[string]struct {
		origins []string
		want    string
	}{
		"All": {[]string{"*"}, "*"}, "This": {[]string{"https://b.example", "https://a.example"}, "https://a.example"}, "Other": {[]string{"https://b.example"}, ""}, "None": {nil, ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			in(t, Options{Origins: tc.origins}, func(t *testing.T, tn *town) {
				tn.set(t, target(llama, nil))
				got := tn.call(t, http.MethodOptions, "/v1/chat/completions", ask...)
				require.Equal(t, http.StatusNoContent, got.status)
				require.Equal(t, tc.want, got.header.Get("Access-Control-Allow-Origin"))
				if tc.want == "" {
					require.Empty(t, got.header.Get("Access-Control-Allow-Methods"))
					return
				}
				require.Equal(t, "POST, OPTIONS", got.header.Get("Access-Control-Allow-Methods"))
				require.Equal(t, "authorization, x-stainless-os", got.header.Get("Access-Control-Allow-Headers"))
				require.Equal(t, tc.want, tn.call(t, http.MethodPost, "/nowhere", "Origin", "https://a.example").header.Get("Access-Control-Allow-Origin"), "a page may read why")
			})
		})
	}
}

type keyring string

func (k keyring) Allowed(key string) bool { return key == string(k) }

// A stranger's request is refused before anything of it is read or held, and
// the key reaches the engine and no log.
func TestKeys(t *testing.T) {
	in(t, Options{Keys: keyring("sk-secret")}, func(t *testing.T, tn *town) {
		seen := make(chan string, 10)
		tn.serve(t, "10.0.0.1:8000", engineOf(func(_ http.ResponseWriter, r *http.Request) { seen <- r.Header.Get("Authorization") }))
		tn.set(t, target(llama, nil, pod("a", "10.0.0.1")))
		send := func(headers ...string) int {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://x/v1/chat/completions?api=sk-secret", strings.NewReader(ask))
			require.NoError(t, err)
			for i := 0; i < len(headers); i += 2 {
				req.Header.Set(headers[i], headers[i+1])
			}
			resp, err := tn.client.Do(req)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			return resp.StatusCode
		}
		require.Equal(t, 401, send())
		require.Equal(t, 401, send("Authorization", "Bearer sk-other"))
		require.Equal(t, 401, send("Authorization", "Basic sk-secret"))
		require.Equal(t, 401, send("X-Api-Key", "sk-other"))
		require.Zero(t, tn.Snapshot()[0].GetArrivalsTotal())
		require.Equal(t, 200, send("Authorization", "bearer sk-secret"))
		require.Equal(t, "bearer sk-secret", <-seen, "passed on as it came")
		require.Equal(t, 200, send("X-Api-Key", "sk-secret"))
		require.Equal(t, 401, tn.call(t, http.MethodGet, "/v1/models").status, "names of models are not for strangers")
		require.Equal(t, 200, tn.call(t, http.MethodGet, "/health").status)
		require.Equal(t, 204, tn.call(t, http.MethodOptions, "/v1/models").status, "a browser asks without a key")
		synctest.Wait()
		require.NotContains(t, tn.log.String(), "sk-")
		require.Equal(t, 5, tn.ended(t, "invalid_api_key"))
	})
}

// A WebSocket wakes a model, waits, and then carries both directions.
func TestRealtime(t *testing.T) {
	in(t, Options{}, func(t *testing.T, tn *town) {
		tn.serve(t, "10.0.0.1:8000", engineOf(func(w http.ResponseWriter, r *http.Request) {
			conn, rw, err := http.NewResponseController(w).Hijack()
			if err != nil {
				return
			}
			defer func() { _ = conn.Close() }()
			_, _ = fmt.Fprintf(rw, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nX-Path: %s\r\n\r\n", r.URL)
			_ = rw.Flush()
			line, _ := rw.ReadString('\n')
			_, _ = rw.WriteString("echo " + line)
			_ = rw.Flush()
		}))
		tn.set(t, target(llama, nil))
		conn, err := tn.dial(t.Context(), "tcp", clientsAt)
		require.NoError(t, err)
		defer func() { _ = conn.Close() }()
		_, err = io.WriteString(conn, "GET /v1/realtime?model=llama HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
		require.NoError(t, err)
		synctest.Wait()
		require.Equal(t, uint64(1), tn.Snapshot()[0].GetHeld(), "it wakes")
		tn.set(t, target(llama, nil, pod("a", "10.0.0.1")))
		from := bufio.NewReader(conn)
		resp, err := http.ReadResponse(from, nil)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, http.StatusSwitchingProtocols, resp.StatusCode)
		require.Equal(t, "/v1/realtime?model=llama", resp.Header.Get("X-Path"))
		time.Sleep(time.Hour) // as long as it likes
		require.Equal(t, uint64(1), tn.Snapshot()[0].GetInFlight())
		_, err = io.WriteString(conn, "hello\n")
		require.NoError(t, err)
		line, err := from.ReadString('\n')
		require.NoError(t, err)
		require.Equal(t, "echo hello\n", line)
		_, err = from.ReadByte()
		require.Error(t, err)
		synctest.Wait()
		require.Zero(t, tn.Snapshot()[0].GetInFlight(), "the place is given back")
		require.Equal(t, 1, tn.ended(t, classOK))
	})
}

func TestPriority(t *testing.T) {
	in(t, Options{PriorityHeader: "X-Priority"}, func(t *testing.T, tn *town) {
		tn.set(t, target(llama, map[string]string{"targetRequests": "1"}))
		order := make(chan string, 10)
		tn.serve(t, "10.0.0.1:8000", engineOf(func(_ http.ResponseWriter, r *http.Request) { order <- r.Header.Get("X-Priority") }))
		send := func(class string) <-chan int {
			c := make(chan int, 1)
			go func() {
				req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://x/v1/chat/completions", strings.NewReader(ask))
				req.Header.Set("X-Priority", class)
				resp, err := tn.client.Do(req)
				if err != nil {
					c <- 0
					return
				}
				_ = resp.Body.Close()
				c <- resp.StatusCode
			}()
			synctest.Wait()
			return c
		}
		var all []<-chan int
		for _, class := range []string{"low", "", "7", "normal", "high"} {
			all = append(all, send(class))
		}
		require.Equal(t, http.StatusBadRequest, <-send("urgent"))
		tn.set(t, target(llama, map[string]string{"targetRequests": "1"}, pod("a", "10.0.0.1")))
		for _, c := range all {
			require.Equal(t, http.StatusOK, <-c)
		}
		close(order)
		var got []string
		for class := range order {
			got = append(got, class)
		}
		require.Equal(t, []string{"7", "high", "", "normal", "low"}, got)
	})
}

// A conversation stays on its pod while that is not too busy, also after
// another pod has come.
func TestAffinity(t *testing.T) {
	in(t, Options{Affinity: Affinity{On: true, Header: "X-Session"}}, func(t *testing.T, tn *town) {
		var pods []workload.Pod
		for i := range 4 {
			addr := fmt.Sprintf("10.0.0.%d", i+1)
			tn.serve(t, addr+":8000", engineOf(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, addr) }))
			pods = append(pods, pod(fmt.Sprint("pod-", i), addr))
		}
		tn.set(t, target(llama, map[string]string{"targetRequests": "8"}, pods...))
		homes := map[string]bool{}
		for session := range 20 {
			text := fmt.Sprintf(`{"model":"llama","messages":[{"role":"user","content":"%d"}`, session)
			home := tn.ask(t.Context(), text+"]}").body
			homes[home] = true
			for turn := range 3 {
				text += fmt.Sprintf(`,{"role":"assistant","content":"%d"},{"role":"user","content":"more"}`, turn)
				require.Equal(t, home, tn.ask(t.Context(), text+"]}").body)
			}
		}
		require.Greater(t, len(homes), 2, "different conversations go to different pods")
	})
}

// A proxy that has just started does not know which models there are: it waits
// for the list instead of saying that one does not exist.
func TestRequestsBeforeTheFirstList(t *testing.T) {
	in(t, Options{}, func(t *testing.T, tn *town) {
		require.False(t, tn.Listed())
		answer := tn.asks(t.Context(), ask)
		synctest.Wait()
		tn.serve(t, "10.0.0.1:8000", echoes())
		tn.set(t, target(llama, nil, pod("a", "10.0.0.1")))
		require.Equal(t, http.StatusOK, (<-answer).status)
		require.True(t, tn.Listed())
	})
	in(t, Options{}, func(t *testing.T, tn *town) {
		got := tn.ask(t.Context(), ask)
		require.Equal(t, http.StatusServiceUnavailable, got.status)
		require.NotEmpty(t, got.header.Get("Retry-After"))
	})
}

// While something is held the Source is looked at often: what it shows adds to
// every wait.
func TestHeldRequestsAreReleasedSoon(t *testing.T) {
	in(t, Options{}, func(t *testing.T, tn *town) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		tn.serve(t, "10.0.0.1:8000", echoes())
		tn.set(t, target(llama, nil))
		go tn.Run(ctx)
		answer := tn.asks(t.Context(), ask)
		time.Sleep(777 * time.Millisecond)
		tn.world.mu.Lock()
		tn.all = []workload.Workload{target(llama, nil, pod("a", "10.0.0.1"))}
		tn.world.mu.Unlock()
		began := time.Now()
		require.Equal(t, http.StatusOK, (<-answer).status)
		require.LessOrEqual(t, time.Since(began), 30*time.Millisecond)
	})
}

// TLS on both sides, and HTTP/2 from the client.
func TestTLSInAndOut(t *testing.T) {
	ca, err := tlstest.New("test")
	require.NoError(t, err)
	dir := t.TempDir()
	engineFiles, err := ca.Issue(dir, "engine")
	require.NoError(t, err)
	ours, err := ca.Issue(dir, "activator")
	require.NoError(t, err)

	upstream := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) }))
	upstream.TLS, err = tlsconf.Server(tlsconf.Files{Cert: engineFiles.Cert, Key: engineFiles.Key})
	require.NoError(t, err)
	upstream.StartTLS()
	t.Cleanup(upstream.Close)

	w := &world{}
	trust := tlsconf.Files{CA: engineFiles.CA}
	a, err := New(Options{Source: w, EngineTLS: func() *tls.Config {
		c, err := tlsconf.Client(trust)
		require.NoError(t, err)
		return c
	}})
	require.NoError(t, err)
	srv := httptest.NewUnstartedServer(nil)
	srv.Config = a.Server(t.Context())
	srv.TLS, err = tlsconf.Server(tlsconf.Files{Cert: ours.Cert, Key: ours.Key})
	require.NoError(t, err)
	srv.EnableHTTP2 = true
	srv.StartTLS()
	t.Cleanup(srv.Close)

	roots := x509.NewCertPool()
	pem, err := os.ReadFile(ours.CA)
	require.NoError(t, err)
	require.True(t, roots.AppendCertsFromPEM(pem))
	client := &http.Client{Transport: &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}}}
	t.Cleanup(client.CloseIdleConnections)
	send := func() (int, int, string) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL+"/v1/chat/completions", strings.NewReader(ask))
		require.NoError(t, err)
		resp, err := client.Do(req)
		require.NoError(t, err)
		defer func() { _ = resp.Body.Close() }()
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return resp.StatusCode, resp.ProtoMajor, string(body)
	}
	https := map[string]string{"servingScheme": "https"}
	w.all = []workload.Workload{target(llama, https, podAt(t, "a", upstream.Listener.Addr().String()))}
	require.NoError(t, a.refresh(t.Context()))
	status, major, body := send()
	require.Equal(t, http.StatusOK, status, body)
	require.Equal(t, 2, major)
	require.Equal(t, ask, body)

	trust = tlsconf.Files{} // the system's roots do not know it
	w.all = []workload.Workload{target(llama, https, podAt(t, "b", upstream.Listener.Addr().String()))}
	require.NoError(t, a.refresh(t.Context()))
	status, _, body = send()
	require.Equal(t, http.StatusBadGateway, status, "an engine that cannot be trusted gets nothing")
	require.NotContains(t, body, "127.0.0.1")
	trust = tlsconf.Files{CA: engineFiles.CA} // as when a CA is replaced under a pod that stays
	status, _, body = send()
	require.Equal(t, http.StatusOK, status, body)
}

func TestDebugPage(t *testing.T) {
	in(t, Options{}, func(t *testing.T, tn *town) {
		tn.set(t, target(llama, map[string]string{"modelAliases": "chat"}))
		answer := tn.asks(t.Context(), ask)
		time.Sleep(time.Minute)
		w := httptest.NewRecorder()
		tn.ServeTargets(w, nil)
		var page []Target
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &page))
		require.Len(t, page, 1)
		require.Equal(t, []string{"llama", "chat"}, page[0].Models)
		require.Equal(t, 1, page[0].Held)
		require.InDelta(t, 60, page[0].OldestSeconds, 1)
		require.Equal(t, "unknown", page[0].State)
		tn.serve(t, "10.0.0.1:8000", echoes())
		tn.set(t, target(llama, nil, pod("a", "10.0.0.1")))
		<-answer
		require.Equal(t, "10.0.0.1:8000", tn.Targets()[0].Pods[0].Address)
	})
}

// A target that the cluster's view lacks for a moment keeps its held requests.
func TestATargetMayBeMissingForAMoment(t *testing.T) {
	in(t, Options{}, func(t *testing.T, tn *town) {
		tn.serve(t, "10.0.0.1:8000", echoes())
		tn.set(t, target(llama, nil))
		answer := tn.asks(t.Context(), ask)
		synctest.Wait()
		tn.set(t)
		time.Sleep(10 * time.Second)
		tn.set(t)
		require.Equal(t, int64(1), tn.held.count.Load())
		tn.set(t, target(llama, nil, pod("a", "10.0.0.1")))
		require.Equal(t, http.StatusOK, (<-answer).status)
	})
}

// A compressed body is not taken for a malformed one, and wakes nobody.
func TestCompressedBodies(t *testing.T) {
	cases := map[string]struct {
		coding []string
		status int
	}{
		"Gzip":         {[]string{"gzip"}, 415},
		"InTurn":       {[]string{"identity, br"}, 415},
		"OnTwoLines":   {[]string{"identity", "zstd"}, 415},
		"Identity":     {[]string{"Identity"}, 503},
		"EmptyElement": {[]string{","}, 503},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			in(t, Options{MaxHold: time.Second}, func(t *testing.T, tn *town) {
				tn.set(t, target(llama, nil))
				req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://x/v1/chat/completions", strings.NewReader(`{"model":"llama"}`))
				require.NoError(t, err)
				req.Header["Content-Encoding"] = tc.coding
				resp, err := tn.client.Do(req)
				require.NoError(t, err)
				body, err := io.ReadAll(resp.Body)
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
				require.Equal(t, tc.status, resp.StatusCode, string(body))
				if tc.status == 415 {
					require.Equal(t, "identity", resp.Header.Get("Accept-Encoding"))
					require.Contains(t, string(body), "Content-Encoding")
					require.Equal(t, 1, tn.ended(t, "unsupported_encoding"))
				}
			})
		})
	}
}
