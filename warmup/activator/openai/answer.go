package openai

import (
	"bytes"
	"encoding/json"
)

// Kind says what an event of a stream means to a proxy that may still send the
// request elsewhere.
type Kind int

// The kinds of events.
const (
	Opening Kind = iota // carries nothing that a user would see: the role, a comment
	Content             // carries text, a tool call, an error, anything else
	Abort               // says that the engine gives up, before any text
)

// finishAbort is the finish_reason of a request that an engine gave up because
// it goes down (vLLM during its shutdown, with status 200).
const finishAbort = "abort"

type choice struct {
	FinishReason *string                    `json:"finish_reason"`
	Text         *string                    `json:"text"`
	Delta        map[string]json.RawMessage `json:"delta"`
	Message      map[string]json.RawMessage `json:"message"`
}

// silent reports whether a choice has nothing that a user would see.
func (c choice) silent() bool {
	return (c.Text == nil || *c.Text == "") && empty(c.Delta) && empty(c.Message)
}

func empty(fields map[string]json.RawMessage) bool {
	for name, value := range fields {
		switch string(value) {
		case "null", `""`, "[]", "{}":
		default:
			if name != "role" {
				return false
			}
		}
	}
	return true
}

// Event judges one event of a stream of chat or text completions, without the
// empty line that ends it.
func Event(event []byte) Kind {
	for line := range bytes.Lines(event) {
		line = bytes.TrimRight(line, "\r\n")
		data, ok := bytes.CutPrefix(line, []byte("data:"))
		if !ok {
			continue
		}
		var chunk struct {
			Choices *[]choice `json:"choices"`
		}
		if json.Unmarshal(data, &chunk) != nil || chunk.Choices == nil {
			return Content
		}
		aborted := false
		for _, c := range *chunk.Choices {
			switch {
			case !c.silent():
				return Content
			case c.FinishReason == nil:
			case *c.FinishReason != finishAbort:
				return Content
			default:
				aborted = true
			}
		}
		if aborted {
			return Abort
		}
	}
	return Opening
}

// Aborted reports whether a whole answer was given up by an engine that goes
// down. Text that it may have is of no use to anybody: it ends anywhere.
func Aborted(answer []byte) bool {
	if !bytes.Contains(answer, []byte(`"`+finishAbort+`"`)) {
		return false
	}
	var whole struct {
		Choices []choice `json:"choices"`
	}
	if json.Unmarshal(answer, &whole) != nil {
		return false
	}
	for _, c := range whole.Choices {
		if c.FinishReason != nil && *c.FinishReason == finishAbort {
			return true
		}
	}
	return false
}

// Error renders OpenAI's shape of an error. Type is server_error from status
// 500 on and invalid_request_error below; rate limits have a type of their own.
func Error(status int, code, message string) []byte {
	kind := "invalid_request_error"
	switch {
	case status >= 500:
		kind = "server_error"
	case status == 429:
		kind = "rate_limit_error"
	case status == 401:
		kind = "authentication_error"
	}
	body, _ := json.Marshal(map[string]any{"error": map[string]any{ // strings always marshal
		"message": message, "type": kind, "code": code, "param": nil,
	}})
	return append(body, '\n')
}
