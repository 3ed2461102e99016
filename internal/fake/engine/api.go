package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"time"
	"unicode/utf8"
)

const (
	defaultMaxTokens = 16
	charsPerToken    = 4
	maxRequestBody   = 32 << 20
	imitates         = "0.27.1" // the vLLM release whose behaviour is simulated
)

// Handler serves the engine's HTTP API: /v1/chat/completions, /v1/completions,
// /v1/models, /health, /ping, /version, /load and /metrics. Before a ModelDir
// was loaded it answers 503; Run does not listen before that.
func (e *Engine) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/chat/completions", func(w http.ResponseWriter, r *http.Request) { e.complete(w, r, chatShape{}) })
	mux.HandleFunc("POST /v1/completions", func(w http.ResponseWriter, r *http.Request) { e.complete(w, r, textShape{}) })
	mux.HandleFunc("GET /v1/models", e.models)
	mux.HandleFunc("GET /health", healthy)
	mux.HandleFunc("GET /ping", healthy)
	mux.HandleFunc("POST /ping", healthy)
	mux.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]string{"version": imitates})
	})
	mux.HandleFunc("GET /load", func(w http.ResponseWriter, _ *http.Request) {
		e.mu.Lock()
		n := e.inFlight
		e.mu.Unlock()
		writeJSON(w, http.StatusOK, map[string]int{"server_load": n})
	})
	mux.Handle("GET /metrics", e.metrics.handler())
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		e.mu.Lock()
		loaded := e.loaded
		e.mu.Unlock()
		if !loaded {
			writeError(w, http.StatusServiceUnavailable, "", "the model is not loaded")
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// healthy answers 200, during a drain too, as vLLM does.
func healthy(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }

func (e *Engine) models(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("X-Model-Version", known(e.LoadedVersion()))
	writeJSON(w, http.StatusOK, map[string]any{
		"object": "list",
		"data": []map[string]any{{
			"id": e.config.Model, "object": "model", "created": time.Now().Unix(), "owned_by": "vllm", "root": e.config.ModelDir,
		}},
	})
}

// request holds what both completion APIs have in common; the rest is ignored.
type request struct {
	Model               string          `json:"model"`
	Stream              bool            `json:"stream"`
	MaxTokens           *int            `json:"max_tokens"`
	MaxCompletionTokens *int            `json:"max_completion_tokens"`
	Prompt              json.RawMessage `json:"prompt"`
	Messages            json.RawMessage `json:"messages"`
	StreamOptions       struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
}

// tokens is how much the answer may have.
func (r *request) tokens() int {
	switch {
	case r.MaxCompletionTokens != nil:
		return *r.MaxCompletionTokens
	case r.MaxTokens != nil:
		return *r.MaxTokens
	}
	return defaultMaxTokens
}

// complete serves one completion, in the given shape.
func (e *Engine) complete(w http.ResponseWriter, r *http.Request, s shape) {
	var req request
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequestBody))
	if err == nil {
		err = json.Unmarshal(body, &req)
	}
	if err != nil {
		code := http.StatusBadRequest
		var tooLarge *http.MaxBytesError
		if errors.As(err, &tooLarge) {
			code = http.StatusRequestEntityTooLarge
		}
		writeError(w, code, "", "request body: "+err.Error())
		return
	}
	prompt := promptTokens(s.prompt(&req))
	switch {
	case req.Model != "" && req.Model != e.config.Model: // vLLM takes a request without a name, too
		writeError(w, http.StatusNotFound, "model", fmt.Sprintf("The model `%s` does not exist.", req.Model))
		return
	case prompt == 0:
		writeError(w, http.StatusBadRequest, s.promptField(), s.promptField()+" is missing or empty")
		return
	case req.tokens() < 1:
		writeError(w, http.StatusBadRequest, "max_tokens", "max_tokens must be at least 1")
		return
	}
	a := &answer{
		engine: e, shape: s, w: w, prompt: prompt,
		id: s.idPrefix() + strconv.FormatUint(e.nextID.Add(1), 16), created: time.Now().Unix(),
		usage: req.StreamOptions.IncludeUsage,
	}
	w.Header().Set("X-Model-Version", known(e.LoadedVersion()))
	run := a.whole
	if req.Stream {
		run = a.stream
	}
	if !e.enter() {
		e.metrics.finished(finishAbort, time.Now(), time.Now())
		run(func(func(string) error) (string, error) { return finishAbort, nil })
		return
	}
	defer e.leave()
	run(func(emit func(string) error) (string, error) {
		return e.generate(r.Context(), prompt, req.tokens(), emit)
	})
}

// promptTokens estimates the tokens of a prompt or of messages: four characters
// each, at least one for any text; a number in a prompt is one token.
func promptTokens(raw json.RawMessage) int {
	var v any
	if len(raw) == 0 || json.Unmarshal(raw, &v) != nil {
		return 0
	}
	return int(math.Ceil(float64(characters(v)) / charsPerToken))
}

func characters(v any) int {
	switch v := v.(type) {
	case string:
		return utf8.RuneCountInString(v)
	case float64:
		return charsPerToken
	case []any:
		n := 0
		for _, part := range v {
			n += characters(part)
		}
		return n
	case map[string]any: // a message, or a part of one
		return characters(v["content"]) + characters(v["text"])
	}
	return 0
}

func writeJSON(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v) // a client that left cannot be told
}

// writeError answers in OpenAI's shape, with vLLM's names.
func writeError(w http.ResponseWriter, code int, param, message string) {
	kind := map[int]string{
		http.StatusBadRequest: "BadRequestError", http.StatusNotFound: "NotFoundError",
		http.StatusServiceUnavailable: "ServiceUnavailableError",
	}[code]
	if kind == "" {
		kind = "BadRequestError"
	}
	var p any
	if param != "" {
		p = param
	}
	writeJSON(w, code, map[string]any{"error": map[string]any{"message": message, "type": kind, "param": p, "code": code}})
}
