package activator

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/internal/demandpb"
	"github.com/pilotlight-dev/pilotlight/internal/workload"
)

// in runs a test of the town in a bubble of fake time.
func in(t *testing.T, opts Options, f func(t *testing.T, tn *town)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(func() { time.Sleep(time.Hour) }) // closed connections linger a while
		f(t, newTown(t, opts))
	})
}

// echoes answers with the request's body.
func echoes() *http.Server {
	return engineOf(func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) })
}

func TestFaultClientGoneWhileHeld(t *testing.T) {
	in(t, Options{}, func(t *testing.T, tn *town) {
		tn.set(t, target(llama, nil))
		ctx, cancel := context.WithCancel(t.Context())
		answer := tn.asks(ctx, ask)
		synctest.Wait()
		require.Equal(t, uint64(1), tn.Snapshot()[0].GetHeld())
		cancel()
		require.Error(t, (<-answer).err)
		synctest.Wait()
		require.Zero(t, tn.Snapshot()[0].GetHeld(), "the place is free at once")
		require.Zero(t, tn.memory.used.Load())
		require.Equal(t, 1, tn.ended(t, classGone))
		require.Contains(t, tn.log.String(), "status=499 class=client_gone")
		require.Equal(t, uint64(1), tn.Snapshot()[0].GetArrivalsTotal(), "it was demand, and the start goes on")
	})
}

// The client leaves in the moment in which a place comes free: whichever is
// first, the place is not lost.
func TestFaultClientGoneJustBeforeRelease(t *testing.T) {
	in(t, Options{}, func(t *testing.T, tn *town) {
		tn.serve(t, "10.0.0.1:8000", echoes())
		for i := range 50 {
			tn.set(t, target(llama, nil))
			ctx, cancel := context.WithCancel(t.Context())
			answer := tn.asks(ctx, ask)
			synctest.Wait()
			if i%2 == 0 {
				go cancel()
			}
			tn.set(t, target(llama, nil, pod("a", "10.0.0.1")))
			cancel()
			<-answer
			synctest.Wait()
			require.Zero(t, tn.Snapshot()[0].GetInFlight())
			require.Zero(t, tn.Snapshot()[0].GetHeld())
		}
		require.Zero(t, tn.ended(t, "bad_gateway"), "never the engine's fault")
		require.Equal(t, 50, tn.ended(t, classOK)+tn.ended(t, classGone))
	})
}

func TestFaultClientGoneMidStream(t *testing.T) {
	in(t, Options{}, func(t *testing.T, tn *town) {
		tn.serve(t, "10.0.0.1:8000", streamer(1000, time.Second))
		tn.set(t, target(llama, nil, pod("a", "10.0.0.1")))
		ctx, cancel := context.WithCancel(t.Context())
		resp, err := tn.request(ctx, askStream)
		require.NoError(t, err)
		_, err = bufio.NewReader(resp.Body).ReadString('\n')
		require.NoError(t, err)
		cancel()
		require.NoError(t, resp.Body.Close())
		synctest.Wait()
		require.Zero(t, tn.Snapshot()[0].GetInFlight(), "the engine is let go at once")
		require.Equal(t, 1, tn.ended(t, classGone))
		require.Zero(t, tn.ended(t, classBroken))
	})
}

func TestFaultReadyPodRefusesThreeDials(t *testing.T) {
	in(t, Options{}, func(t *testing.T, tn *town) {
		tn.set(t, target(llama, nil, pod("a", "10.0.0.1")))
		big := `{"model":"llama","x":"` + strings.Repeat("y", 1<<20) + `"}`
		answer := tn.asks(t.Context(), big)
		for tn.firstDialled() < 3 {
			time.Sleep(10 * time.Millisecond)
			synctest.Wait()
		}
		require.Equal(t, uint64(1), tn.Snapshot()[0].GetHeld(), "it stands in line while the pod rests")
		tn.serve(t, "10.0.0.1:8000", echoes())
		got := <-answer
		require.NoError(t, got.err)
		require.Equal(t, http.StatusOK, got.status)
		require.Equal(t, big, got.body, "the body arrives whole")
		synctest.Wait()
		require.Equal(t, uint64(1), tn.Snapshot()[0].GetArrivalsTotal())
		require.Equal(t, uint64(1), tn.Snapshot()[0].GetCompletedTotal(), "refused dials served nobody")
		require.Zero(t, tn.memory.used.Load())
	})
}

