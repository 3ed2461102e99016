package demo

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// A reply is what a client of the OpenAI API saw.
type reply struct {
	version string        // of the weights that answered
	first   time.Duration // until the first token
	total   time.Duration
	tokens  int
}

// chat asks for a streamed completion and reads it to its end. An answer that
// is not complete is an error: it would be a lost request.
func chat(ctx context.Context, base string, tokens int) (reply, error) {
	body, err := json.Marshal(map[string]any{
		"model": modelName, "stream": true, "max_tokens": tokens,
		"messages": []map[string]string{{"role": "user", "content": "Which version are you?"}},
	})
	if err != nil {
		return reply{}, err
	}
	began := time.Now()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		return reply{}, err
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		return reply{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1000))
		return reply{}, fmt.Errorf("status %d: %s", resp.StatusCode, bytes.TrimSpace(text))
	}
	r := reply{version: resp.Header.Get("X-Model-Version")}
	done := false
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		switch {
		case !ok:
		case data == "[DONE]":
			done = true
		case r.tokens == 0:
			r.first = time.Since(began)
			r.tokens++
		default:
			r.tokens++
		}
	}
	if !done {
		return r, fmt.Errorf("the stream broke off after %d chunks", r.tokens)
	}
	r.total = time.Since(began)
	return r, nil
}

// moveAlias points the alias at a version, as any client of the registry does.
func moveAlias(ctx context.Context, registry, version string) error {
	body, err := json.Marshal(map[string]string{"name": modelName, "alias": alias, "version": version})
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, registry+"/api/2.0/mlflow/registered-models/alias", bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1000))
		return fmt.Errorf("status %d: %s", resp.StatusCode, text)
	}
	return nil
}
