package engine_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/internal/fake/engine"
)

// start sends a request in the background.
func start(ctx context.Context, e *engine.Engine, maxTokens int) <-chan *httptest.ResponseRecorder {
	done := make(chan *httptest.ResponseRecorder, 1)
	go func() { done <- ask(ctx, e, maxTokens) }()
	return done
}

func TestRequestsBeyondTheSlotsWaitInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// 40 prompt tokens at 20 per second, then 3 tokens of 1 s: 5 s a request.
		e := engine.New(engine.Config{Slots: 2, PrefillTokensPerSecond: 20, DecodeInterval: time.Second})
		requireLoad(t, e, 0, 0)
		begin := time.Now()
		finished := make(chan time.Duration, 5)
		for range 5 {
			go func() {
				ask(t.Context(), e, 3)
				finished <- time.Since(begin)
			}()
			synctest.Wait()
			time.Sleep(100 * time.Millisecond) // so that the order is known
		}
		requireLoad(t, e, 2, 3)
		require.Equal(t, 1.0, metric(t, e, "vllm:kv_cache_usage_perc"+labels))
		require.JSONEq(t, `{"server_load":5}`, send(t.Context(), e, http.MethodGet, "/load", "").Body.String())
		var got []time.Duration
		for range 5 {
			got = append(got, <-finished)
		}
		const ms = time.Millisecond
		require.Equal(t, []time.Duration{5000 * ms, 5100 * ms, 10000 * ms, 10100 * ms, 15000 * ms}, got)
		requireLoad(t, e, 0, 0)

		require.Equal(t, 5*40.0, metric(t, e, "vllm:prompt_tokens_total"+labels))
		require.Equal(t, 5*3.0, metric(t, e, "vllm:generation_tokens_total"+labels))
		require.Equal(t, 5.0, metric(t, e, `vllm:request_success_total{engine="0",finished_reason="length",model_name="llama"}`))
		require.Equal(t, 0.0, metric(t, e, `vllm:request_success_total{engine="0",finished_reason="stop",model_name="llama"}`))
		require.InDelta(t, 5*5.0, metric(t, e, "vllm:request_inference_time_seconds_sum"+labels), 1e-6)
		// They arrived 0.1 s apart from 0 on; the third to fifth started at 5, 5.1 and 10 s.
		require.InDelta(t, 4.8+4.8+9.6, metric(t, e, "vllm:request_queue_time_seconds_sum"+labels), 1e-6)
		require.InDelta(t, 5*5+4.8+4.8+9.6, metric(t, e, "vllm:e2e_request_latency_seconds_sum"+labels), 1e-6)
		require.InDelta(t, 5*3+4.8+4.8+9.6, metric(t, e, "vllm:time_to_first_token_seconds_sum"+labels), 1e-6)
	})
}

func TestGaugesLag(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := engine.New(engine.Config{Slots: 1, GaugeLag: 10 * time.Second, DecodeInterval: 15 * time.Second, PrefillTokensPerSecond: 1e9})
		first := start(t.Context(), e, 1)
		synctest.Wait()
		second := start(t.Context(), e, 1)
		synctest.Wait()
		time.Sleep(9 * time.Second)
		requireLoad(t, e, 0, 0) // nine seconds of work, and nothing to see
		time.Sleep(2 * time.Second)
		requireLoad(t, e, 1, 1)
		<-first
		time.Sleep(5 * time.Second)
		requireLoad(t, e, 1, 1)
		time.Sleep(6 * time.Second)
		requireLoad(t, e, 1, 0)
		<-second
		time.Sleep(10 * time.Second)
		requireLoad(t, e, 0, 0)
	})
}

func TestClientsThatLeaveFreeTheirPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := engine.New(engine.Config{Slots: 1, DecodeInterval: time.Second})
		ctx, leave := context.WithCancel(t.Context())
		queued, leaveQueue := context.WithCancel(t.Context())
		first := start(ctx, e, 1000)
		synctest.Wait()
		second := start(queued, e, 1000)
		synctest.Wait()
		third := start(t.Context(), e, 1)
		synctest.Wait()
		requireLoad(t, e, 1, 2)
		leaveQueue()
		<-second
		requireLoad(t, e, 1, 1)
		leave()
		<-first
		requireLoad(t, e, 1, 0)
		require.Equal(t, "length", decode(t, (<-third).Body).finish())
		requireLoad(t, e, 0, 0)
		for reason, want := range map[string]float64{"length": 1, "abort": 0} {
			require.Equal(t, want, metric(t, e, `vllm:request_success_total{engine="0",finished_reason="`+reason+`",model_name="llama"}`), reason)
		}
	})
}

// A place granted in the very moment its client leaves must not be lost.
func TestPlaceGrantedToALeavingClientIsPassedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := engine.New(engine.Config{Slots: 1, DecodeInterval: time.Second, PrefillTokensPerSecond: 1e12})
		for range 1000 { // which of the two comes first is chance
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			first := start(t.Context(), e, 1)
			synctest.Wait()
			second := start(ctx, e, 1)
			<-first
			<-second
			cancel()
			requireLoad(t, e, 0, 0)
		}
	})
}

