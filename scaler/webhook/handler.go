package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	maxBody     = 64 << 10
	maxSecret   = 4 << 10
	maxSkew     = 5 * time.Minute
	bodyWithin  = 10 * time.Second // nobody may keep a connection by sending slowly
	maxSeen     = 10_000           // delivery ids that are remembered
	maxIDLength = 128
	maxName     = 256 // of a model or an alias, as MLflow has it
)

// Options configures a Handler. SecretFile and Nudge are required.
type Options struct {
	SecretFile string                // read anew for every delivery
	Nudge      func(ref string)      // must not block
	Logger     *slog.Logger          // default: discard
	Registerer prometheus.Registerer // default: none
}

// Handler answers deliveries:
//
//	202  taken, ignored because it is about something else, or seen before
//	400  signed, but not a delivery that can be read
//	401  not signed with the secret, or older than five minutes
//	413  more than 64 KiB
//	503  the secret cannot be read: MLflow tries again
type Handler struct {
	opts       Options
	deliveries *prometheus.CounterVec

	mu   sync.Mutex
	seen map[string]time.Time // by delivery id, until when it would be accepted again
}

// New fails when the secret cannot be read now, or the metrics cannot be
// registered.
func New(opts Options) (*Handler, error) {
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.Registerer == nil {
		opts.Registerer = prometheus.NewRegistry()
	}
	if _, err := readSecret(opts.SecretFile); err != nil {
		return nil, err
	}
	h := &Handler{opts: opts, seen: map[string]time.Time{}, deliveries: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "pilotlight_webhook_deliveries_total", Help: "Webhook deliveries by result: nudged, ignored, duplicate, unauthorized, stale, malformed, too_large or no_secret.",
	}, []string{"result"})}
	return h, opts.Registerer.Register(h.deliveries)
}

// refusal is an answer other than 202.
type refusal struct {
	status int
	result string // label of the metric
	text   string
}

func (r *refusal) Error() string { return r.text }

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	result, text, err := h.take(w, r, time.Now())
	status := http.StatusAccepted
	var no *refusal
	if errors.As(err, &no) {
		status, result, text = no.status, no.result, no.text
		h.opts.Logger.Warn("webhook delivery refused", "result", result, "reason", text, "from", r.RemoteAddr)
	}
	h.deliveries.WithLabelValues(result).Inc()
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text+"\n") // the sender has gone if this fails
}

// take checks a delivery and passes it on. Its error is a *refusal.
func (h *Handler) take(w http.ResponseWriter, r *http.Request, now time.Time) (result, text string, err error) {
	_ = http.NewResponseController(w).SetReadDeadline(now.Add(bodyWithin)) // a real connection has one
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return "", "", &refusal{http.StatusRequestEntityTooLarge, "too_large", fmt.Sprintf("more than %d bytes", maxBody)}
	case err != nil:
		return "", "", &refusal{http.StatusBadRequest, "malformed", "the body could not be read"}
	}
	secret, err := readSecret(h.opts.SecretFile)
	if err != nil {
		h.opts.Logger.Error("the webhook's secret cannot be read", "error", err)
		return "", "", &refusal{http.StatusServiceUnavailable, "no_secret", "the secret cannot be read here"}
	}
	id, err := authentic(r.Header, body, secret, now)
	if err != nil {
		return "", "", err
	}
	e, err := readEvent(body)
	if err != nil {
		return "", "", err
	}
	if h.repeated(id, now) {
		return "duplicate", "seen before", nil
	}
	ref := e.ref()
	if ref == "" {
		return "ignored", "no alias has moved", nil
	}
	h.opts.Logger.Info("model alias moved", "ref", ref, "action", e.Action, "version", e.Data.Version)
	h.opts.Nudge(ref)
	return "nudged", "agents of " + ref + " are nudged", nil
}

// authentic checks signature and age, and returns the delivery's id.
func authentic(header http.Header, body, secret []byte, now time.Time) (string, error) {
	unauthorized := func(text string) error { return &refusal{http.StatusUnauthorized, "unauthorized", text} }
	id, stamp := header.Get("X-MLflow-Delivery-Id"), header.Get("X-MLflow-Timestamp")
	given, versioned := strings.CutPrefix(header.Get("X-MLflow-Signature"), "v1,")
	if id == "" || len(id) > maxIDLength || stamp == "" || !versioned {
		return "", unauthorized("not signed: give the webhook a secret")
	}
	mac := hmac.New(sha256.New, secret)
	_, _ = fmt.Fprintf(mac, "%s.%s.", id, stamp) // a hash takes everything
	_, _ = mac.Write(body)
	sum, err := base64.StdEncoding.DecodeString(given)
	if err != nil || !hmac.Equal(sum, mac.Sum(nil)) {
		return "", unauthorized("the signature does not fit: is it the same secret on both sides?")
	}
	seconds, err := strconv.ParseInt(stamp, 10, 64)
	if err != nil {
		return "", unauthorized("the timestamp is no number of seconds")
	}
	if age := now.Sub(time.Unix(seconds, 0)); age > maxSkew || age < -maxSkew {
		return "", &refusal{http.StatusUnauthorized, "stale", fmt.Sprintf("more than %v old or ahead: do the clocks agree?", maxSkew)}
	}
	return id, nil
}

// repeated reports whether id has been seen, and remembers it for as long as
// its delivery would pass. Over the bound the oldest are forgotten: to repeat
// one is harmless.
func (h *Handler) repeated(id string, now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if until, ok := h.seen[id]; ok && now.Before(until) {
		return true
	}
	if len(h.seen) >= maxSeen {
		for id, until := range h.seen {
			if !now.Before(until) {
				delete(h.seen, id)
			}
		}
		if len(h.seen) >= maxSeen {
			clear(h.seen)
		}
	}
	h.seen[id] = now.Add(2 * maxSkew)
	return false
}

// An event is the body of a delivery.
type event struct {
	Entity string `json:"entity"`
	Action string `json:"action"`
	Data   struct {
		Name    string `json:"name"`
		Alias   string `json:"alias"`
		Version string `json:"version"`
	} `json:"data"`
}

func readEvent(body []byte) (event, error) {
	var e event
	if err := json.Unmarshal(body, &e); err != nil || e.Entity == "" || e.Action == "" {
		return e, &refusal{http.StatusBadRequest, "malformed", "the body is no event: entity and action are needed"}
	}
	if e.Entity == aliasEntity && (e.Data.Name == "" || e.Data.Alias == "" || len(e.Data.Name) > maxName || len(e.Data.Alias) > maxName) {
		return e, &refusal{http.StatusBadRequest, "malformed", "the event names no model or no alias"}
	}
	return e, nil
}

const aliasEntity = "model_version_alias"

// ref is the reference whose meaning may have changed, as agents write it; ""
// for none.
func (e event) ref() string {
	if e.Entity != aliasEntity || e.Action != "created" && e.Action != "deleted" {
		return ""
	}
	return "models:/" + e.Data.Name + "@" + e.Data.Alias
}

// readSecret is never part of an error.
func readSecret(path string) ([]byte, error) {
	f, err := os.Open(path) //nolint:gosec // the operator names it
	if err != nil {
		return nil, err // names the file
	}
	defer f.Close() //nolint:errcheck // it is only read
	body, err := io.ReadAll(io.LimitReader(f, maxSecret+1))
	if err != nil {
		return nil, err // as above
	}
	secret := strings.TrimRight(string(body), "\r\n")
	if secret == "" || len(body) > maxSecret {
		return nil, fmt.Errorf("%s holds no secret: 1 to %d bytes are expected", path, maxSecret)
	}
	return []byte(secret), nil
}
