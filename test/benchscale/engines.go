package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// keepAlive is after how long uvicorn, under vLLM, closes an idle connection.
const keepAlive = 5 * time.Second

// moving are the metrics of a page that change from one scrape to the next;
// their families are written anew each time, the rest of the page is fixed.
var moving = []string{
	"vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:prompt_tokens_total", "vllm:generation_tokens_total", "vllm:request_success_total",
}

// Engines are the metrics pages of all pods of a fleet, each at its own
// address, as vLLM answers them: gzipped for whoever asks for that.
type engines struct {
	fleet  fleet
	began  time.Time
	plain  [][]byte // the fixed part of the page, by object
	zipped [][]byte
	served atomic.Int64
	writer sync.Pool // of *gzip.Writer
}

// newEngines makes the pages from one of a real engine, whose model is renamed.
func newEngines(ctx context.Context, f fleet, page []byte) (*engines, error) {
	fixed, name, err := split(page)
	if err != nil {
		return nil, err
	}
	e := &engines{fleet: f, began: time.Now(), plain: make([][]byte, f.objects), zipped: make([][]byte, f.objects)}
	group, _ := errgroup.WithContext(ctx)
	group.SetLimit(2)
	for i := f.asleep; i < f.objects; i++ {
		group.Go(func() error {
			e.plain[i] = bytes.ReplaceAll(fixed, []byte(name), []byte(f.model(i)))
			var out bytes.Buffer
			w, err := gzip.NewWriterLevel(&out, gzip.BestCompression) // Python's default
			if err != nil {
				return err
			}
			_, err = w.Write(e.plain[i])
			err = errors.Join(err, w.Close())
			e.zipped[i] = out.Bytes()
			return err
		})
	}
	return e, group.Wait()
}

// split takes the moving families out of a page and finds the name of its model.
func split(page []byte) (fixed []byte, model string, err error) {
	_, rest, found := strings.Cut(string(page), `model_name="`)
	model, _, closed := strings.Cut(rest, `"`)
	if !found || !closed {
		return nil, "", errors.New("the metrics page names no model")
	}
	for line := range bytes.Lines(page) {
		if !isMoving(string(line)) {
			fixed = append(fixed, line...)
		}
	}
	return fixed, model, nil
}

func isMoving(line string) bool {
	line = strings.TrimPrefix(strings.TrimPrefix(line, "# HELP "), "# TYPE ")
	for _, name := range moving {
		// A family of counters has series that end in _created beside _total.
		if rest, ok := strings.CutPrefix(line, strings.TrimSuffix(name, "_total")); ok && strings.ContainsAny(rest[:1], " {_") {
			series, _, _ := strings.Cut(strings.ReplaceAll(rest, "{", " "), " ")
			if series == "" || series == "_total" || series == "_created" {
				return true
			}
		}
	}
	return false
}

// numbers are what engine k says after a time: requests come and go, counters
// grow.
func numbers(k int, after time.Duration) (running, waiting, prompt, generated, finished uint64) {
	engine, seconds := uint64(k), uint64(max(after, 0).Seconds()) //nolint:gosec // pods are counted from zero
	running = 4 + (engine*7+seconds*5)%9
	if (engine+seconds)%10 == 0 {
		waiting = 2
	}
	tokens := uint64(after.Seconds()*400) + engine
	return running, waiting, 3 * tokens, tokens, tokens / 200
}

// tail is the moving part of engine k's page.
func (e *engines) tail(k int, after time.Duration) []byte {
	var b bytes.Buffer
	running, waiting, prompt, generated, finished := numbers(k, after)
	label := `{engine="0",model_name="` + e.fleet.model(e.fleet.objectOf(k)) + `"`
	family := func(name, kind, more string, value uint64) {
		fmt.Fprintf(&b, "# HELP %[1]s Of the engine.\n# TYPE %[1]s %[2]s\n%[1]s%[3]s%[4]s} %[5]d.0\n", name, kind, label, more, value)
	}
	family(moving[0], "gauge", "", running)
	family(moving[1], "gauge", "", waiting)
	family(moving[2], "counter", "", prompt)
	family(moving[3], "counter", "", generated)
	family(moving[4], "counter", `,finished_reason="stop"`, finished)
	return b.Bytes()
}

// serve answers at the address of every pod until ctx ends, and at base on
// GET /served with the number of pages served.
func (e *engines) serve(ctx context.Context, base net.Listener) error {
	listeners := make([]net.Listener, e.fleet.pods)
	var lc net.ListenConfig
	for k := range listeners {
		l, err := lc.Listen(ctx, "tcp", net.JoinHostPort(e.fleet.host(k), strconv.Itoa(e.fleet.port)))
		if err != nil {
			for _, l := range listeners[:k] {
				_ = l.Close() // unused
			}
			return fmt.Errorf("listening for engine %d: %w", k, err)
		}
		listeners[k] = l
	}
	group, ctx := errgroup.WithContext(ctx)
	control := http.NewServeMux()
	control.HandleFunc("GET /served", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, e.served.Load()) }) // a probe
	run := func(l net.Listener, h http.Handler) {
		srv := &http.Server{Handler: h, IdleTimeout: keepAlive, ReadHeaderTimeout: keepAlive}
		group.Go(func() error {
			if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				return fmt.Errorf("serving %s: %w", l.Addr(), err)
			}
			return nil
		})
		group.Go(func() error { <-ctx.Done(); return srv.Close() })
	}
	run(base, control)
	for k, l := range listeners {
		run(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { e.answer(w, r, k) }))
	}
	return group.Wait()
}

func (e *engines) answer(w http.ResponseWriter, r *http.Request, k int) {
	e.served.Add(1)
	i, tail := e.fleet.objectOf(k), e.tail(k, time.Since(e.began))
	w.Header().Set("Content-Type", "text/plain; version=1.0.0; charset=utf-8")
	head := e.plain[i]
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		// Two members, one after the other, are one gzip file: the fixed part
		// need not be compressed for every scrape.
		head, tail = e.zipped[i], e.zip(tail)
		w.Header().Set("Content-Encoding", "gzip")
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(head)+len(tail)))
	if _, err := w.Write(head); err == nil {
		_, _ = w.Write(tail) // whoever has hung up does not read it
	}
}

func (e *engines) zip(text []byte) []byte {
	var out bytes.Buffer
	w, ok := e.writer.Get().(*gzip.Writer)
	if ok {
		w.Reset(&out)
	} else {
		w, _ = gzip.NewWriterLevel(&out, gzip.BestSpeed) // a level that there is
	}
	_, _ = w.Write(text) // to memory
	_ = w.Close()
	e.writer.Put(w)
	return out.Bytes()
}
