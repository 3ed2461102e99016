package activator

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/pilotlight-dev/pilotlight/warmup/activator/openai"
)

// inference lists the POST paths that may wake a model. Everything else that
// an engine serves (LoRA loading, developer endpoints, /invocations, /metrics)
// is not reachable through the activator.
var inference = []string{
	"/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/embeddings",
	"/v1/messages", "/v1/messages/count_tokens", "/v1/audio/transcriptions", "/v1/audio/translations", "/v1/audio/speech",
	"/v1/score", "/v1/rerank", "/v2/embed", "/v2/rerank",
	"/tokenize", "/detokenize", "/pooling", "/classify", "/score", "/rerank",
}

// generating lists the paths whose answers tell that an engine goes down by
// their finish_reason.
var generating = []string{"/v1/chat/completions", "/v1/completions"}

// stored is a response that an engine keeps, with its actions. Nothing of the
// kind wakes a model: an engine that has slept remembers none.
var stored = regexp.MustCompile(`^/v1/responses/[A-Za-z0-9_-]+(/cancel)?$`)

// A kind of route is what the activator does with a request.
type kind int

const (
	kindInference kind = iota // hold, wake, send on
	kindRealtime              // the same for a WebSocket
	kindStored                // send on if a pod is Ready
	kindModels                // list the models
	kindModel                 // describe one
	kindProbe                 // say that we live
	kindOptions               // answer a preflight
)

// lookup says what a path is for and with which methods; false when it is not
// served.
func lookup(path string) (kind, []string, bool) {
	switch {
	case slices.Contains(inference, path):
		return kindInference, []string{http.MethodPost}, true
	case path == "/v1/realtime":
		return kindRealtime, []string{http.MethodGet}, true
	case path == "/v1/models":
		return kindModels, []string{http.MethodGet, http.MethodHead}, true
	case strings.HasPrefix(path, "/v1/models/"):
		return kindModel, []string{http.MethodGet, http.MethodHead}, true
	case path == "/health", path == "/healthz", path == "/ping":
		return kindProbe, []string{http.MethodGet, http.MethodHead}, true
	case stored.MatchString(path):
		if strings.HasSuffix(path, "/cancel") {
			return kindStored, []string{http.MethodPost}, true
		}
		return kindStored, []string{http.MethodGet, http.MethodDelete}, true
	}
	return 0, nil, false
}

// routes finds a pool by model name or path prefix. A nil pool has been claimed
// twice.
type routes struct {
	models   map[string]*pool
	prefixes map[string]*pool
	longest  []string // the prefixes, the longest first
	names    []string // the models to list, sorted
	faults   []string // what is claimed twice
}

func newRoutes(pools []*pool) *routes {
	r := &routes{models: map[string]*pool{}, prefixes: map[string]*pool{}}
	for _, p := range slices.Concat(readable(pools, true), readable(pools, false)) {
		t := p.settings()
		for _, name := range append([]string{t.ModelName}, t.ModelAliases...) {
			claim(r.models, name, p)
		}
		claim(r.prefixes, strings.TrimRight(t.PathPrefix, "/"), p)
	}
	for name, p := range r.models {
		if p != nil {
			r.names = append(r.names, name)
		} else {
			r.faults = append(r.faults, fmt.Sprintf("the model %q %v", name, errAmbiguous))
		}
	}
	for prefix, p := range r.prefixes {
		r.longest = append(r.longest, prefix)
		if p == nil {
			r.faults = append(r.faults, fmt.Sprintf("the path prefix %s %v", prefix, errAmbiguous))
		}
	}
	slices.Sort(r.names)
	slices.Sort(r.faults)
	slices.SortFunc(r.longest, func(a, b string) int { return len(b) - len(a) })
	return r
}

// readable are the pools whose present trigger can be read, or those where it
// cannot.
func readable(pools []*pool, can bool) []*pool {
	return slices.DeleteFunc(slices.Clone(pools), func(p *pool) bool { return p.stale == can })
}

// claim gives a name to a pool, or to nobody if several claim it; a pool whose
// trigger cannot be read any more comes last, and gives way.
func claim(m map[string]*pool, name string, p *pool) {
	if name == "" {
		return
	}
	if other, taken := m[name]; taken && other != p {
		if p.stale && (other == nil || !other.stale) {
			return
		}
		p = nil
	}
	m[name] = p
}

// A destination is what the address alone says of a request: what to do with
// it, the path under which an engine serves it, and the pool if a prefix names
// one.
type destination struct {
	*routes
	kind     kind
	path     string
	allow    string // methods, for the header Allow
	byPrefix *pool
}

// match looks at method, path and headers only, so that nothing is read of a
// request that is not served.
func (r *routes) match(req *http.Request) (destination, error) {
	d := destination{routes: r, path: req.URL.Path}
	for _, prefix := range r.longest {
		rest, ok := strings.CutPrefix(req.URL.Path, prefix+"/")
		if !ok {
			continue
		}
		d.path, d.byPrefix = "/"+rest, r.prefixes[prefix]
		if d.byPrefix == nil {
			return d, fmt.Errorf("the path prefix %s %w", prefix, errAmbiguous)
		}
		break
	}
	kind, methods, ok := lookup(d.path)
	if !ok {
		return d, errNoRoute
	}
	d.kind, d.allow = kind, strings.Join(append(methods, http.MethodOptions), ", ")
	switch {
	case req.Method == http.MethodOptions:
		d.kind = kindOptions
	case !slices.Contains(methods, req.Method):
		return d, errMethod
	case kind == kindRealtime && !asksForWebSocket(req.Header):
		return d, errUpgrade
	}
	return d, nil
}

// webSocket is the only protocol that a connection may be upgraded to.
const webSocket = "websocket"

func asksForWebSocket(h http.Header) bool {
	if !strings.EqualFold(h.Get("Upgrade"), webSocket) {
		return false
	}
	for _, line := range h["Connection"] {
		for token := range strings.SplitSeq(line, ",") {
			if strings.EqualFold(strings.TrimSpace(token), "Upgrade") {
				return true
			}
		}
	}
	return false
}

// stay takes out what asks to leave HTTP/1.1, but for the WebSocket of one that
// upgrades. Such a question may be left unanswered, and clients that try HTTP/2
// in this way expect that.
func stay(h http.Header, upgrades bool) {
	h.Del("Http2-Settings")
	if !upgrades {
		h.Del("Upgrade")
	}
}

// pool finds the target: by prefix, else by the body's model, else by ?model=.
// said is what the body said, and err what was wrong with it.
func (d destination) pool(query url.Values, said openai.Request, err error) (*pool, error) {
	if err != nil && !errors.Is(err, openai.ErrNoModel) {
		return nil, err
	}
	if d.byPrefix != nil {
		return d.byPrefix, nil
	}
	name := said.Model
	if name == "" {
		if name, err = queried(query); err != nil {
			return nil, err
		}
	}
	p, ok := d.models[name]
	switch {
	case !ok:
		return nil, fmt.Errorf("the model %q %w", name, errNotServed)
	case p == nil:
		return nil, fmt.Errorf("the model %q %w", name, errAmbiguous)
	}
	return p, nil
}

func queried(q url.Values) (string, error) {
	switch models := q["model"]; len(models) {
	case 0:
		return "", openai.ErrNoModel
	case 1:
		return models[0], nil
	}
	return "", openai.ErrTwice
}

// list returns the models that can be asked for: all, or those of one target.
func (d destination) list() []string {
	if d.byPrefix == nil {
		return d.names
	}
	t := d.byPrefix.settings()
	return append([]string{t.ModelName}, t.ModelAliases...)
}
