package activator

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/internal/fake/engine"
	"github.com/pilotlight-dev/pilotlight/internal/workload"
)

// vllm is a simulated engine that goes down: it answers as vLLM does.
func vllm(t *testing.T, drained bool) *http.Server {
	t.Helper()
	e := engine.New(engine.Config{})
	if drained {
		e.Drain(t.Context())
	}
	return engineOf(e.Handler().ServeHTTP)
}

// An engine that goes down answers 200 and "abort". The client gets the answer
// of another one.
func TestAbortIsSentElsewhere(t *testing.T) {
	for name, body := range map[string]string{"Whole": ask, "Stream": askStream} {
		t.Run(name, func(t *testing.T) {
			in(t, Options{}, func(t *testing.T, tn *town) {
				tn.serve(t, "10.0.0.1:8000", vllm(t, true))
				tn.serve(t, "10.0.0.2:8000", vllm(t, false))
				tn.set(t, target(llama, nil, pod("going", "10.0.0.1")))
				answer := tn.asks(t.Context(), body)
				synctest.Wait()
				require.Equal(t, uint64(1), tn.Snapshot()[0].GetHeld(), "demand, as long as no other engine is there")
				tn.set(t, target(llama, nil, pod("going", "10.0.0.1"), pod("fresh", "10.0.0.2")))
				got := <-answer
				require.NoError(t, got.err)
				require.Equal(t, http.StatusOK, got.status)
				require.NotContains(t, got.body, "abort")
				require.Contains(t, got.body, "says")
				require.Equal(t, strings.Count(got.body, `"role"`), 1, "one opening, that of the second engine")
				require.Equal(t, 1, tn.firstDialled(), "it rests")
				synctest.Wait()
				require.Equal(t, 1, tn.ended(t, classOK))
				require.Zero(t, tn.memory.used.Load())
				require.Zero(t, tn.Snapshot()[0].GetInFlight())
				require.Equal(t, uint64(1), tn.Snapshot()[0].GetCompletedTotal())
			})
		})
	}
}

// atOnce answers everything with one write: net/http announces its length, so
// that the last bytes come with the end.
func atOnce(events string) *http.Server {
	return engineOf(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, events)
	})
}

// chunkedAtOnce is the same without a length, as vLLM answers.
func chunkedAtOnce(events string) *http.Server {
	return engineOf(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer func() { _ = conn.Close() }()
		_, _ = fmt.Fprintf(rw, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(events), events)
		_ = rw.Flush()
	})
}

// A stream that is here whole, with its end, when it is looked at first goes
// elsewhere as well, and its length does not bound the other engine's answer.
func TestAbortInOneReadIsSentElsewhere(t *testing.T) {
	const (
		role  = `data: {"choices":[{"delta":{"role":"assistant","content":""}}]}` + "\n\n"
		abort = role + `data: {"choices":[{"delta":{},"finish_reason":"abort"}]}` + "\n\ndata: [DONE]\n\n"
	)
	whole := role + strings.Repeat(token(0), 5) + "data: [DONE]\n\n"
	cases := map[string]struct {
		engines []*http.Server
		want    string
		class   string
		reason  string
	}{
		"SecondStreams":   {[]*http.Server{atOnce(abort), streamer(3, time.Second)}, strings.Repeat(token(0), 3) + "data: [DONE]\n\n", classOK, "goes on after the end of the first"},
		"Chunked":         {[]*http.Server{chunkedAtOnce(abort), chunkedAtOnce(whole)}, whole, classOK, "an end that is a chunk"},
		"SecondInOneRead": {[]*http.Server{atOnce(abort), atOnce(whole)}, whole, classOK, "its own end counts"},
		"SecondIsEmpty":   {[]*http.Server{atOnce(abort), atOnce("")}, "", classOK, "nothing is what it has answered"},
		"ThirdAnswers":    {[]*http.Server{atOnce(abort), atOnce(abort), atOnce(whole)}, whole, classOK, "both gave up in one read"},
		"NobodyAnswers":   {[]*http.Server{atOnce(abort), atOnce(abort), atOnce(abort)}, `data: {"error":`, "engine_draining", "an event tells, never an empty answer"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			in(t, Options{}, func(t *testing.T, tn *town) {
				var pods []workload.Pod
				var answer <-chan reply
				for i, e := range tc.engines { // one after the other, so that the order is known
					host := fmt.Sprintf("10.0.0.%d", i+1)
					tn.serve(t, host+":8000", e)
					pods = append(pods, pod(host, host))
					tn.set(t, target(llama, nil, pods...))
					if answer == nil {
						answer = tn.asks(t.Context(), askStream)
					}
					synctest.Wait()
				}
				got := <-answer
				require.NoError(t, got.err)
				require.Equal(t, http.StatusOK, got.status)
				if tc.class == classOK {
					require.Equal(t, tc.want, got.body, tc.reason)
				} else {
					require.True(t, strings.HasPrefix(got.body, tc.want), "%s: %q", tc.reason, got.body)
				}
				synctest.Wait()
				require.Equal(t, 1, tn.ended(t, tc.class))
				require.Zero(t, tn.memory.used.Load())
				require.Zero(t, tn.Snapshot()[0].GetInFlight())
			})
		})
	}
}

