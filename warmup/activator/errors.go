package activator

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/pilotlight-dev/pilotlight/warmup/activator/openai"
)

// Why a request is not served. Each is answered with a status of its own.
var (
	errNotServed  = errors.New("does not exist")
	errAmbiguous  = errors.New("is claimed by more than one ScaledObject and served by none until that is settled")
	errNoRoute    = errors.New("this path is not served here")
	errMethod     = errors.New("this path is not served with this method")
	errUpgrade    = errors.New("this path is for WebSocket connections")
	errKey        = errors.New("the API key is missing or not valid")
	errEncoding   = errors.New("the body is compressed, which engines do not read: send it without Content-Encoding")
	errPriority   = errors.New("the priority must be high, normal, low or a whole number from -10 to 10")
	errFull       = errors.New("too many requests are waiting for this model")
	errFullTotal  = errors.New("too many requests are waiting here")
	errHold       = errors.New("no replica became ready in time")
	errAsleep     = errors.New("the model is asleep, and this request does not wake it")
	errFailed     = errors.New("the model cannot start")
	errGone       = errors.New("the model is not served any more")
	errDraining   = errors.New("this replica of the proxy is going away: try again")
	errCut        = errors.New("this replica of the proxy has gone away: try again")
	errLeaving    = errors.New("the engine is going away: try again")
	errMemory     = errors.New("too many requests are in memory")
	errSlow       = errors.New("the request came too slowly")
	errNotListed  = errors.New("the targets are not known yet: try again")
	errEngine     = errors.New("the engine did not answer")
	errSwitched   = errors.New("the engine switched to a protocol that nobody asked for")
	errUnexpected = errors.New("request without a route")
)

// statusClientClosed is what logs call a request whose client went away. It is
// never sent.
const statusClientClosed = 499

// retryAfter is what a client is asked to wait when it cannot be held.
const retryAfter = 5 * time.Second

// A refusal is how an error is answered.
type refusal struct {
	is     error
	status int
	code   string // of OpenAI's error shape, and the class in logs and metrics
	retry  bool   // coming again may help
}

// refusals are looked through in order.
var refusals = []refusal{
	{openai.ErrNoModel, http.StatusNotFound, "model_not_found", false},
	{errNotServed, http.StatusNotFound, "model_not_found", false},
	{errNoRoute, http.StatusNotFound, "not_found", false},
	{errMethod, http.StatusMethodNotAllowed, "method_not_allowed", false},
	{errUpgrade, http.StatusUpgradeRequired, "upgrade_required", false},
	{errKey, http.StatusUnauthorized, "invalid_api_key", false},
	{errAmbiguous, http.StatusConflict, "model_ambiguous", false},
	{openai.ErrBadModel, http.StatusBadRequest, "invalid_request", false},
	{openai.ErrTwice, http.StatusBadRequest, "invalid_request", false},
	{openai.ErrNotJSON, http.StatusBadRequest, "invalid_request", false},
	{openai.ErrNotForm, http.StatusBadRequest, "invalid_request", false},
	{errEncoding, http.StatusUnsupportedMediaType, "unsupported_encoding", false},
	{errPriority, http.StatusBadRequest, "invalid_request", false},
	{errSlow, http.StatusRequestTimeout, "upload_too_slow", false},
	{errMemory, http.StatusServiceUnavailable, "overloaded", true},
	{errFull, http.StatusTooManyRequests, "hold_queue_full", true},
	{errFullTotal, http.StatusServiceUnavailable, "overloaded", true},
	{errHold, http.StatusServiceUnavailable, "model_not_ready", true},
	{errAsleep, http.StatusServiceUnavailable, "model_asleep", true},
	{errFailed, http.StatusServiceUnavailable, "model_start_failed", true},
	{errGone, http.StatusServiceUnavailable, "model_gone", true},
	{errDraining, http.StatusServiceUnavailable, "draining", true},
	{errCut, http.StatusServiceUnavailable, classCut, true},
	{errLeaving, http.StatusServiceUnavailable, "engine_draining", true},
	{errNotListed, http.StatusServiceUnavailable, "not_ready", true},
}

// classify finds the refusal for an error; whatever is not known is the
// engine's fault.
func classify(err error) refusal {
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return refusal{err, http.StatusRequestEntityTooLarge, classTooLarge, false}
	}
	for _, r := range refusals {
		if errors.Is(err, r.is) {
			return r
		}
	}
	return refusal{errEngine, http.StatusBadGateway, classGateway, false}
}

// A startError adds what the scaler said about a start.
type startError struct {
	error
	reason string        // class: image, crash, ...; "" = none was given
	retry  time.Duration // when a new start may be tried; 0 = unknown
}

func (e *startError) Unwrap() error { return e.error }

func (e *startError) Error() string {
	if e.reason == "" {
		return e.error.Error()
	}
	return fmt.Sprintf("%v: %s", e.error, e.reason)
}

// refuse answers a request that was not sent on, in the shape of OpenAI's
// errors. It is the proxy's error handler, too.
func (a *Activator) refuse(w http.ResponseWriter, r *http.Request, err error) {
	way := passageOf(r)
	if isCut(r.Context()) {
		err = errCut
	} else if r.Context().Err() != nil && !errors.Is(err, errSlow) { // net/http ends the context with a failed read
		way.class, way.status = classGone, statusClientClosed
		return
	}
	if errors.Is(err, errClientWrite) { // finish tells how
		return
	}
	ref := classify(err)
	way.class, way.status = ref.code, ref.status
	way.err = err
	message := err.Error()
	var start *startError
	known := errors.As(err, &start)
	switch ref.status {
	case http.StatusRequestEntityTooLarge:
		message = fmt.Sprintf("the request is larger than %d bytes", a.opts.MaxBody)
	case http.StatusBadGateway: // addresses of pods are not for clients
		message = errEngine.Error()
	case http.StatusUnauthorized:
		w.Header().Set("WWW-Authenticate", "Bearer")
	case http.StatusUnsupportedMediaType: // RFC 7694, section 3
		w.Header().Set("Accept-Encoding", "identity")
	case http.StatusUpgradeRequired:
		w.Header().Set("Upgrade", "websocket")
		w.Header().Set("Connection", "Upgrade")
	}
	if ref.retry {
		wait := retryAfter
		if known && start.retry > 0 {
			wait = start.retry
		}
		w.Header().Set("Retry-After", strconv.Itoa(int(wait.Seconds())))
	}
	if known && start.reason != "" {
		way.reason = start.reason
		w.Header().Set("X-Pilotlight-Reason", start.reason)
	}
	a.allowOrigin(w, r)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(ref.status)
	_, _ = w.Write(openai.Error(ref.status, ref.code, message)) // a client that has gone needs no answer
}