// slow takes half a second for every write.
type slow struct{ *httptest.ResponseRecorder }

func (s slow) Write(b []byte) (int, error) {
	time.Sleep(500 * time.Millisecond)
	return s.ResponseRecorder.Write(b)
}

func TestSlowReadersDoNotSlowTheDecoding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := engine.New(engine.Config{DecodeInterval: time.Second, PrefillTokensPerSecond: 1e12})
		begin := time.Now()
		w := slow{httptest.NewRecorder()}
		e.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/completions",
			strings.NewReader(`{"prompt":"1234","max_tokens":10,"stream":true}`)))
		// The last token comes after 10 s; it, the finish and [DONE] are written after that.
		require.Equal(t, 11500*time.Millisecond, time.Since(begin))
	})
}

func TestDrainLetsRequestsFinishAndAbortsNewOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := engine.New(engine.Config{Slots: 1, DecodeInterval: time.Second, PrefillTokensPerSecond: 1e9, ShutdownTimeout: time.Minute})
		running, waiting := start(t.Context(), e, 10), start(t.Context(), e, 10)
		synctest.Wait()
		begin := time.Now()
		drained := make(chan struct{})
		go func() {
			defer close(drained)
			e.Drain(t.Context())
		}()
		synctest.Wait()

		w := ask(t.Context(), e, 10)
		require.Equal(t, http.StatusOK, w.Code)
		require.Equal(t, "abort", decode(t, w.Body).finish())
		stream := events(t, send(t.Context(), e, http.MethodPost, "/v1/chat/completions",
			`{"model":"llama","stream":true,"messages":[{"role":"user","content":"hi"}]}`).Body)
		require.Len(t, stream, 1)
		require.Equal(t, "abort", stream[0].finish())
		require.Equal(t, http.StatusOK, send(t.Context(), e, http.MethodGet, "/health", "").Code, "healthy while it drains")

		for _, r := range []<-chan *httptest.ResponseRecorder{running, waiting} {
			require.Equal(t, "length", decode(t, (<-r).Body).finish())
		}
		<-drained
		require.Equal(t, 20*time.Second, time.Since(begin).Truncate(time.Millisecond))
		require.Equal(t, 2.0, metric(t, e, `vllm:request_success_total{engine="0",finished_reason="abort",model_name="llama"}`))
	})
}

func TestDrainEndsAtItsTimeout(t *testing.T) {
	for timeout, tokens := range map[time.Duration]int{0: 0, 5 * time.Second: 5} {
		synctest.Test(t, func(t *testing.T) {
			e := engine.New(engine.Config{Slots: 1, DecodeInterval: time.Second, PrefillTokensPerSecond: 1e3, ShutdownTimeout: timeout})
			running, waiting := start(t.Context(), e, 1000), start(t.Context(), e, 1000)
			synctest.Wait()
			begin := time.Now()
			e.Drain(t.Context())
			require.Equal(t, timeout, time.Since(begin))
			var got []int
			for _, r := range []<-chan *httptest.ResponseRecorder{running, waiting} {
				answer := decode(t, (<-r).Body)
				require.Equal(t, "abort", answer.finish())
				got = append(got, answer.Usage.Completion)
			}
			require.ElementsMatch(t, []int{max(tokens-1, 0), 0}, got, "one ran, one waited")
			e.Drain(t.Context()) // again does nothing
		})
	}
}

func TestDrainOfAnIdleEngineIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := engine.New(engine.Config{ShutdownTimeout: time.Hour})
		begin := time.Now()
		e.Drain(t.Context())
		require.Zero(t, time.Since(begin))
	})
}

func TestStreamShapes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := engine.New(engine.Config{})
		w := send(t.Context(), e, http.MethodPost, "/v1/chat/completions",
			`{"model":"llama","stream":true,"max_tokens":3,"messages":[{"role":"user","content":"hi"}],"stream_options":{"include_usage":true}}`)
		require.Equal(t, "text/event-stream; charset=utf-8", w.Header().Get("Content-Type"))
		chat := events(t, w.Body)
		require.Len(t, chat, 1+3+1+1, "role, tokens, finish, usage")
		require.Equal(t, "assistant", chat[0].Choices[0].Delta.Role)
		text := ""
		for _, r := range chat[1:4] {
			require.NotNil(t, r.Choices[0].Delta.Content)
			require.Empty(t, r.finish())
			text += *r.Choices[0].Delta.Content
		}
		require.Equal(t, "llama version unknown says: the small flame", text)
		require.Equal(t, "length", chat[4].finish())
		require.Nil(t, chat[4].Choices[0].Delta.Content)
		require.Empty(t, chat[5].Choices)
		require.Equal(t, 1+3, chat[5].Usage.Total)
		for _, r := range chat {
			require.Equal(t, "chat.completion.chunk", r.Object)
			require.Equal(t, chat[0].ID, r.ID)
			require.Equal(t, "version=unknown;digest=unknown", r.SystemFingerprint)
		}

		plain := events(t, send(t.Context(), e, http.MethodPost, "/v1/completions", `{"model":"llama","stream":true,"max_tokens":2,"prompt":"hi"}`).Body)
		require.Len(t, plain, 2+1, "tokens, finish; usage only when asked for")
		require.Equal(t, "llama version unknown says: the", plain[0].Choices[0].Text)
		require.Equal(t, "text_completion", plain[0].Object)
		require.Equal(t, "length", plain[2].finish())
		require.NotEqual(t, chat[0].ID, plain[0].ID)
	})
}