func TestFaultPodThatNeverListensEndsWithTheHoldBudget(t *testing.T) {
	in(t, Options{MaxHold: 30 * time.Second}, func(t *testing.T, tn *town) {
		tn.set(t, target(llama, nil, pod("a", "10.0.0.1")))
		began := time.Now()
		got := tn.ask(t.Context(), ask)
		require.Equal(t, http.StatusServiceUnavailable, got.status)
		require.Contains(t, got.body, "model_not_ready")
		require.InDelta(t, 30, time.Since(began).Seconds(), 6)
		require.Less(t, tn.firstDialled(), 20, "a pod that refuses is asked less and less often")
	})
}

func TestFaultNotReadyOrTerminatingPodsGetNothing(t *testing.T) {
	in(t, Options{MaxHold: time.Second}, func(t *testing.T, tn *town) {
		tn.serve(t, "10.0.0.1:8000", echoes())
		leaving, unready := pod("a", "10.0.0.1"), pod("b", "10.0.0.1")
		leaving.Terminating, unready.ReadyAt = true, time.Time{}
		tn.set(t, target(llama, nil, leaving, unready))
		require.Equal(t, http.StatusServiceUnavailable, tn.ask(t.Context(), ask).status)
		require.Zero(t, tn.firstDialled())
	})
}

// The model has slept and woken with another address, and its old one belongs
// to another app by now.
func TestFaultOldAddressIsAnotherApp(t *testing.T) {
	in(t, Options{}, func(t *testing.T, tn *town) {
		stop := tn.serve(t, "10.0.0.1:8000", echoes())
		tn.set(t, target(llama, nil, pod("a", "10.0.0.1")))
		require.Equal(t, http.StatusOK, tn.ask(t.Context(), ask).status)
		tn.set(t, target(llama, nil))
		stop()

		tn.serve(t, "10.0.0.1:8000", engineOf(func(http.ResponseWriter, *http.Request) { t.Error("a stranger got the request") }))
		tn.serve(t, "10.0.0.2:8000", echoes())
		answer := tn.asks(t.Context(), ask)
		synctest.Wait()
		tn.set(t, target(llama, nil, pod("b", "10.0.0.2")))
		require.Equal(t, ask, (<-answer).body)
		require.Equal(t, 1, tn.firstDialled(), "never again after the pod has gone")
	})
}

// The same, with the new pod at the old one's address: no connection of the
// old one is used. And a pod that leaves while it is being dialled gets
// nothing.
func TestFaultAddressIsReused(t *testing.T) {
	in(t, Options{}, func(t *testing.T, tn *town) {
		tn.serve(t, "10.0.0.1:8000", echoes())
		tn.set(t, target(llama, nil, pod("a", "10.0.0.1")))
		require.Equal(t, http.StatusOK, tn.ask(t.Context(), ask).status)
		time.Sleep(time.Second)
		tn.set(t, target(llama, nil, pod("a", "10.0.0.1"))) // created a second later: another pod of the same name
		require.Equal(t, http.StatusOK, tn.ask(t.Context(), ask).status)
		require.Equal(t, 2, tn.firstDialled())

		slow := tn.listen("10.0.0.3:8000") // accepts when it likes
		tn.set(t, target(llama, nil, pod("c", "10.0.0.3")))
		answer := tn.asks(t.Context(), ask)
		synctest.Wait()
		tn.set(t, target(llama, nil))
		conn, err := slow.Accept()
		require.NoError(t, err)
		n, _ := conn.Read(make([]byte, 1))
		require.Zero(t, n, "the connection is closed unused")
		tn.set(t, target(llama, nil, pod("a", "10.0.0.1")))
		require.Equal(t, http.StatusOK, (<-answer).status)
	})
}

