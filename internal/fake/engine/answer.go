package engine

import (
	"encoding/json"
	"net/http"
	"strings"
)

// shape is where chat and text completions differ.
type shape interface {
	idPrefix() string
	object(stream bool) string
	promptField() string
	prompt(r *request) json.RawMessage
	// choice is one entry of choices; finish is nil while there is more to come.
	choice(stream bool, text string, finish any) map[string]any
	// opening is the choice that begins a stream, nil for none.
	opening() map[string]any
}

type chatShape struct{}

func (chatShape) idPrefix() string                  { return "chatcmpl-" }
func (chatShape) promptField() string               { return "messages" }
func (chatShape) prompt(r *request) json.RawMessage { return r.Messages }

func (chatShape) object(stream bool) string {
	if stream {
		return "chat.completion.chunk"
	}
	return "chat.completion"
}

func (chatShape) choice(stream bool, text string, finish any) map[string]any {
	if stream {
		delta := map[string]any{}
		if text != "" {
			delta["content"] = text
		}
		return map[string]any{"index": 0, "delta": delta, "logprobs": nil, "finish_reason": finish}
	}
	message := map[string]any{"role": "assistant", "content": text}
	return map[string]any{"index": 0, "message": message, "logprobs": nil, "finish_reason": finish}
}

func (chatShape) opening() map[string]any {
	delta := map[string]any{"role": "assistant", "content": ""}
	return map[string]any{"index": 0, "delta": delta, "logprobs": nil, "finish_reason": nil}
}

type textShape struct{}

func (textShape) idPrefix() string                  { return "cmpl-" }
func (textShape) object(bool) string                { return "text_completion" }
func (textShape) promptField() string               { return "prompt" }
func (textShape) prompt(r *request) json.RawMessage { return r.Prompt }
func (textShape) opening() map[string]any           { return nil }

func (textShape) choice(_ bool, text string, finish any) map[string]any {
	return map[string]any{"index": 0, "text": text, "logprobs": nil, "finish_reason": finish}
}

// answer writes one completion.
type answer struct {
	engine  *Engine
	shape   shape
	w       http.ResponseWriter
	id      string
	created int64
	prompt  int  // tokens
	usage   bool // a stream ends with its usage
}

// generator produces tokens until it says why it stopped.
type generator func(emit func(text string) error) (finish string, err error)

// whole answers in one piece.
func (a *answer) whole(generate generator) {
	var text strings.Builder
	tokens := 0
	finish, err := generate(func(t string) error {
		tokens++
		_, err := text.WriteString(t)
		return err
	})
	if err != nil {
		return // the client has gone
	}
	body := a.body(false, a.shape.choice(false, text.String(), finish))
	body["usage"] = a.usageOf(tokens)
	writeJSON(a.w, http.StatusOK, body)
}

// stream answers token by token, as server-sent events. The headers go out
// before the request has a place, as with vLLM.
func (a *answer) stream(generate generator) {
	a.w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	a.w.Header().Set("Cache-Control", "no-cache")
	a.w.WriteHeader(http.StatusOK)
	if a.flush() != nil {
		return
	}
	tokens := 0
	finish, err := generate(func(t string) error {
		if opening := a.shape.opening(); tokens == 0 && opening != nil {
			if err := a.event(a.body(true, opening)); err != nil {
				return err
			}
		}
		tokens++
		return a.event(a.body(true, a.shape.choice(true, t, nil)))
	})
	if err != nil || a.event(a.body(true, a.shape.choice(true, "", finish))) != nil {
		return
	}
	if a.usage {
		body := a.body(true)
		body["usage"] = a.usageOf(tokens)
		if a.event(body) != nil {
			return
		}
	}
	if _, err := a.w.Write([]byte("data: [DONE]\n\n")); err == nil {
		_ = a.flush() // the end of the handler flushes as well
	}
}

func (a *answer) body(stream bool, choices ...map[string]any) map[string]any {
	if choices == nil {
		choices = []map[string]any{}
	}
	return map[string]any{
		"id": a.id, "object": a.shape.object(stream), "created": a.created, "model": a.engine.config.Model,
		"system_fingerprint": a.engine.fingerprint(), "choices": choices,
	}
}

func (a *answer) usageOf(tokens int) map[string]int {
	return map[string]int{"prompt_tokens": a.prompt, "completion_tokens": tokens, "total_tokens": a.prompt + tokens}
}

// event sends one server-sent event.
func (a *answer) event(body map[string]any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	if _, err := a.w.Write([]byte("data: " + string(text) + "\n\n")); err != nil {
		return err
	}
	return a.flush()
}

func (a *answer) flush() error { return http.NewResponseController(a.w).Flush() }