func TestWholeAnswers(t *testing.T) {
	tests := map[string]struct {
		path, body         string
		prompt, completion int
	}{
		"Chat":                {"/v1/chat/completions", `{"model":"llama","messages":[{"role":"system","content":"12345678"},{"role":"user","content":[{"type":"text","text":"1234"}]}]}`, 3, 16},
		"ChatNewName":         {"/v1/chat/completions", `{"model":"llama","messages":[{"role":"user","content":"1"}],"max_tokens":9,"max_completion_tokens":2}`, 1, 2},
		"Text":                {"/v1/completions", `{"model":"llama","prompt":"12345","max_tokens":1}`, 2, 1},
		"TextsAndTokens":      {"/v1/completions", `{"model":"llama","prompt":["1234",[7,8]],"max_tokens":1}`, 3, 1},
		"NoModelNameIsServed": {"/v1/completions", `{"prompt":"1234","max_tokens":1}`, 1, 1},
		"CountsCharacters":    {"/v1/completions", `{"prompt":"éééé","max_tokens":1}`, 1, 1},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := engine.New(engine.Config{})
				w := send(t.Context(), e, http.MethodPost, tc.path, tc.body)
				require.Equal(t, http.StatusOK, w.Code)
				require.Equal(t, "application/json", w.Header().Get("Content-Type"))
				got := decode(t, w.Body)
				require.Equal(t, "llama", got.Model)
				require.Equal(t, "length", got.finish())
				require.Equal(t, tc.prompt, got.Usage.Prompt)
				require.Equal(t, tc.completion, got.Usage.Completion)
				require.Equal(t, tc.prompt+tc.completion, got.Usage.Total)
				text := got.Choices[0].Text + got.Choices[0].Message.Content
				require.True(t, strings.HasPrefix(text, "llama version unknown says:"), "%q", text)
			})
		})
	}
}

func TestRefusedRequests(t *testing.T) {
	const chat, text = "/v1/chat/completions", "/v1/completions"
	tests := map[string]struct {
		path, body string
		code       int
		kind       string
		param      string
	}{
		"OtherModel":      {chat, `{"model":"gpt","messages":[{"role":"user","content":"1"}]}`, http.StatusNotFound, "NotFoundError", "model"},
		"NotJSON":         {chat, `{"model"`, http.StatusBadRequest, "BadRequestError", ""},
		"NoMessages":      {chat, `{"model":"llama"}`, http.StatusBadRequest, "BadRequestError", "messages"},
		"PromptInAChat":   {chat, `{"model":"llama","prompt":"1"}`, http.StatusBadRequest, "BadRequestError", "messages"},
		"NoPrompt":        {text, `{"model":"llama"}`, http.StatusBadRequest, "BadRequestError", "prompt"},
		"NothingToSay":    {text, `{"model":"llama","prompt":"1","max_tokens":0}`, http.StatusBadRequest, "BadRequestError", "max_tokens"},
		"BodyOverTheSize": {text, `{"prompt":"` + strings.Repeat("1", 32<<20) + `"}`, http.StatusRequestEntityTooLarge, "BadRequestError", ""},
	}
	e := engine.New(engine.Config{})
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := send(t.Context(), e, http.MethodPost, tc.path, tc.body)
			require.Equal(t, tc.code, w.Code)
			got := decode(t, w.Body)
			require.NotNil(t, got.Error)
			require.NotEmpty(t, got.Error.Message)
			require.Equal(t, tc.kind, got.Error.Type)
			require.Equal(t, tc.code, got.Error.Code)
			if tc.param == "" {
				require.Nil(t, got.Error.Param)
			} else {
				require.Equal(t, tc.param, *got.Error.Param)
			}
		})
	}
	requireLoad(t, e, 0, 0)
}

func TestOtherRoutes(t *testing.T) {
	e := engine.New(engine.Config{})
	for route, code := range map[string]int{
		"GET /health": 200, "GET /ping": 200, "POST /ping": 200, "GET /version": 200, "GET /load": 200, "GET /v1/models": 200,
		"GET /metrics": 200, "GET /nothing": 404, "GET /v1/completions": 405,
	} {
		method, path, _ := strings.Cut(route, " ")
		require.Equal(t, code, send(t.Context(), e, method, path, "").Code, route)
	}
	require.Contains(t, send(t.Context(), e, http.MethodGet, "/v1/models", "").Body.String(), `"id":"llama"`)
	require.Positive(t, metric(t, e, "process_start_time_seconds"))
}