// Three engines that go down in a row, or nobody else in time, are an error
// that says so; never an empty answer with status 200.
func TestAbortWithoutAnotherEngine(t *testing.T) {
	in(t, Options{MaxHold: 10 * time.Second}, func(t *testing.T, tn *town) {
		tn.serve(t, "10.0.0.1:8000", vllm(t, true))
		tn.set(t, target(llama, nil, pod("a", "10.0.0.1")))
		got := tn.ask(t.Context(), ask)
		require.Equal(t, http.StatusServiceUnavailable, got.status)
		require.Contains(t, got.body, "model_not_ready")
		time.Sleep(shunDraining)
		got = tn.ask(t.Context(), askStream)
		require.NoError(t, got.err)
		require.Contains(t, got.body, `data: {"error":`, "the status is out: an event tells")
		require.NotContains(t, got.body, "[DONE]")
		synctest.Wait()
		require.Equal(t, 2, tn.ended(t, "model_not_ready"))

		time.Sleep(shunDraining)
		for i := 2; i < 5; i++ {
			tn.serve(t, fmt.Sprintf("10.0.0.%d:8000", i), vllm(t, true))
		}
		tn.set(t, target(llama, nil, pod("b", "10.0.0.2"), pod("c", "10.0.0.3"), pod("d", "10.0.0.4")))
		got = tn.ask(t.Context(), ask)
		require.Equal(t, http.StatusServiceUnavailable, got.status)
		require.Contains(t, got.body, "engine_draining")
		require.NotEmpty(t, got.header.Get("Retry-After"))
	})
}

// What has been seen cannot be taken back.
func TestAbortAfterContentPasses(t *testing.T) {
	in(t, Options{}, func(t *testing.T, tn *town) {
		var calls atomic.Int32
		end := `data: {"choices":[{"delta":{},"finish_reason":"abort"}]}` + "\n\ndata: [DONE]\n\n"
		tn.serve(t, "10.0.0.1:8000", engineOf(func(w http.ResponseWriter, _ *http.Request) {
			calls.Add(1)
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, token(0)+end)
		}))
		tn.set(t, target(llama, nil, pod("a", "10.0.0.1")))
		got := tn.ask(t.Context(), askStream)
		require.NoError(t, got.err)
		require.Equal(t, token(0)+end, got.body)
		require.Equal(t, int32(1), calls.Load())
	})
}

// Whatever a stream consists of, and however it is cut, arrives unchanged.
func TestStreamsArriveUnchanged(t *testing.T) {
	role := `data: {"choices":[{"delta":{"role":"assistant","content":""}}]}` + "\n\n"
	for name, text := range map[string]string{
		"Usual":       role + token(0) + token(1) + "data: [DONE]\n\n",
		"Empty":       "",
		"OnlyRole":    role,
		"CRLF":        strings.ReplaceAll(role+token(0), "\n", "\r\n"),
		"Comment":     ": ping\n\n" + role + ": ping\n\n" + token(0),
		"NotEnded":    role + "data: {",
		"NoEvents":    "hello",
		"LargeEvent":  "data: " + strings.Repeat("x", 3*mostHeldBack) + "\n\n",
		"Unterminate": strings.Repeat("y", 2*mostHeldBack),
	} {
		t.Run(name, func(t *testing.T) {
			in(t, Options{}, func(t *testing.T, tn *town) {
				tn.serve(t, "10.0.0.1:8000", engineOf(func(w http.ResponseWriter, r *http.Request) {
					_, _ = io.Copy(io.Discard, r.Body)
					w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
					for i := 0; i < len(text); i += 7 {
						_, _ = io.WriteString(w, text[i:min(i+7, len(text))])
						if i < 700 {
							_ = http.NewResponseController(w).Flush()
						}
					}
				}))
				tn.set(t, target(llama, nil, pod("a", "10.0.0.1")))
				got := tn.ask(t.Context(), askStream)
				require.NoError(t, got.err)
				require.Equal(t, text, got.body)
			})
		})
	}
}