func TestFaultTwoHundredMegabytes(t *testing.T) {
	in(t, Options{}, func(t *testing.T, tn *town) {
		tn.set(t, target(llama, nil))
		conn, err := tn.dial(t.Context(), "tcp", clientsAt)
		require.NoError(t, err)
		defer func() { _ = conn.Close() }()
		go func() {
			_, _ = io.WriteString(conn, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 200000000\r\n\r\n")
		}()
		status, err := bufio.NewReader(conn).ReadString('\n')
		require.NoError(t, err)
		require.Contains(t, status, "413", "refused by its length, before a byte of it")
		require.Zero(t, tn.memory.used.Load())
	})
}

func TestFaultChunkedTwoHundredMegabytes(t *testing.T) {
	in(t, Options{MaxBody: 1 << 20}, func(t *testing.T, tn *town) {
		tn.set(t, target(llama, nil))
		endless := io.LimitReader(neverEnding('x'), 200<<20)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://x/v1/chat/completions", io.NopCloser(endless))
		require.NoError(t, err)
		resp, err := tn.client.Do(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, http.StatusRequestEntityTooLarge, resp.StatusCode)
		synctest.Wait()
		require.Zero(t, tn.memory.used.Load())
	})
}

type neverEnding byte

func (b neverEnding) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(b)
	}
	return len(p), nil
}

func TestFaultAByteASecond(t *testing.T) {
	in(t, Options{}, func(t *testing.T, tn *town) {
		tn.set(t, target(llama, nil))
		conn, err := tn.dial(t.Context(), "tcp", clientsAt)
		require.NoError(t, err)
		defer func() { _ = conn.Close() }()
		began := time.Now()
		go func() {
			_, err := io.WriteString(conn, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n")
			for ; err == nil; time.Sleep(time.Second) {
				_, err = conn.Write([]byte(" "))
			}
		}()
		status, err := bufio.NewReader(conn).ReadString('\n')
		require.NoError(t, err)
		require.Contains(t, status, "408")
		require.Less(t, time.Since(began), 20*time.Second, "too slow on the whole, although it never pauses")
		require.Zero(t, tn.memory.used.Load())
	})
}

// A gateway that cuts what is silent for a minute, in front of a start of
// five. With comments the client never notices; without, it is the gateway
// that has left, not the engine that has failed.
func TestFaultGatewayIdleTimeout(t *testing.T) {
	for name, comments := range map[string]time.Duration{"Comments": 20 * time.Second, "None": 0} {
		t.Run(name, func(t *testing.T) {
			in(t, Options{Comments: comments}, func(t *testing.T, tn *town) {
				tn.serve(t, "10.0.0.1:8000", streamer(3, time.Second))
				tn.set(t, target(llama, nil))
				conn, err := tn.dial(t.Context(), "tcp", clientsAt)
				require.NoError(t, err)
				go func() {
					time.Sleep(5*time.Minute - time.Second)
					tn.set(t, target(llama, nil, pod("a", "10.0.0.1")))
				}()
				_, err = fmt.Fprintf(conn, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", len(askStream), askStream)
				require.NoError(t, err)
				var got strings.Builder
				for buf := make([]byte, 4096); err == nil; {
					require.NoError(t, conn.SetReadDeadline(time.Now().Add(time.Minute)))
					var n int
					n, err = conn.Read(buf)
					got.Write(buf[:n])
				}
				require.NoError(t, conn.Close())
				synctest.Wait()
				if comments == 0 {
					require.Empty(t, got.String())
					require.Equal(t, 1, tn.ended(t, classGone))
					require.Contains(t, tn.log.String(), "status=499")
					time.Sleep(5 * time.Minute)
					return
				}
				require.ErrorIs(t, err, io.EOF)
				require.Equal(t, 1, strings.Count(got.String(), "HTTP/1.1 200"))
				require.Equal(t, 14, strings.Count(got.String(), ": waiting for a replica"), "each 20 s of 5 min")
				require.Equal(t, 3, strings.Count(got.String(), `"content":"x"`))
				require.Equal(t, 1, strings.Count(got.String(), "[DONE]"))
			})
		})
	}
}

// Ten minutes of tokens, one of them of silence, through server, proxy and
// transport, over both versions of HTTP.
func TestFaultStreamOfTenMinutes(t *testing.T) {
	for name, h2 := range map[string]bool{"HTTP1": false, "HTTP2": true} {
		t.Run(name, func(t *testing.T) {
			in(t, Options{WriteTimeout: 30 * time.Second}, func(t *testing.T, tn *town) {
				tn.serve(t, "10.0.0.1:8000", engineOf(func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Content-Type", "text/event-stream")
					for i := range 600 {
						_, _ = io.WriteString(w, token(i))
						_ = http.NewResponseController(w).Flush()
						time.Sleep(time.Second)
						if i == 300 {
							time.Sleep(5 * time.Minute)
						}
					}
					time.Sleep(2 * time.Minute)
					_, _ = io.WriteString(w, "data: [DONE]\n\n")
				}))
				tn.set(t, target(llama, nil, pod("a", "10.0.0.1")))
				if h2 {
					tn.speakHTTP2(t)
				}
				began := time.Now()
				resp, err := tn.request(t.Context(), askStream)
				require.NoError(t, err)
				defer func() { _ = resp.Body.Close() }()
				text, err := io.ReadAll(resp.Body)
				require.NoError(t, err)
				require.Equal(t, h2, resp.ProtoMajor == 2)
				require.Equal(t, 600, strings.Count(string(text), "content"))
				require.True(t, strings.HasSuffix(string(text), "[DONE]\n\n"))
				require.GreaterOrEqual(t, time.Since(began), 10*time.Minute)
				synctest.Wait()
				require.Equal(t, 1, tn.ended(t, classOK))
			})
		})
	}
}

// speakHTTP2 makes the client use HTTP/2 without TLS.
func (tn *town) speakHTTP2(t *testing.T) {
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: &protocols, DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return tn.dial(ctx, network, clientsAt)
	}}
	tn.client = &http.Client{Transport: transport}
	t.Cleanup(transport.CloseIdleConnections)
}

