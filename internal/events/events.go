// Package events writes Kubernetes Events about ScaledObjects, sparingly.
//
// A [Recorder] takes warnings and notes without blocking and writes them from one
// goroutine. The same one about the same object is one Event whose count
// and time are brought up to date, at most every ten minutes; one whose words
// have changed is brought up to date at most every ten seconds; and all objects
// together cause no more than a handful of writes a second. What is too much is
// dropped: events are for people, and every one of them is a log line and a
// metric as well.
//
// Rights needed: create and patch on events where the ScaledObjects live.
// Without them nothing fails: one log line an hour says so.
package events

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// The reasons of the events that the scaler writes.
const (
	StartFailed       = "StartFailed"       // a start passed its deadline; the next try waits
	StartFailing      = "StartFailing"      // a starting pod cannot come up as it is
	PointerBroken     = "PointerBroken"     // the model reference leads nowhere
	CreditExpired     = "CreditExpired"     // a start takes too long to be counted on
	EngineStalled     = "EngineStalled"     // load, and no token for minutes
	ModelNameConflict = "ModelNameConflict" // two ScaledObjects claim one model name
	DemandUnknown     = "DemandUnknown"     // the source of demand is silent
	ModelSwapped      = "ModelSwapped"      // another version of the model is published; no warning
)

// Reasons lists every reason, for the reference page.
func Reasons() []string {
	return []string{StartFailed, StartFailing, PointerBroken, CreditExpired, EngineStalled, ModelNameConflict, DemandUnknown, ModelSwapped}
}

// Object is a ScaledObject. Without a UID `kubectl describe` does not find the
// event.
type Object struct{ Namespace, Name, UID string }

const (
	repeatAfter  = 10 * time.Minute // the same words
	rewordAfter  = 10 * time.Second // other words
	forgetAfter  = time.Hour        // then the next is a new event: the API server forgets it too
	sayDenied    = time.Hour
	restDenied   = time.Minute // without rights, how long nothing is tried
	callTimeout  = 5 * time.Second
	queueLength  = 256
	burst        = 25
	writeEvery   = 200 * time.Millisecond // on average
	maxRemember  = 10_000
	maxMessage   = 1024 // bytes, as the API server takes
	maxEventName = 253
)

// Recorder writes events; Run it. The zero value with a Client works.
type Recorder struct {
	client    kubernetes.Interface
	component string
	log       *slog.Logger
	queue     chan warning

	// Owned by Run.
	known    map[subject]*written
	tokens   float64
	filled   time.Time
	deniedAt time.Time // last refusal
	saidAt   time.Time // last log line about refusals
}

type subject struct {
	Object
	reason string
}

type warning struct {
	subject
	kind, message string
}

type written struct {
	name, message string
	count         int32
	last          time.Time // of the last write
}

// New returns a Recorder that writes in the name of component. A nil logger
// discards.
func New(client kubernetes.Interface, component string, log *slog.Logger) *Recorder {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Recorder{
		client: client, component: component, log: log, queue: make(chan warning, queueLength),
		known: map[subject]*written{}, tokens: burst,
	}
}

// Warn asks for an event. It never blocks; what comes too fast is dropped.
func (r *Recorder) Warn(o Object, reason, message string) {
	r.ask(warning{subject{o, reason}, corev1.EventTypeWarning, clip(message)})
}

// Note is Warn for what is worth knowing, and nothing wrong: each is an Event of
// its own.
func (r *Recorder) Note(o Object, reason, message string) {
	r.ask(warning{subject{o, reason}, corev1.EventTypeNormal, clip(message)})
}

func (r *Recorder) ask(w warning) {
	select {
	case r.queue <- w:
	default:
	}
}

// Run writes until ctx ends.
func (r *Recorder) Run(ctx context.Context) {
	r.filled = time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case w := <-r.queue:
			r.take(ctx, w, time.Now())
		}
	}
}

// take writes a warning if it is due.
func (r *Recorder) take(ctx context.Context, w warning, now time.Time) {
	k := r.known[w.subject]
	if w.kind == corev1.EventTypeNormal {
		k = nil // each note is about something else
	}
	if k != nil && now.Sub(k.last) > forgetAfter {
		delete(r.known, w.subject)
		k = nil
	}
	if k != nil {
		k.count++
		wait := repeatAfter
		if k.message != w.message {
			wait = rewordAfter
		}
		if now.Sub(k.last) < wait {
			return
		}
	}
	if !r.allowed(now) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	err := r.write(ctx, w, k, now)
	if err != nil && ctx.Err() == nil {
		r.complain(err, now)
	}
}

// allowed takes a token, unless there is none or the rights are missing.
func (r *Recorder) allowed(now time.Time) bool {
	if !r.deniedAt.IsZero() && now.Sub(r.deniedAt) < restDenied {
		return false
	}
	r.tokens = min(r.tokens+float64(now.Sub(r.filled))/float64(writeEvery), burst)
	r.filled = now
	if r.tokens < 1 {
		return false
	}
	r.tokens--
	return true
}

// write brings the event up to date, or makes a new one where there is none.
func (r *Recorder) write(ctx context.Context, w warning, k *written, now time.Time) error {
	events := r.client.CoreV1().Events(w.Namespace)
	if k != nil {
		patch, err := json.Marshal(map[string]any{"count": k.count, "lastTimestamp": metav1.Time{Time: now}, "message": w.message})
		if err != nil {
			return err
		}
		_, err = events.Patch(ctx, k.name, types.MergePatchType, patch, metav1.PatchOptions{})
		if err == nil {
			k.message, k.last = w.message, now
			return nil
		}
		if !apierrors.IsNotFound(err) {
			return err
		}
	}
	e := r.event(w, now)
	if _, err := events.Create(ctx, e, metav1.CreateOptions{}); err != nil {
		return err
	}
	if w.kind == corev1.EventTypeNormal {
		return nil
	}
	if len(r.known) >= maxRemember {
		clear(r.known) // a few events are written twice
	}
	r.known[w.subject] = &written{name: e.Name, message: w.message, count: 1, last: now}
	return nil
}

func (r *Recorder) event(w warning, now time.Time) *corev1.Event {
	suffix := fmt.Sprintf(".%x", now.UnixNano())
	at := metav1.Time{Time: now}
	return &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: w.Name[:min(len(w.Name), maxEventName-len(suffix))] + suffix},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: "keda.sh/v1alpha1", Kind: "ScaledObject", Namespace: w.Namespace, Name: w.Name, UID: types.UID(w.UID),
		},
		Reason: w.reason, Message: w.message, Type: w.kind, Count: 1, FirstTimestamp: at, LastTimestamp: at,
		Source: corev1.EventSource{Component: r.component}, ReportingController: r.component,
	}
}

// complain logs a failed write; missing rights only once in a while.
func (r *Recorder) complain(err error, now time.Time) {
	if !apierrors.IsForbidden(err) && !apierrors.IsUnauthorized(err) {
		r.log.Warn("writing an event", "error", err)
		return
	}
	r.deniedAt = now
	if r.saidAt.IsZero() || now.Sub(r.saidAt) >= sayDenied {
		r.saidAt = now
		r.log.Warn("events cannot be written, which is said once an hour: grant create and patch on events", "error", err)
	}
}

// clip makes a message one line that the API server takes.
func clip(s string) string {
	s = strings.Join(strings.Fields(strings.ToValidUTF8(s, "?")), " ")
	if len(s) > maxMessage {
		s = strings.ToValidUTF8(s[:maxMessage-3], "") + "..."
	}
	return s
}
