// Package mlflow is an MLflow tracking server with a model registry, in memory:
// the REST API over HTTP, and a Go API to fill it. The demo runs on it, tests
// talk to it, and so does MLflow's own Python client (test/integration/mlflow
// runs the same script against this server and against the real one and
// compares what the client says).
//
// It keeps MLflow's habits, because clients trip over them:
//
//   - A missing alias is 400 INVALID_PARAMETER_VALUE, a missing model 404; a path
//     that is no call at all is 404 with HTML, a body that is no JSON an empty one.
//   - `version` is a JSON string, in requests too; timestamps are numbers; empty
//     lists and texts that nobody set are left out.
//   - Moving an alias does not touch any last_updated_timestamp.
//   - Deleting a version leaves its aliases dangling, after which the alias is
//     404; releases since have mended this (Options.Recent).
//   - A DELETE's input is its body; a number given out once is never given again.
//   - Searches carry no per-version aliases, their pages end at an offset in an
//     opaque token, and the newest change comes first unless order_by is given.
//   - The aliases `latest` and `v7` are refused, but `latest` can be read.
//   - Refused credentials are answered with text.
//   - An alias that moves is announced to webhooks as created; versions that are
//     deleted and stages are announced to nobody.
//
// Of tracking there is what a registration needs: experiments, logged models and
// runs as names for places in a store. Left out: metrics, traces, prompts,
// uploads to the artifact proxy, permissions on single models, workspaces, and the
// minute for which the real server caches who listens to an event.
package mlflow

import (
	"crypto/subtle"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Options adjusts New. The zero value is an open server under "/" with the
// manners of MLflow 3.11.
type Options struct {
	// Username and Password, when set, are required as Basic authentication.
	Username, Password string
	// Users are accepted besides, by name.
	Users map[string]User
	// Token, when set, is accepted as a Bearer token.
	Token string
	// PathPrefix is the path in front of the API, as behind an ingress.
	PathPrefix string
	// Recent takes on the manners of MLflow 3.17: deleting a version deletes its
	// aliases, tags hold 100,000 characters instead of 5,000, and a version whose
	// source is a logged model or a run must say so in model_id or run_id.
	Recent bool
	// ArtifactRoot is where new experiments keep their artifacts; empty is
	// s3://mlflow.
	ArtifactRoot string
	// Artifacts are the files behind the proxy, by their paths; nil means a server
	// with --no-serve-artifacts.
	Artifacts map[string][]byte
	// Presign gives the URL of a file in the server's store; nil means a server or a
	// store that has none (501).
	Presign func(path string) string
	// Deliver sends the webhooks' events; nil sends nothing. Its timeout bounds one
	// request, 30 seconds do where it has none.
	Deliver *http.Client
	// Backoff is the first wait before a refused delivery is repeated; 0 is
	// MLflow's second.
	Backoff time.Duration
	// Now stamps creations; nil means time.Now.
	Now func() time.Time
	// Intercept, when set, may answer a request itself (an error, a page, a
	// redirect) and then returns true.
	Intercept func(http.ResponseWriter, *http.Request) bool
}

// User is somebody who may use the registry.
type User struct {
	Password string
	// ReadOnly refuses everything but reading (403).
	ReadOnly bool
}

// Server is the registry. It is safe for concurrent use.
type Server struct {
	opts   Options
	routes map[string]route
	post   *courier

	mu          sync.Mutex
	models      map[string]*model
	logged      map[string]*loggedModel
	runs        map[string]*run
	experiments []*experiment // by id
	hooks       []*hook       // oldest first
	counts      map[string]int
	stopped     bool
}

// New returns an empty registry.
func New(opts Options) *Server {
	if opts.Now == nil {
		opts.Now = time.Now
	}
	if opts.ArtifactRoot == "" {
		opts.ArtifactRoot = "s3://mlflow"
	}
	opts.ArtifactRoot = strings.TrimRight(opts.ArtifactRoot, "/")
	opts.PathPrefix = strings.TrimRight(opts.PathPrefix, "/")
	s := &Server{
		opts: opts, routes: routes(), post: newCourier(opts),
		models: map[string]*model{}, logged: map[string]*loggedModel{},
		runs: map[string]*run{}, counts: map[string]int{},
	}
	s.experiments = []*experiment{{name: "Default", location: opts.ArtifactRoot + "/0"}}
	return s
}

// Calls returns how often a call was made: Calls("GET", "registered-models/alias").
// Ids in paths are written {id}: Calls("GET", "logged-models/{id}").
func (s *Server) Calls(method, call string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts[method+" "+call]
}

// SetDown makes every request answer 503 until it is called with false.
func (s *Server) SetDown(down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = down
}

// Settle waits until every event so far was delivered or given up.
func (s *Server) Settle() { s.post.wait() }

// Close gives up the deliveries that are under way. Only a server with
// Options.Deliver has any.
func (s *Server) Close() { s.post.close() }

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.opts.Intercept != nil && s.opts.Intercept(w, r) {
		return
	}
	path, ok := strings.CutPrefix(r.URL.Path, s.opts.PathPrefix)
	switch {
	case !ok:
		http.NotFound(w, r)
		return
	case path == "/health":
		writeText(w, http.StatusOK, "OK")
		return
	case path == "/version":
		writeText(w, http.StatusOK, s.version())
		return
	case s.isDown():
		writeText(w, http.StatusServiceUnavailable, "no healthy upstream")
		return
	}
	known, mayWrite := s.admit(r)
	switch {
	case !known:
		w.Header().Set("WWW-Authenticate", `Basic realm="mlflow"`)
		writeText(w, http.StatusUnauthorized, "You are not authenticated. Please see https://www.mlflow.org/docs/latest/auth/index.html#authenticating-to-mlflow on how to authenticate.")
	case !mayWrite && r.Method != http.MethodGet && !strings.HasSuffix(path, "/get-latest-versions"):
		writeText(w, http.StatusForbidden, "Permission denied")
	case path == "/api/3.0/mlflow/server-info":
		writeJSON(w, http.StatusOK, map[string]any{"store_type": "SqlStore", "workspaces_enabled": false})
	case strings.HasPrefix(path, artifactsPath):
		s.serveArtifacts(w, r, strings.TrimPrefix(path, artifactsPath))
	default:
		s.serveAPI(w, r, path)
	}
}

