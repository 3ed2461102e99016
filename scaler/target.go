package scaler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pilotlight-dev/pilotlight/internal/trigger"
	"github.com/pilotlight-dev/pilotlight/internal/workload"
	"github.com/pilotlight-dev/pilotlight/scaler/engine"
	"github.com/pilotlight-dev/pilotlight/scaler/policy"
)

// ErrUnknown is returned when nothing can be said about a target, not even that
// its replicas should stay as they are.
var ErrUnknown = errors.New("unknown")

// A target is one trigger of one ScaledObject: a loop that samples and
// decides, and the latest outcome for everybody who asks.
type target struct {
	key     key
	trigger trigger.Trigger
	opts    Options
	metrics *metrics
	log     *slog.Logger
	demands Demands // what waits outside: the activators or a source; nil for none
	source  Source  // demands, where it is a source
	names   *names
	apart   func(func()) // runs what must not keep the loop waiting

	latest atomic.Pointer[outcome]
	first  chan struct{} // closed with the first outcome
	used   atomic.Int64  // last time anybody asked, Unix nanoseconds
	pause  atomic.Int64  // longest time between two askings, nanoseconds

	ended   <-chan struct{} // closed when the loop has to end, or has
	end     context.CancelFunc
	evicted atomic.Bool // it had to give way to another trigger

	mu          sync.Mutex
	subscribers map[chan struct{}]struct{}
	problems    map[string]string  // why a pod cannot be read, by pod
	believed    map[string]float64 // last load that was believed, by pod
	doubted     map[string]float64 // and one since that was not

	// Owned by the loop.
	state     policy.State
	kept      policy.State // as last handed to Memory
	keptAt    time.Time
	loads     map[string]policy.Load // last known load by pod
	askedAt   time.Time              // when the scale target was asked last, and what it said
	lastAsked policy.Count
	meter     meter
	marker    marker
}

// An outcome is what the last look at a target brought.
type outcome struct {
	policy.Decision
	Workload workload.Workload
	Err      error // why there is no new decision, nil otherwise

	conflict    string           // what is wrong with the model name
	frozen      bool             // Decision keeps what there is until that is mended
	silentSince time.Time        // since when the demand is unknown, zero while it is known
	failure     workload.Failure // why nothing runs, as last seen
	failed      string           // the same in words
	failedAt    time.Time        // when waiting was last seen to be useless
	conditions  []condition
}

// same reports whether nothing but the time differs.
func (o *outcome) same(other *outcome) bool {
	return o.Known == other.Known && o.Replicas == other.Replicas && o.Value == other.Value && o.Active == other.Active &&
		o.Reason == other.Reason && o.Terms == other.Terms && (o.Err == nil) == (other.Err == nil) &&
		o.failure == other.failure && slices.Equal(o.conditions, other.conditions)
}

func newTarget(k key, t trigger.Trigger, opts Options, m *metrics) *target {
	out := &target{
		key: k, trigger: t, opts: opts, metrics: m,
		log:         opts.Logger.With("namespace", k.Namespace, "scaledObject", k.Name),
		first:       make(chan struct{}),
		subscribers: map[chan struct{}]struct{}{},
		problems:    map[string]string{},
		believed:    map[string]float64{},
		doubted:     map[string]float64{},
		loads:       map[string]policy.Load{},
		meter:       meter{last: map[string]engine.Reading{}},
		marker:      marker{key: k, written: map[string]int{}},
	}
	switch {
	case fromSource(t):
		out.source = opts.Sources.Open(k.Ref, t)
		out.demands = out.source
	case t.DemandFrom == trigger.DemandActivator:
		out.demands = opts.Demands
	}
	return out
}

func (t *target) touch(now time.Time) {
	if before := t.used.Swap(now.UnixNano()); before != 0 {
		t.pause.Store(max(t.pause.Load(), now.UnixNano()-before))
	}
}

// streams is how many streams are open on the target.
func (t *target) streams() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.subscribers)
}

// idle reports whether nobody has asked for IdleAfter. A target that does not
// exist is given up sooner, so that invented names do not pile up.
func (t *target) idle(now time.Time) bool {
	streams, patience := t.streams(), t.opts.IdleAfter
	if o := t.latest.Load(); o != nil && o.At.IsZero() && errors.Is(o.Err, workload.ErrNotFound) {
		patience, streams = min(patience, missingAfter), 0
	}
	return streams == 0 && now.Sub(time.Unix(0, t.used.Load())) > patience
}

// missingAfter is how long a target that has never existed is looked for after
// it was asked about.
const missingAfter = 30 * time.Second

