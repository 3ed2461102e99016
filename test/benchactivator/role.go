package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"runtime/debug"
	"strconv"
	"time"
)

const (
	tokens   = 200                   // of a stream
	interval = 50 * time.Millisecond // between them: 20 a second
)

// role is what this program does in a process of its own: "engine ADDR",
// "bare ADDR UPSTREAM" or "holder ADDR".
func role(ctx context.Context, args []string) error {
	if len(args) < 2 {
		return fmt.Errorf("role needs a name and an address, not %q", args)
	}
	var h http.Handler
	switch args[0] {
	case "engine":
		debug.SetGCPercent(800) // of the engine, not of what is measured
		h = http.HandlerFunc(engine)
	case "bare":
		upstream, err := url.Parse("http://" + args[2])
		if err != nil {
			return err
		}
		h = bare(upstream)
	case "holder":
		h = http.HandlerFunc(hold)
	default:
		return fmt.Errorf("no role %q", args[0])
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	mux.Handle("/", h)
	srv := &http.Server{Addr: args[1], Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() {
		<-ctx.Done()
		_ = srv.Close()
	}()
	if err := srv.ListenAndServe(); ctx.Err() == nil {
		return err
	}
	return nil
}

// bare is the least that a proxy in Go can be.
func bare(upstream *url.URL) http.Handler {
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(upstream)
			r.SetXForwarded()
		},
		Transport: &http.Transport{MaxIdleConnsPerHost: 1024, DisableCompression: true},
	}
}

// hold is the least that a server can hold: the body, until the client leaves.
func hold(_ http.ResponseWriter, r *http.Request) {
	body := make([]byte, max(r.ContentLength, 0))
	_, _ = io.ReadFull(r.Body, body) // what there is of it will do
	<-r.Context().Done()
	_ = body[len(body)/2:]
}

var answer = []byte(`{"id":"chatcmpl-1","object":"chat.completion","created":1700000000,"model":"warm","choices":[{"index":0,"message":{"role":"assistant","content":"` +
	string(bytes.Repeat([]byte("The small flame keeps the engine warm. "), 8)) + `"},"finish_reason":"stop"}],"usage":{"prompt_tokens":200,"completion_tokens":80,"total_tokens":280}}`)

// engine answers at once, or streams tokens that say when they were sent.
func engine(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	var asked struct {
		Stream bool `json:"stream"`
	}
	if json.Unmarshal(body, &asked) != nil {
		http.Error(w, "not JSON", http.StatusBadRequest)
		return
	}
	if !asked.Stream {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", strconv.Itoa(len(answer)))
		_, _ = w.Write(answer)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	flush := http.NewResponseController(w)
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for range tokens {
		select {
		case <-tick.C:
		case <-r.Context().Done():
			return
		}
		if _, err := fmt.Fprintf(w, "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"%d\"}}]}\n\n", time.Now().UnixNano()); err != nil || flush.Flush() != nil {
			return
		}
	}
	_, _ = io.WriteString(w, "data: [DONE]\n\n")
}