func TestFaultEngineDiesMidStream(t *testing.T) {
	for name, h2 := range map[string]bool{"HTTP1": false, "HTTP2": true} {
		t.Run(name, func(t *testing.T) {
			in(t, Options{}, func(t *testing.T, tn *town) {
				tn.serve(t, "10.0.0.1:8000", engineOf(func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Content-Type", "text/event-stream")
					_, _ = io.WriteString(w, token(0))
					_ = http.NewResponseController(w).Flush()
					time.Sleep(time.Second)
					panic(http.ErrAbortHandler)
				}))
				tn.set(t, target(llama, nil, pod("a", "10.0.0.1")))
				if h2 {
					tn.speakHTTP2(t)
				}
				got := tn.ask(t.Context(), askStream)
				require.Error(t, got.err, "the connection is cut")
				require.Equal(t, token(0), got.body)
				require.NotContains(t, got.body, "[DONE]", "nothing is invented")
				synctest.Wait()
				require.Equal(t, 1, tn.ended(t, classBroken))
				require.Zero(t, tn.ended(t, classGone))
				require.Zero(t, tn.Snapshot()[0].GetInFlight())
			})
		})
	}
}

func TestFaultClientStopsReading(t *testing.T) {
	for name, h2 := range map[string]bool{"HTTP1": false, "HTTP2": true} {
		t.Run(name, func(t *testing.T) {
			in(t, Options{WriteTimeout: 30 * time.Second}, func(t *testing.T, tn *town) {
				let := make(chan struct{})
				tn.serve(t, "10.0.0.1:8000", engineOf(func(w http.ResponseWriter, r *http.Request) {
					if body, _ := io.ReadAll(r.Body); string(body) == ask {
						return
					}
					w.Header().Set("Content-Type", "text/event-stream")
					_ = http.NewResponseController(w).Flush()
					time.Sleep(time.Second) // the proxy's own first flush waits for a lock, which fake time takes for work
					for r.Context().Err() == nil {
						if _, err := io.WriteString(w, token(0)); err != nil {
							break
						}
						_ = http.NewResponseController(w).Flush()
					}
					close(let)
				}))
				tn.set(t, target(llama, nil, pod("a", "10.0.0.1")))
				if h2 {
					tn.speakHTTP2(t)
				}
				require.Equal(t, http.StatusOK, tn.ask(t.Context(), ask).status, "the connection has served a request before")
				resp, err := tn.request(t.Context(), askStream)
				require.NoError(t, err)
				defer func() { _ = resp.Body.Close() }()
				select {
				case <-let:
				case <-time.After(2 * time.Minute):
					t.Fatal("the engine works on for a client that reads nothing")
				}
				synctest.Wait()
				require.Equal(t, 1, tn.ended(t, classStalled))
			})
		})
	}
}