// What cannot be read is not held back.
func TestCompressedStreamsPassAtOnce(t *testing.T) {
	in(t, Options{}, func(t *testing.T, tn *town) {
		tn.serve(t, "10.0.0.1:8000", engineOf(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			w.Header().Set("Content-Encoding", "br")
			_, _ = io.WriteString(w, "first")
			_ = http.NewResponseController(w).Flush()
			time.Sleep(time.Minute)
			_, _ = io.WriteString(w, "second")
		}))
		tn.set(t, target(llama, nil, pod("a", "10.0.0.1")))
		began := time.Now()
		resp, err := tn.request(t.Context(), askStream)
		require.NoError(t, err)
		defer func() { _ = resp.Body.Close() }()
		first := make([]byte, 5)
		_, err = io.ReadFull(resp.Body, first)
		require.NoError(t, err)
		require.Equal(t, "first", string(first))
		require.Less(t, time.Since(began), time.Second)
	})
}

// A whole answer that is larger than what is looked at, with and without an
// announced length.
func TestLargeAnswersArriveUnchanged(t *testing.T) {
	for _, size := range []int{0, 10, mostHeldBack - 1, mostHeldBack, 5 * mostHeldBack} {
		for _, announced := range []bool{true, false} {
			t.Run(fmt.Sprintf("%d %v", size, announced), func(t *testing.T) {
				in(t, Options{}, func(t *testing.T, tn *town) {
					text := strings.Repeat("z", size)
					tn.serve(t, "10.0.0.1:8000", engineOf(func(w http.ResponseWriter, _ *http.Request) {
						w.Header().Set("Content-Type", "application/json")
						if announced {
							w.Header().Set("Content-Length", fmt.Sprint(size))
						} else {
							_ = http.NewResponseController(w).Flush()
						}
						_, _ = io.WriteString(w, text)
					}))
					tn.set(t, target(llama, nil, pod("a", "10.0.0.1")))
					got := tn.ask(t.Context(), ask)
					require.NoError(t, got.err)
					require.Equal(t, text, got.body)
				})
			})
		}
	}
}

// With comments out, whatever goes wrong is an event, and what an engine says
// in JSON is one, too.
func TestAnswersAfterComments(t *testing.T) {
	cases := map[string]struct {
		engine http.HandlerFunc
		want   string
	}{
		"Refused": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, "{\n \"error\": {\"message\": \"too long\"}}")
		}, `data: {"error":{"message":"too long"}}`},
		"NotJSON": {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "oops", http.StatusInternalServerError) }, `data: {"error":{"code":"engine_error"`},
		"Whole": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"choices":[]}`)
		}, `data: {"choices":[]}`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			in(t, Options{Comments: time.Second}, func(t *testing.T, tn *town) {
				tn.serve(t, "10.0.0.1:8000", engineOf(tc.engine))
				tn.set(t, target(llama, nil))
				answer := tn.asks(t.Context(), askStream)
				time.Sleep(1500 * time.Millisecond)
				tn.set(t, target(llama, nil, pod("a", "10.0.0.1")))
				got := <-answer
				require.NoError(t, got.err)
				require.Equal(t, http.StatusOK, got.status)
				require.Equal(t, "text/event-stream", got.header.Get("Content-Type"))
				require.True(t, strings.HasPrefix(got.body, ": waiting for a replica\n\n"+tc.want), got.body)
				require.True(t, strings.HasSuffix(got.body, "\n\n"))
			})
		})
	}
	t.Run("HoldDeadline", func(t *testing.T) {
		in(t, Options{Comments: time.Second, MaxHold: 2500 * time.Millisecond}, func(t *testing.T, tn *town) {
			tn.set(t, target(llama, nil))
			got := tn.ask(t.Context(), askStream)
			require.Equal(t, 2, strings.Count(got.body, ": waiting"))
			require.Contains(t, got.body, `"code":"model_not_ready"`)
			synctest.Wait()
			require.Equal(t, 1, tn.ended(t, "model_not_ready"))
		})
	})
	t.Run("NotStreamed", func(t *testing.T) {
		in(t, Options{Comments: time.Second, MaxHold: 2500 * time.Millisecond}, func(t *testing.T, tn *town) {
			tn.set(t, target(llama, nil))
			require.Equal(t, http.StatusServiceUnavailable, tn.ask(t.Context(), ask).status, "who asks for no events gets none")
		})
	})
}