// run looks once an interval, and at once when requests begin to wait, until
// ctx ends or expired says that nobody asks any more.
func (t *target) run(ctx context.Context, expired func(*target) bool) {
	wake := make(chan struct{}, 1)
	if t.demands != nil {
		defer t.demands.Wake(t.key.Ref, wake)()
	}
	t.remind()
	defer func() { t.keep(time.Now()) }()
	// The second look comes after a random part of the interval, so that the
	// targets that KEDA asks about all at once do not look all at once for ever.
	next := time.NewTimer(rand.N(t.opts.Interval)) //nolint:gosec // a phase, not a secret
	defer next.Stop()
	for ctx.Err() == nil && !expired(t) {
		t.look(ctx)
		select {
		case <-ctx.Done():
		case <-next.C:
			next.Reset(t.opts.Interval)
		case <-wake:
		}
	}
}

// look samples, decides and publishes. A look that fails leaves the last
// decision standing; how long it stands is answer's affair.
func (t *target) look(ctx context.Context) {
	before := t.latest.Load()
	next := &outcome{}
	if before != nil {
		*next = *before
	}
	next.Err = nil
	if err := t.decide(ctx, next); err != nil {
		if ctx.Err() != nil {
			return
		}
		next.Err = err
	}
	t.tell(before, next, time.Now())
	t.report(before, next) // first, so that whoever sees the outcome finds its metrics
	t.latest.Store(next)
	t.mark(ctx, next, time.Now(), t.apart)
	if before == nil {
		close(t.first)
	}
	if before == nil || before.Active != next.Active {
		t.notify()
	}
}

func (t *target) decide(ctx context.Context, out *outcome) error {
	began := time.Now()
	w, err := t.opts.Workloads.Workload(ctx, t.key.Ref, t.trigger.PodSelector)
	if err != nil {
		return fmt.Errorf("reading %s: %w", t.key.Ref, err)
	}
	out.Workload, out.frozen = w, false
	if out.conflict = t.names.problem(t.key.Ref); out.conflict != "" && t.trigger.DemandFrom == trigger.DemandActivator {
		t.freeze(ctx, w, out)
		return &trigger.Faults{List: []trigger.Fault{{Key: "modelName", Problem: out.conflict}}}
	}
	if err := t.trigger.CheckBounds(trigger.Bounds{MinReplicas: w.MinReplicas, SoleTrigger: w.SoleTrigger}); err != nil {
		return fmt.Errorf("ScaledObject %s: %w", t.key.Ref, err)
	}
	c := PolicyConfig(t.trigger, w)
	c.GaugeLag = t.opts.GaugeLag
	if err := c.Validate(); err != nil {
		return fmt.Errorf("%s: %w", t.key.Ref, err)
	}
	in := t.sample(ctx, w)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	now := time.Now()
	out.Decision, t.state = policy.Decide(c, t.state, in, now)
	switch {
	case in.Demand.Known:
		out.silentSince = time.Time{}
	case out.silentSince.IsZero():
		out.silentSince = now
	}
	out.note(now)
	t.metrics.sampled(time.Since(began))
	if now.Sub(t.keptAt) >= keepEvery {
		t.keep(now)
	}
	return nil
}

// freeze keeps the replicas of a target whose name another has come to claim: what
// runs is in use, and an error would not keep KEDA from taking it to zero.
func (t *target) freeze(ctx context.Context, w workload.Workload, out *outcome) {
	in := policy.Sample{Replicas: w.Replicas, Asked: t.asked(ctx, w.Replicas, out.Replicas)}
	for _, p := range w.Pods {
		in.Pods = append(in.Pods, policy.Pod{Created: p.Created, LostAt: p.LostAt, ReadyAt: p.ReadyAt, Terminating: p.Terminating})
	}
	if d := policy.Freeze(PolicyConfig(t.trigger, w), in, time.Now()); d.Known {
		out.Decision, out.frozen = d, true
	}
}

// keepEvery is how often a target's state is handed to Memory: what a crash
// may lose of a hold that lasts minutes.
const keepEvery = 15 * time.Second

func (t *target) keep(now time.Time) {
	if t.state.Since.IsZero() || t.evicted.Load() || sameMemory(t.state, t.kept) {
		return
	}
	body, err := json.Marshal(t.state)
	if err != nil {
		t.log.Error("the state cannot be kept", "error", err)
		return
	}
	t.kept, t.keptAt = t.state, now
	t.opts.Memory.Keep(t.key.memory(), body, now)
}

// sameMemory reports whether b would restore to the same as a: the times of the
// last look do not matter, so that an idle target is not written for ever.
func sameMemory(a, b policy.State) bool {
	a.At, a.KnownAt, a.TokensAt = b.At, b.KnownAt, b.TokensAt
	a.Rates.Arrived, a.Rates.ArrivedIn = b.Rates.Arrived, b.Rates.ArrivedIn
	return a == b
}

