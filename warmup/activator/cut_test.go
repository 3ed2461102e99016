package activator

import (
	"context"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Requests that are cut when the time to leave is over are not blamed on their
// clients, and whoever has seen nothing yet is told to come again.
func TestCut(t *testing.T) {
	for name, h2 := range map[string]bool{"HTTP1": false, "HTTP2": true} {
		t.Run(name, func(t *testing.T) {
			in(t, Options{}, func(t *testing.T, tn *town) {
				engine := streamer(1000, time.Second)
				streams := engine.Handler
				engine.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if body, _ := io.ReadAll(r.Body); string(body) == ask {
						<-r.Context().Done() // computes until nobody wants the answer any more
						return
					}
					streams.ServeHTTP(w, r)
				})
				tn.serve(t, "10.0.0.1:8000", engine)
				tn.set(t, target(llama, map[string]string{"targetRequests": "2"}, pod("a", "10.0.0.1")))
				if h2 {
					tn.speakHTTP2(t)
				}
				silent, stream := tn.asks(t.Context(), ask), tn.asks(t.Context(), askStream)
				time.Sleep(10 * time.Second)
				held := tn.asks(t.Context(), ask)
				ctx, gone := context.WithCancel(t.Context())
				left := tn.asks(ctx, ask)
				synctest.Wait()
				gone()
				<-left
				synctest.Wait()
				tn.Cut()
				for _, c := range []<-chan reply{silent, held} {
					got := <-c
					require.NoError(t, got.err)
					require.Equal(t, http.StatusServiceUnavailable, got.status)
					require.Contains(t, got.body, `"shutdown"`)
					require.NotEmpty(t, got.header.Get("Retry-After"))
				}
				got := <-stream
				require.Error(t, got.err, "an answer that has begun breaks off")
				require.NotContains(t, got.body, "[DONE]")
				synctest.Wait()
				require.Equal(t, 3, tn.ended(t, classCut))
				require.Equal(t, 1, tn.ended(t, classGone), "who left before that has left")
				require.Zero(t, tn.ended(t, classBroken))
				require.Zero(t, tn.Snapshot()[0].GetInFlight())
				require.Zero(t, tn.Snapshot()[0].GetHeld())
			})
		})
	}
}

// A WebSocket that is cut is no success.
func TestCutWebSocket(t *testing.T) {
	in(t, Options{}, func(t *testing.T, tn *town) {
		tn.serve(t, "10.0.0.1:8000", switching("Upgrade: websocket\r\nConnection: Upgrade\r\n"))
		tn.set(t, target(llama, nil, pod("a", "10.0.0.1")))
		conn, err := tn.dial(t.Context(), "tcp", clientsAt)
		require.NoError(t, err)
		defer func() { _ = conn.Close() }()
		_, err = io.WriteString(conn, realtime)
		require.NoError(t, err)
		go func() { _, _ = io.Copy(io.Discard, conn) }()
		synctest.Wait()
		require.Equal(t, uint64(1), tn.Snapshot()[0].GetInFlight())
		tn.Cut()
		synctest.Wait()
		require.Zero(t, tn.Snapshot()[0].GetInFlight())
		require.Equal(t, 1, tn.ended(t, classCut))
	})
}

// A replica that leaves has its clients connect anew, and loses none of their
// requests by it, nor an answer that runs.
func TestLeaveLosesNothing(t *testing.T) {
	for name, h2 := range map[string]bool{"HTTP1": false, "HTTP2": true} {
		t.Run(name, func(t *testing.T) {
			in(t, Options{}, func(t *testing.T, tn *town) {
				tn.serve(t, "10.0.0.1:8000", streamer(20, 500*time.Millisecond))
				tn.set(t, target(llama, map[string]string{"targetRequests": "100"}, pod("a", "10.0.0.1")))
				if h2 {
					tn.speakHTTP2(t)
				}
				clients := func() (all []<-chan reply) {
					for range 20 {
						all = append(all, tn.asks(t.Context(), askStream))
					}
					return all
				}
				running := clients()
				time.Sleep(3500 * time.Millisecond)
				dials := tn.dialled(clientsAt)
				tn.Leave()
				for range 3 {
					running = append(running, clients()...)
					time.Sleep(2 * time.Second)
				}
				for _, c := range running {
					got := <-c
					require.NoError(t, got.err)
					require.Equal(t, http.StatusOK, got.status)
					require.Contains(t, got.body, "[DONE]")
				}
				require.Greater(t, tn.dialled(clientsAt), dials, "they have connected anew")
			})
		})
	}
}
