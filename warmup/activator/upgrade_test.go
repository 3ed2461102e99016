package activator

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// switching is an engine that answers 101 to everything, whoever asked, with
// the given headers, and then echoes a line.
func switching(headers string) *http.Server {
	return engineOf(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer func() { _ = conn.Close() }()
		_, _ = fmt.Fprintf(rw, "HTTP/1.1 101 Switching Protocols\r\n%s\r\n", headers)
		_ = rw.Flush()
		line, _ := rw.ReadString('\n')
		_, _ = rw.WriteString("echo " + line)
		_ = rw.Flush()
	})
}

// raw sends a request as it is written and reads the answer's head and body.
func (tn *town) raw(t *testing.T, request string) reply {
	t.Helper()
	conn, err := tn.dial(t.Context(), "tcp", clientsAt)
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	_, err = io.WriteString(conn, request)
	require.NoError(t, err)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return reply{status: resp.StatusCode, header: resp.Header}
	}
	body, err := io.ReadAll(resp.Body)
	return reply{resp.StatusCode, resp.Header, string(body), err}
}

const (
	realtime = "GET /v1/realtime?model=llama HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"
	plain    = "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 17\r\n\r\n" + `{"model":"llama"}`
)

// An engine that switches to what nobody asked for has not answered, and its
// place is free again.
func TestFaultEngineSwitchesProtocolsUnasked(t *testing.T) {
	cases := map[string]struct{ request, headers string }{
		"AnotherProtocol":     {realtime, "Upgrade: h2c\r\nConnection: Upgrade\r\n"},
		"UnprintableProtocol": {realtime, "Upgrade: \x80\r\nConnection: Upgrade\r\n"},
		"NoProtocol":          {realtime, ""},
		"Unasked":             {plain, "Upgrade: websocket\r\nConnection: Upgrade\r\n"},
		"UnaskedNoProtocol":   {plain, ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			in(t, Options{}, func(t *testing.T, tn *town) {
				tn.serve(t, "10.0.0.1:8000", switching(tc.headers))
				tn.set(t, target(llama, map[string]string{"targetRequests": "1"}, pod("a", "10.0.0.1")))
				for n := range 3 {
					got := tn.raw(t, tc.request)
					require.NoError(t, got.err)
					require.Equal(t, http.StatusBadGateway, got.status, got.body)
					require.Contains(t, got.body, classGateway)
					synctest.Wait()
					require.Zero(t, tn.Snapshot()[0].GetInFlight())
					require.Equal(t, n+1, tn.ended(t, classGateway))
				}
				require.Equal(t, 3, tn.firstDialled(), "what an engine switched is not used again")
			})
		})
	}
}

// A session is held and in flight, but its hour is no time that a request takes.
func TestTunnelsLeaveTheRatesAlone(t *testing.T) {
	cases := map[string]struct {
		engine *http.Server
		status int
		reason string
	}{
		"Switched": {switching("Upgrade: websocket\r\nConnection: Upgrade\r\n"), http.StatusSwitchingProtocols, "a session of an hour"},
		"Refused":  {engineOf(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) }), http.StatusNotFound, "no arrival, so no completion"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			in(t, Options{}, func(t *testing.T, tn *town) {
				tn.serve(t, "10.0.0.1:8000", tc.engine)
				tn.set(t, target(llama, nil))
				conn, err := tn.dial(t.Context(), "tcp", clientsAt)
				require.NoError(t, err)
				defer func() { _ = conn.Close() }()
				_, err = io.WriteString(conn, realtime)
				require.NoError(t, err)
				synctest.Wait()
				require.Equal(t, uint64(1), tn.Snapshot()[0].GetHeld())
				tn.set(t, target(llama, nil, pod("a", "10.0.0.1")))
				resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
				require.Equal(t, tc.status, resp.StatusCode)
				if tc.status == http.StatusSwitchingProtocols {
					time.Sleep(time.Hour)
					require.Equal(t, uint64(1), tn.Snapshot()[0].GetInFlight())
				}
				require.NoError(t, conn.Close())
				synctest.Wait()
				after := tn.Snapshot()[0]
				require.Zero(t, after.GetInFlight())
				require.Zero(t, after.GetArrivalsTotal(), tc.reason)
				require.Zero(t, after.GetCompletedTotal(), tc.reason)
				require.Zero(t, after.GetServiceSecondsTotal(), tc.reason)
			})
		})
	}
}

// Whoever asks to upgrade where nothing can be upgraded is served as if it had
// not asked: an engine that would agree never hears of it.
func TestOnlyRealtimeUpgrades(t *testing.T) {
	const chat = "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 17\r\n%s\r\n" + `{"model":"llama"}`
	const storedOne = "GET /v1/responses/resp_1?model=llama HTTP/1.1\r\nHost: x\r\n%s\r\n"
	const session = "GET /v1/realtime?model=llama HTTP/1.1\r\nHost: x\r\n%s\r\n"
	cases := map[string]struct {
		request, headers string
		status           int
	}{
		"ChatToAnything":          {chat, "Connection: Upgrade\r\nUpgrade: foo\r\n", 200},
		"ChatToWebSocket":         {chat, "Connection: Upgrade\r\nUpgrade: websocket\r\n", 200},
		"ChatToHTTP2":             {chat, "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n", 200},
		"ChatToHTTP2Carelessly":   {chat, "Connection: upgrade\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n", 200},
		"ChatToUnprintable":       {chat, "Connection: Upgrade\r\nUpgrade: \x80\r\n", 200},
		"StoredToWebSocket":       {storedOne, "Connection: Upgrade\r\nUpgrade: websocket\r\n", 200},
		"StoredToHTTP2":           {storedOne, "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n", 200},
		"RealtimeToAnything":      {session, "Connection: Upgrade\r\nUpgrade: foo\r\n", 426},
		"RealtimeToHTTP2":         {session, "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n", 426},
		"RealtimeHalfAsked":       {session, "Upgrade: websocket\r\n", 426},
		"RealtimeToWebSocket":     {session, "Connection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\n", 101},
		"RealtimeWithHTTP2Beside": {session, "Connection: Upgrade\r\nUpgrade: websocket\r\nHTTP2-Settings: AAMAAABk\r\n", 101},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			in(t, Options{}, func(t *testing.T, tn *town) {
				seen := make(chan http.Header, 1)
				agrees := switching("Upgrade: websocket\r\nConnection: Upgrade\r\n").Handler
				tn.serve(t, "10.0.0.1:8000", engineOf(func(w http.ResponseWriter, r *http.Request) {
					seen <- r.Header.Clone()
					if r.Header.Get("Upgrade") != "" {
						agrees.ServeHTTP(w, r)
					}
				}))
				tn.set(t, target(llama, nil, pod("a", "10.0.0.1")))
				got := tn.raw(t, fmt.Sprintf(tc.request, tc.headers))
				require.NoError(t, got.err)
				require.Equal(t, tc.status, got.status, got.body)
				time.Sleep(time.Second)
				synctest.Wait()
				require.Zero(t, tn.Snapshot()[0].GetInFlight())
				if tc.status == http.StatusUpgradeRequired {
					require.Empty(t, seen)
					return
				}
				header := <-seen
				require.Empty(t, header.Values("HTTP2-Settings"))
				if tc.status == http.StatusOK {
					require.Empty(t, header.Values("Upgrade"))
					require.Empty(t, header.Values("Connection"))
				}
			})
		})
	}
}
