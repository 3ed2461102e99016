package openai

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEvent(t *testing.T) {
	cases := map[string]struct {
		event string
		want  Kind
	}{
		"Role":          {`data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}`, Opening},
		"Comment":       {": ping", Opening},
		"NoChoices":     {`data: {"choices":[],"usage":{}}`, Opening},
		"Text":          {`data: {"choices":[{"delta":{"content":"he"},"finish_reason":null}]}`, Content},
		"Reasoning":     {`data: {"choices":[{"delta":{"reasoning_content":"hm"}}]}`, Content},
		"Tool":          {`data: {"choices":[{"delta":{"tool_calls":[{"index":0}]}}]}`, Content},
		"Abort":         {`data: {"choices":[{"delta":{"content":""},"finish_reason":"abort"}]}`, Abort},
		"AbortOfText":   {"data: {\"choices\":[{\"text\":\"\",\"finish_reason\":\"abort\"}]}\r", Abort},
		"AbortWithText": {`data: {"choices":[{"text":"he","finish_reason":"abort"}]}`, Content},
		"Length":        {`data: {"choices":[{"text":"","finish_reason":"length"}]}`, Content},
		"Done":          {`data: [DONE]`, Content},
		"Error":         {`data: {"error":{"message":"no"}}`, Content},
		"Responses":     {"event: response.created\ndata: {\"type\":\"response.created\"}", Content},
		"Unreadable":    {`data: {`, Content},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) { require.Equal(t, tc.want, Event([]byte(tc.event))) })
	}
}

func TestAborted(t *testing.T) {
	cases := map[string]struct {
		answer string
		want   bool
	}{
		"Nothing":    {`{"choices":[{"message":{"role":"assistant","content":""},"finish_reason":"abort"}]}`, true},
		"SomeText":   {`{"choices":[{"message":{"role":"assistant","content":"he"},"finish_reason":"abort"}]}`, true},
		"Text":       {`{"choices":[{"text":"","finish_reason":"abort"}]}`, true},
		"Finished":   {`{"choices":[{"message":{"content":"say \"abort\""},"finish_reason":"stop"}]}`, false},
		"NotJSON":    {`"abort"`, false},
		"Embeddings": {`{"data":[{"embedding":[0.1]}]}`, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) { require.Equal(t, tc.want, Aborted([]byte(tc.answer))) })
	}
}

func TestErrorShape(t *testing.T) {
	for status, kind := range map[int]string{400: "invalid_request_error", 401: "authentication_error", 429: "rate_limit_error", 503: "server_error"} {
		var shape struct {
			Error struct {
				Message, Type, Code string
				Param               any
			}
		}
		require.NoError(t, json.Unmarshal(Error(status, "code", "a \"message\""), &shape))
		require.Equal(t, kind, shape.Error.Type)
		require.Equal(t, "code", shape.Error.Code)
		require.Equal(t, `a "message"`, shape.Error.Message)
	}
}
