package activator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pilotlight-dev/pilotlight/warmup/activator/line"
	"github.com/pilotlight-dev/pilotlight/warmup/activator/openai"
)

// listWithin bounds how long requests wait for the first list of targets.
const listWithin = 15 * time.Second

type contextKey struct{}

// A passage is one request on its way.
type passage struct {
	began  time.Time
	writer *writer

	pool      *pool
	payload   *payload
	stream    bool   // a stream of events is asked for
	generates bool   // the answer has a finish_reason
	wakes     bool   // may be held
	priority  int    // class in the line
	session   uint64 // conversation; with hasSession
	hasKey    bool

	until   time.Time           // when the hold budget ends
	item    *line.Item[*waiter] // its place in line
	place   *backend            // taken, and nothing sent yet
	held    time.Duration       // waited so far
	waited  bool                // was in line at all
	counted bool                // as an arrival
	retries int                 // attempts at engines that came to nothing

	upgrades bool      // to a WebSocket, which is asked for
	tunnel   io.Closer // to the engine, once it has upgraded

	class  string // how it ended, "" = not yet known
	status int
	reason string
	err    error
}

// passageOf returns the passage of a request.
func passageOf(r *http.Request) *passage {
	if way, ok := r.Context().Value(contextKey{}).(*passage); ok {
		return way
	}
	return &passage{}
}

// ServeHTTP implements http.Handler.
func (a *Activator) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	a.active.Add(1)
	defer a.active.Add(-1)
	w := newWriter(rw, r, a.opts.WriteTimeout)
	w.last = a.leaving.Load
	way := &passage{began: time.Now(), writer: w}
	r = r.WithContext(context.WithValue(r.Context(), contextKey{}, way))
	done := false
	defer func() { a.finish(w, r, way, done) }()
	a.handle(w, r, way)
	w.end()
	done = true
}

func (a *Activator) handle(w *writer, r *http.Request, way *passage) {
	if err := a.waitListed(r.Context()); err != nil {
		a.refuse(w, r, err)
		return
	}
	dest, err := a.routes.Load().match(r)
	if dest.allow != "" && (err != nil || dest.kind == kindOptions) {
		w.Header().Set("Allow", dest.allow)
	}
	if err == nil && dest.kind != kindProbe && dest.kind != kindOptions && !a.authorized(r) {
		err = errKey
	}
	if err != nil {
		a.refuse(w, r, err)
		return
	}
	switch dest.kind {
	case kindInference:
		a.infer(w, r, way, dest)
	case kindRealtime, kindStored:
		way.upgrades = dest.kind == kindRealtime
		way.wakes = way.upgrades
		a.pass(w, r, way, dest)
	default:
		way.class = classLocal
		a.local(w, r, dest)
	}
}

// waitListed waits for the first list of targets: a proxy that has just
// started does not know yet what exists.
func (a *Activator) waitListed(ctx context.Context) error {
	if a.Listed() {
		return nil
	}
	timer := time.NewTimer(min(listWithin, a.opts.MaxHold))
	defer timer.Stop()
	select {
	case <-a.listed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return errNotListed
	}
}

// authorized checks the API key, where keys are to be checked at all. It goes
// on to the engine untouched.
func (a *Activator) authorized(r *http.Request) bool {
	if a.opts.Keys == nil {
		return true
	}
	if kind, key, ok := strings.Cut(r.Header.Get("Authorization"), " "); ok && strings.EqualFold(kind, "Bearer") {
		return a.opts.Keys.Allowed(strings.TrimSpace(key))
	}
	key := r.Header.Get("X-Api-Key") // how Anthropic's clients send it
	return key != "" && a.opts.Keys.Allowed(key)
}

// infer serves an inference request.
func (a *Activator) infer(w *writer, r *http.Request, way *passage, dest destination) {
	if err := uncompressed(r.Header); err != nil {
		a.refuse(w, r, err)
		if r.Header.Get("Expect") == "" {
			readOn(w, r)
		}
		return
	}
	body, err := a.read(w, r, func(start []byte) error { return early(r, dest, start) })
	defer body.drop()
	if err != nil {
		began := body.size > 0
		body.drop() // what is read on is thrown away
		a.refuse(w, r, err)
		if way.class != classGone && !errors.Is(err, errSlow) && (began || r.Header.Get("Expect") == "") {
			readOn(w, r)
		}
		return
	}
	said, err := openai.Read(r.Header.Get("Content-Type"), body.bytes())
	if way.pool, err = dest.pool(r.URL.Query(), said, err); err != nil {
		a.refuse(w, r, err)
		return
	}
	way.payload, way.stream, way.wakes = body, said.Stream, true
	way.generates = slices.Contains(generating, dest.path)
	if err := a.classifyRequest(r, way); err != nil {
		a.refuse(w, r, err)
		return
	}
	a.send(w, r, way, dest.path)
}

// uncompressed refuses a body that is compressed: it would be unpacked here only to
// learn the model's name, and no engine of the kinds we serve unpacks it.
func uncompressed(h http.Header) error {
	for _, line := range h.Values("Content-Encoding") {
		for coding := range strings.SplitSeq(line, ",") {
			if coding = strings.TrimSpace(coding); coding != "" && !strings.EqualFold(coding, "identity") {
				return errEncoding
			}
		}
	}
	return nil
}