func TestFaultReasonIsToldAfterScaleIn(t *testing.T) {
	in(t, Options{}, func(t *testing.T, tn *town) {
		tn.set(t, target(llama, nil))
		state := func(reason string) []*demandpb.TargetState {
			return []*demandpb.TargetState{{Namespace: "ai", ScaledObject: "llama", State: demandpb.State_STATE_FAILED, Reason: reason, RetryAfterSeconds: 42}}
		}
		tn.Learn(state("pointer"))
		for range 10 {
			time.Sleep(time.Second)
			tn.Learn(state("")) // the pods are gone, and with them what they said
		}
		got := tn.ask(t.Context(), ask)
		require.Equal(t, http.StatusServiceUnavailable, got.status)
		require.Contains(t, got.body, "pointer")
		require.Equal(t, "pointer", got.header.Get("X-Pilotlight-Reason"))
		require.Equal(t, "42", got.header.Get("Retry-After"))

		time.Sleep(time.Minute) // nothing more is heard of the scaler
		answer := tn.asks(t.Context(), ask)
		synctest.Wait()
		require.Equal(t, uint64(1), tn.Snapshot()[0].GetHeld(), "an old word does not count for ever")
		tn.Learn([]*demandpb.TargetState{{Namespace: "ai", ScaledObject: "llama", State: demandpb.State_STATE_STARTING, Reason: "unschedulable"}})
		late := <-answer
		require.Equal(t, http.StatusServiceUnavailable, late.status)
		require.Contains(t, late.body, "no replica became ready in time: unschedulable", "why, where that is known")
	})
}

// Five thousand requests of 2 MB to a sleeping model at once, and what happens
// to a warm one meanwhile.
func TestFaultFiveThousandBodiesOfTwoMegabytes(t *testing.T) {
	const n, size = 5000, 2 << 20
	in(t, Options{MaxBytes: 64 << 20, MaxTotal: 256 << 20}, func(t *testing.T, tn *town) {
		warm := workload.Ref{Namespace: "ai", Name: "warm"}
		tn.serve(t, "10.0.0.1:8000", echoes())
		tn.set(t, target(llama, nil), target(warm, nil, pod("a", "10.0.0.1")))
		const head, tail = `{"model":"llama","x":"`, `"}`
		body := head + strings.Repeat("y", size-len(head)-len(tail)) + tail
		ctx, cancel := context.WithCancel(t.Context())
		statuses := make(chan reply, n)
		for range n {
			go func() { statuses <- tn.upload(ctx, body) }()
		}
		peak := int64(0)
		for range 100 {
			got := tn.ask(t.Context(), `{"model":"warm"}`)
			require.Equal(t, http.StatusOK, got.status, "a warm model is served through the flood: %s", got.body)
			peak = max(peak, tn.memory.used.Load())
		}
		synctest.Wait()
		held := tn.Snapshot()[0].GetHeld()
		require.Positive(t, held)
		require.LessOrEqual(t, held, uint64(32), "64 MB")
		require.LessOrEqual(t, peak, tn.opts.MaxTotal)
		cancel()
		count := map[int]int{}
		for range n {
			got := <-statuses
			count[got.status]++
			if got.status != 0 {
				require.NotEmpty(t, got.header.Get("Retry-After"), "every refusal says when to come again")
			}
		}
		require.Positive(t, count[http.StatusTooManyRequests]+count[http.StatusServiceUnavailable])
		require.Zero(t, count[http.StatusBadGateway]+count[http.StatusOK])
		synctest.Wait()
		require.Zero(t, tn.memory.used.Load(), "all memory is given back")
		require.Zero(t, tn.held.count.Load())
		require.Zero(t, tn.held.bytes.Load())
	})
}

// upload asks with a body and is content with the status.
func (tn *town) upload(ctx context.Context, body string) reply {
	resp, err := tn.request(ctx, body)
	if err != nil {
		return reply{err: err}
	}
	_ = resp.Body.Close()
	return reply{status: resp.StatusCode, header: resp.Header}
}
