package openai_test

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/internal/fake/engine"
)

// problem is the exception that a request ended in.
type problem struct {
	Class      string
	Status     int
	Code       string
	Type       string
	Message    string
	Reason     string
	RetryAfter string `json:"retry_after"`
}

// streamed is what a stream came to.
type streamed struct {
	Text         string
	Pieces       int
	Finish       string
	Usage        int
	FirstSeconds float64 `json:"first_seconds"`
	Seconds      float64
}

// answered is what a whole answer came to.
type answered struct {
	Text    string
	Retries int
	Seconds float64
}

// A program that streams does not notice that the model slept, but by the wait:
// the request wakes it, is held, and streams as soon as the engine is there.
func TestStreamsThroughAColdStart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	woken := w.woken()
	script := w.play("stream", model)
	w.await(woken)
	require.Equal(t, "1", w.metric(`held_requests{namespace="ai",scaled_object="llama"}`))
	const start = time.Second
	e := w.start(engine.Config{StartDelay: start, DecodeInterval: 100 * time.Millisecond})

	var got streamed
	script.result(&got)
	require.Contains(t, got.Text, "llama version")
	require.Equal(t, 40, got.Pieces, "every token is an event of its own")
	require.Equal(t, "length", got.Finish)
	require.Equal(t, 40, got.Usage)
	require.Greater(t, got.FirstSeconds, start.Seconds(), "it waited for the start")
	require.Greater(t, got.Seconds-got.FirstSeconds, 0.2, "and the tokens came one by one, not at once")
	w.eventually("it is counted", func() bool { return w.ended("ok") == "1" })
	w.eventually("so is the wait", func() bool { return w.metric(`hold_seconds_count{namespace="ai",scaled_object="llama"}`) == "1" })
	keys, gone := e.saw()
	require.Equal(t, []string{"Bearer " + key}, keys, "the key passes through untouched")
	require.Zero(t, gone)
	w.keepsTheKey()
}

// keepsTheKey demands that no log names the key, not even the most talkative.
func (w *world) keepsTheKey() {
	w.t.Helper()
	w.eventually("every request is logged at debug", func() bool { return len(w.logged()) > 0 })
	text, err := os.ReadFile(w.log)
	require.NoError(w.t, err)
	require.NotContains(w.t, string(text), key)
	require.NotContains(w.t, string(text), strings.TrimPrefix(key, "sk-"))
}

// Who cancels a stream ends the engine's work on it, and that counts as a client
// that went away, not as an engine that failed.
func TestCancelsMidStream(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	e := w.start(engine.Config{DecodeInterval: 10 * time.Millisecond})
	var got struct {
		Pieces int
		After  string
	}
	w.play("cancel", model).result(&got)
	require.Equal(t, 3, got.Pieces)
	require.Contains(t, got.After, "llama version", "the same client goes on")
	w.eventually("the engine has noticed", func() bool { _, gone := e.saw(); return gone == 1 })
	w.eventually("it is counted", func() bool { return w.ended("client_gone") == "1" })
	w.eventually("so is the whole answer", func() bool { return w.ended("ok") == "1" })
	for _, class := range []string{"engine_broke_off", "bad_gateway", "engine_5xx"} {
		require.Equal(t, "0", w.ended(class), class)
	}
	w.eventually("nothing is under way", func() bool { return w.metric(`in_flight_requests{namespace="ai",scaled_object="llama"}`) == "0" })
	var gone []map[string]any
	w.eventually("it is logged", func() bool {
		gone = slices.DeleteFunc(w.logged(), func(l map[string]any) bool { return l["class"] != "client_gone" })
		return len(gone) > 0
	})
	require.Len(t, gone, 1)
	require.InDelta(t, 499, gone[0]["status"], 0)
	require.Equal(t, "context canceled", gone[0]["error"], "ours, not a fault of the engine")
}

// A start that takes longer than the activator holds requests is bridged by the
// library: it comes again when Retry-After says so.
func TestRetriesThroughAColdStart(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "--max-hold", "10s", "--max-held", "1")
	woken := w.woken()
	first := w.play("whole", model) // is held
	w.await(woken)
	second := w.play("whole", model) // finds the line full
	w.eventually("one hears 503", func() bool { return w.ended("model_not_ready") >= "1" })
	w.eventually("the other 429", func() bool { return w.ended("hold_queue_full") >= "1" })
	w.start(engine.Config{})

	for _, script := range []*played{first, second} {
		var got answered
		script.result(&got)
		require.Contains(t, got.Text, "llama version")
		require.Positive(t, got.Retries)
		require.Greater(t, got.Seconds, 5.0, "it waited as long as Retry-After asked")
	}
	w.eventually("both are counted", func() bool { return w.ended("ok") == "2" })
}

// The library shows what the activator refuses as its own exceptions.
func TestModelsAndErrors(t *testing.T) {
	t.Parallel()
	keys := filepath.Join(t.TempDir(), "keys")
	sum := sha256.Sum256([]byte(key))
	require.NoError(t, os.WriteFile(keys, []byte(hex.EncodeToString(sum[:])+"\n"), 0o600))
	w := newWorld(t, "--api-keys-sha256", keys)

	var listed struct {
		IDs []string
		One string
	}
	w.play("models", model).result(&listed)
	require.ElementsMatch(t, []string{model, "llama-3"}, listed.IDs, "while it sleeps, too")
	require.Equal(t, model, listed.One)
	require.Equal(t, "0", w.metric(`held_requests{namespace="ai",scaled_object="llama"}`), "a list wakes nobody")

	var missing problem
	w.play("error", "gpt-9").result(&missing)
	require.Equal(t, "NotFoundError", missing.Class)
	require.Equal(t, http.StatusNotFound, missing.Status)
	require.Equal(t, "model_not_found", missing.Code)
	require.NotEmpty(t, missing.Type)
	require.Contains(t, missing.Message, `"gpt-9"`)

	var timeout problem
	w.play("impatient", model).result(&timeout)
	require.Equal(t, "APITimeoutError", timeout.Class, "the client's own timeout holds while it is held")
	w.eventually("it is the client that has gone", func() bool { return w.ended("client_gone") == "1" })
	w.eventually("and its place is free", func() bool { return w.metric(`held_requests{namespace="ai",scaled_object="llama"}`) == "0" })
	w.keepsTheKey()

	require.NoError(t, os.WriteFile(keys+".new", []byte(strings.Repeat("0", 64)+"\n"), 0o600))
	require.NoError(t, os.Rename(keys+".new", keys))
	w.eventually("the key is refused", func() bool {
		var refused problem
		w.play("error", model).result(&refused)
		return refused.Class == "AuthenticationError" && refused.Code == "invalid_api_key"
	})
	w.keepsTheKey()
}