// early refuses a large request from its beginning, if that names a model
// which does not exist or whose line is full: a flood for a sleeping model
// shall not take others' memory and bandwidth first.
func early(r *http.Request, dest destination, start []byte) error {
	said, _ := openai.Read(r.Header.Get("Content-Type"), start) // it is cut, and need not be right yet
	if said.Model == "" && dest.byPrefix == nil {
		return nil
	}
	p, err := dest.pool(nil, said, nil)
	if err != nil {
		return err
	}
	return p.room(max(r.ContentLength, int64(len(start))))
}

// pass serves a request without a body of interest: a WebSocket or a question
// about a stored response.
func (a *Activator) pass(w *writer, r *http.Request, way *passage, dest destination) {
	pool, err := dest.pool(r.URL.Query(), openai.Request{}, openai.ErrNoModel)
	if err == nil {
		way.pool, way.payload = pool, &payload{memory: &a.memory, owned: true}
		defer way.payload.drop()
		err = a.classifyRequest(r, way)
	}
	if err != nil {
		a.refuse(w, r, err)
		return
	}
	a.send(w, r, way, dest.path)
}

// classifyRequest reads the priority and what names the conversation.
func (a *Activator) classifyRequest(r *http.Request, way *passage) (err error) {
	if a.opts.PriorityHeader != "" {
		if way.priority, err = priority(r.Header.Get(a.opts.PriorityHeader)); err != nil {
			return err
		}
	}
	if !a.opts.Affinity.On {
		return nil
	}
	if h := a.opts.Affinity.Header; h != "" && r.Header.Get(h) != "" {
		way.session, way.hasKey = hash(r.Header.Get(h)), true
		return nil
	}
	way.session, way.hasKey = openai.Session(way.payload.bytes(), a.opts.Affinity.Bytes)
	return nil
}

func hash(s string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(s)) // a hash takes everything
	return h.Sum64()
}

// priority reads a class. Numbers beyond the bounds count as the bound.
func priority(value string) (int, error) {
	switch strings.ToLower(value) {
	case "", "normal":
		return 0, nil
	case "high":
		return 1, nil
	case "low":
		return -1, nil
	}
	n, err := strconv.Atoi(value)
	if err != nil {
		return 0, errPriority
	}
	return min(max(n, line.Lowest), line.Highest), nil
}

// send waits for a place and sends the request to it. Waiting comes before the
// proxy so that a held request costs little memory.
func (a *Activator) send(w *writer, r *http.Request, way *passage, path string) {
	way.until = way.began.Add(a.opts.MaxHold)
	b, err := a.wait(r.Context(), way)
	if err != nil {
		a.refuse(w, r, err)
		return
	}
	way.place = b
	address := *r.URL
	address.Path, address.RawPath = path, ""
	out := *r
	out.URL = &address
	out.Body, out.ContentLength = http.NoBody, 0 // places puts the body in
	stay(out.Header, way.upgrades)
	defer func() {
		if way.tunnel != nil { // the proxy closes it only if it got as far as to use it
			_ = way.tunnel.Close()
		}
	}()
	a.proxy.ServeHTTP(w, &out)
}

// local answers what needs no engine.
func (a *Activator) local(w *writer, r *http.Request, dest destination) {
	a.allowOrigin(w, r)
	switch dest.kind {
	case kindModels:
		data := []map[string]any{}
		for _, name := range dest.list() {
			data = append(data, model(name))
		}
		writeJSON(w, map[string]any{"object": "list", "data": data})
	case kindModel:
		name := strings.TrimPrefix(dest.path, "/v1/models/")
		if !slices.Contains(dest.list(), name) {
			a.refuse(w, r, fmt.Errorf("the model %q %w", name, errNotServed))
			return
		}
		writeJSON(w, model(name))
	case kindOptions:
		a.preflight(w, r, dest)
	default:
		w.WriteHeader(http.StatusOK)
	}
}

func model(name string) map[string]any {
	return map[string]any{"id": name, "object": "model", "created": 0, "owned_by": "pilotlight"}
}

// preflight answers a browser's question whether it may send the request. The
// engine never sees it: a question wakes nobody.
func (a *Activator) preflight(w *writer, r *http.Request, dest destination) {
	if w.Header().Get("Access-Control-Allow-Origin") != "" && r.Header.Get("Access-Control-Request-Method") != "" {
		w.Header().Set("Access-Control-Allow-Methods", dest.allow)
		if asked := r.Header.Values("Access-Control-Request-Headers"); len(asked) > 0 {
			w.Header().Set("Access-Control-Allow-Headers", strings.Join(asked, ", "))
		}
		w.Header().Set("Access-Control-Max-Age", "600")
	}
	w.WriteHeader(http.StatusNoContent)
}

// allowOrigin lets a web page read an answer of our own. Answers of engines
// carry the engines' word on that.
func (a *Activator) allowOrigin(w http.ResponseWriter, r *http.Request) {
	origin := r.Header.Get("Origin")
	if origin == "" {
		return
	}
	switch {
	case slices.Contains(a.opts.Origins, "*"):
		w.Header().Set("Access-Control-Allow-Origin", "*")
	case slices.Contains(a.opts.Origins, origin):
		w.Header().Set("Access-Control-Allow-Origin", origin)
		w.Header().Add("Vary", "Origin")
	}
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	_ = json.NewEncoder(w).Encode(v) // a client that has gone needs no answer
}