func (s *Server) version() string {
	if s.opts.Recent {
		return "3.17.2"
	}
	return "3.11.1"
}

func (s *Server) isDown() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stopped
}

// admit says whether a request comes from somebody known, and whether that
// somebody may change anything.
func (s *Server) admit(r *http.Request) (known, mayWrite bool) {
	if s.opts.Username == "" && s.opts.Token == "" && len(s.opts.Users) == 0 {
		return true, true
	}
	if name, password, ok := r.BasicAuth(); ok {
		if s.opts.Username != "" && same(name, s.opts.Username) && same(password, s.opts.Password) {
			return true, true
		}
		user, ok := s.opts.Users[name]
		return ok && same(password, user.Password), !user.ReadOnly
	}
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	return ok && s.opts.Token != "" && same(token, s.opts.Token), true
}

func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

func (s *Server) serveAPI(w http.ResponseWriter, r *http.Request, path string) {
	call, ok := strings.CutPrefix(path, "/api/2.0/mlflow/")
	if !ok {
		call, ok = strings.CutPrefix(path, "/ajax-api/2.0/mlflow/")
	}
	call, id := splitID(call)
	key := r.Method + " " + call
	to, known := s.routes[key]
	switch {
	case !ok || !known && !s.isPath(call):
		writePage(w, http.StatusNotFound)
		return
	case !known:
		writePage(w, http.StatusMethodNotAllowed)
		return
	}
	in, err := readInput(r)
	if errors.Is(err, errNoObject) {
		writePage(w, http.StatusInternalServerError)
		return
	}
	if err == nil {
		err = in.require(to.required)
	}
	if err != nil {
		writeError(w, err)
		return
	}
	if id != "" {
		in["id"] = id
	}
	body, later, err := s.call(key, to, in)
	if later != nil {
		body, err = json.Marshal(later(r.Context()))
	}
	if err != nil {
		writeError(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body) // the client has gone if this fails
}

// isPath reports whether there is a call of that path, by whatever method.
func (s *Server) isPath(call string) bool {
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPatch, http.MethodDelete} {
		if _, ok := s.routes[method+" "+call]; ok {
			return true
		}
	}
	return false
}

// call runs a handler under the lock. What the handler leaves for later (it does
// I/O) is returned.
func (s *Server) call(key string, to route, in input) ([]byte, afterwards, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts[key]++
	out, err := to.handler(s, in)
	if err != nil {
		return nil, nil, err
	}
	if later, ok := out.(afterwards); ok {
		return nil, later, nil
	}
	body, err := json.Marshal(out) // under the lock: out shares the models' maps
	return body, nil, err
}

// splitID takes the id out of paths like logged-models/m-1/tags.
func splitID(call string) (pattern, id string) {
	for _, kind := range []string{"logged-models", "webhooks"} {
		if rest, ok := strings.CutPrefix(call, kind+"/"); ok {
			id, tail, nested := strings.Cut(rest, "/")
			if nested {
				return kind + "/{id}/" + tail, id
			}
			return kind + "/{id}", id
		}
	}
	return call, ""
}