// remind restores the state that a former process kept. One that cannot be
// read is reported, and the policy is careful instead.
func (t *target) remind() {
	t.keptAt = time.Now() // so that nothing is kept of one that ends at once
	body := t.opts.Memory.Kept(t.key.memory())
	if body == nil {
		return
	}
	var state policy.State
	if err := json.Unmarshal(body, &state); err != nil {
		t.log.Warn("the kept state cannot be read, beginning anew", "error", err)
		return
	}
	t.state = state.Restored(time.Now())
	t.kept = t.state
}

// PolicyConfig puts what the trigger and the ScaledObject around it say into
// the policy's configuration.
func PolicyConfig(t trigger.Trigger, w workload.Workload) policy.Config {
	return policy.Config{
		TargetRequests: t.TargetRequests, MinReplicas: w.MinReplicas, MaxReplicas: w.MaxReplicas,
		WaitPrice: t.WaitPrice, GPUPrice: t.GPUPrice,
		KeepAlive: t.KeepAlive, ScaleDownWindow: t.ScaleDownWindow, Lookahead: t.Lookahead, DrainWithin: t.DrainWithin,
		StartDeadline: t.StartDeadline, StaleAfter: t.StaleAfter,
		Cooldown: w.Cooldown, Tolerance: w.Tolerance,
	}
}

// answer is the decision to serve now. Its error says why there is none: the
// first look has not ended, the last one that succeeded is older than
// staleAfter, or no pod can be read and there are no replicas to freeze.
func (t *target) answer(now time.Time) (policy.Decision, error) {
	o := t.latest.Load()
	if o == nil {
		return policy.Decision{}, fmt.Errorf("%w: %s has not been looked at yet", ErrUnknown, t.key.Ref)
	}
	var faults *trigger.Faults
	if errors.As(o.Err, &faults) && !o.frozen {
		return policy.Decision{}, o.Err
	}
	switch stale := o.At.IsZero() || now.Sub(o.At) > t.trigger.StaleAfter; {
	case stale && o.Err != nil:
		return policy.Decision{}, o.Err
	case stale:
		return policy.Decision{}, fmt.Errorf("%w: the last decision on %s is %v old", ErrUnknown, t.key.Ref, now.Sub(o.At).Round(time.Second))
	case !o.Known:
		return policy.Decision{}, fmt.Errorf("%w: no pod of %s could be read for %v, and it is not known to have replicas that could be kept: %s", ErrUnknown, t.key.Ref, t.trigger.StaleAfter, t.complaint())
	}
	if t.trigger.Mode == trigger.ModeShadow {
		d := o.Decision
		d.Value, d.Active = 0, false
		return d, nil
	}
	return o.Decision, nil
}

// wait returns answer, giving a new target Patience to look for the first time.
func (t *target) wait(ctx context.Context) (policy.Decision, error) {
	timer := time.NewTimer(t.opts.Patience)
	defer timer.Stop()
	select {
	case <-t.first:
	case <-timer.C:
	case <-ctx.Done():
	}
	return t.answer(time.Now())
}

// subscribe returns a channel that signals whenever activity changed. Latest
// wins: the signal is dropped while one is pending.
func (t *target) subscribe() (changes <-chan struct{}, stop func()) {
	c := make(chan struct{}, 1)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.subscribers[c] = struct{}{}
	return c, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.subscribers, c)
		t.touch(time.Now())
	}
}

func (t *target) notify() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for c := range t.subscribers {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

// maxText bounds what is passed on of an error, in bytes: parts of it were
// written by tenants and engines.
const maxText = 2048

// cut shortens text for logs and answers.
func cut(text string) string {
	if len(text) <= maxText {
		return text
	}
	return strings.ToValidUTF8(text[:maxText], "") + "..."
}

// report logs a decision when it changed, and sets the metrics.
func (t *target) report(before, next *outcome) {
	t.metrics.decided(t.key, before, next)
	switch {
	case next.Err != nil:
		if before == nil || before.Err == nil || before.Err.Error() != next.Err.Error() {
			t.log.Warn("no new decision", "error", cut(next.Err.Error()))
		}
	case before == nil || before.Err != nil || before.Replicas != next.Replicas || before.Reason != next.Reason || before.Known != next.Known:
		t.log.Info("decision", "replicas", next.Replicas, "active", next.Active, "known", next.Known,
			"reason", next.Reason, "failure", next.failure, "value", next.Value, "mode", t.trigger.Mode, "terms", next.Terms)
	}
}
