package engine_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/internal/fake/engine"
)

// reply is what the tests read of an answer or of one event of a stream.
type reply struct {
	ID                string `json:"id"`
	Object            string `json:"object"`
	Model             string `json:"model"`
	SystemFingerprint string `json:"system_fingerprint"`
	Choices           []struct {
		Text    string `json:"text"`
		Message struct {
			Role, Content string
		} `json:"message"`
		Delta struct {
			Role    string  `json:"role"`
			Content *string `json:"content"`
		} `json:"delta"`
		FinishReason *string `json:"finish_reason"`
	} `json:"choices"`
	Usage *struct {
		Prompt     int `json:"prompt_tokens"`
		Completion int `json:"completion_tokens"`
		Total      int `json:"total_tokens"`
	} `json:"usage"`
	Error *struct {
		Message string  `json:"message"`
		Type    string  `json:"type"`
		Param   *string `json:"param"`
		Code    int     `json:"code"`
	} `json:"error"`
}

// finish is the finish_reason of the only choice, "" while there is none.
func (r reply) finish() string {
	if len(r.Choices) == 0 || r.Choices[0].FinishReason == nil {
		return ""
	}
	return *r.Choices[0].FinishReason
}

// send makes one request in process and waits for the whole answer.
func send(ctx context.Context, e *engine.Engine, method, path, body string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	e.Handler().ServeHTTP(w, httptest.NewRequestWithContext(ctx, method, path, strings.NewReader(body)))
	return w
}

// ask completes a text prompt of 40 tokens.
func ask(ctx context.Context, e *engine.Engine, maxTokens int) *httptest.ResponseRecorder {
	return send(ctx, e, http.MethodPost, "/v1/completions",
		fmt.Sprintf(`{"model":"llama","prompt":"%s","max_tokens":%d}`, strings.Repeat("four", 40), maxTokens))
}

func decode(t *testing.T, r io.Reader) reply {
	t.Helper()
	var v reply
	require.NoError(t, json.NewDecoder(r).Decode(&v))
	return v
}

// events reads a stream to its end and requires the [DONE] there.
func events(t *testing.T, r io.Reader) []reply {
	t.Helper()
	var all []reply
	done := false
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		require.False(t, done, "text after [DONE]: %q", lines.Text())
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		require.True(t, ok, "line %q", lines.Text())
		require.True(t, lines.Scan() && lines.Text() == "", "an event ends with an empty line")
		if done = data == "[DONE]"; !done {
			all = append(all, decode(t, strings.NewReader(data)))
		}
	}
	require.NoError(t, lines.Err())
	require.True(t, done, "no [DONE]")
	return all
}

// metric reads one series; labels as exposed, sorted by name.
func metric(t *testing.T, e *engine.Engine, series string) float64 {
	t.Helper()
	w := send(t.Context(), e, http.MethodGet, "/metrics", "")
	require.Equal(t, http.StatusOK, w.Code)
	for line := range strings.Lines(w.Body.String()) {
		if text, ok := strings.CutPrefix(line, series+" "); ok {
			v, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
			require.NoError(t, err)
			return v
		}
	}
	require.Fail(t, "series not exported", series)
	return 0
}

const labels = `{engine="0",model_name="llama"}`

func requireLoad(t *testing.T, e *engine.Engine, running, waiting float64) {
	t.Helper()
	require.Equal(t, running, metric(t, e, "vllm:num_requests_running"+labels), "running")
	require.Equal(t, waiting, metric(t, e, "vllm:num_requests_waiting"+labels), "waiting")
}

// shard is a safetensors file with one tensor of n bytes.
func shard(version string, n int) []byte {
	meta := ""
	if version != "" {
		meta = fmt.Sprintf(`"__metadata__":{"format":"pt","version":%q},`, version)
	}
	return rawShard(fmt.Sprintf(`{%s"w":{"dtype":"U8","shape":[%d],"data_offsets":[0,%d]}}`, meta, n, n), n)
}

func rawShard(header string, n int) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(b, header...), strings.Repeat("w", n)...)
}

// write makes a model folder out of paths and contents.
func write(t *testing.T, files map[string][]byte) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		p := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(p), 0o750))
		require.NoError(t, os.WriteFile(p, content, 0o600))
	}
	return dir
}
