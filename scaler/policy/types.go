package policy

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// Auto in a duration of Config asks the policy to compute it.
const Auto = time.Duration(-1)

// Config is what the user asked for. It does not change between decisions
// unless the ScaledObject does.
type Config struct {
	TargetRequests  float64       // running + waiting requests one replica should carry, > 0
	MinReplicas     int           // >= 0
	MaxReplicas     int           // >= max(1, MinReplicas)
	WaitPrice       float64       // c: $ per request-second of waiting, > 0
	GPUPrice        float64       // g: $ per GPU-second, > 0
	KeepAlive       time.Duration // how long the last replica stays once idle, or Auto: its priced hold
	ScaleDownWindow time.Duration // how long a larger need is remembered, or Auto: priced holds
	Lookahead       time.Duration // how far the load is projected, or Auto: P50/2; 0 = off
	DrainWithin     time.Duration // time to work off a backlog, or Auto: rule 4
	StartDeadline   time.Duration // age at which a start has failed, or Auto: max(3 x P95, 10 min)
	StaleAfter      time.Duration // how long the last answer stands in for an unknown one, > 0; then freeze
	GaugeLag        time.Duration // how long after a pod's first dispatch its gauges may read 0; 0 = DefaultGaugeLag
	Cooldown        time.Duration // KEDA's cooldownPeriod, which comes on top of the last hold
	Tolerance       float64       // of the HPA, 0 .. 0.5; 0 where the ScaledObject sets tolerance: 0
	ShrinkStalled   bool          // let a stalled engine's replicas go
}

// DefaultGaugeLag is how long after a pod's first dispatch its gauges may still
// read 0. vLLM was measured at about 18 s on a cold engine; 30 s is that with a
// margin.
const DefaultGaugeLag = 30 * time.Second

// ErrConfig is wrapped by every error of Validate.
var ErrConfig = errors.New("invalid policy configuration")

// Validate reports every fault of c at once.
func (c Config) Validate() error {
	var faults []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			faults = append(faults, fmt.Errorf("%w: "+format, append([]any{ErrConfig}, args...)...))
		}
	}
	usable := func(x float64) bool { return x > 0 && !math.IsInf(x, 0) }
	check(usable(c.TargetRequests), "TargetRequests %v must be above 0", c.TargetRequests)
	check(c.MinReplicas >= 0, "MinReplicas %d must not be negative", c.MinReplicas)
	check(c.MaxReplicas >= 1 && c.MaxReplicas >= c.MinReplicas, "MaxReplicas %d must be at least 1 and MinReplicas", c.MaxReplicas)
	check(usable(c.WaitPrice), "WaitPrice %v must be above 0", c.WaitPrice)
	check(usable(c.GPUPrice), "GPUPrice %v must be above 0", c.GPUPrice)
	check(c.KeepAlive >= Auto, "KeepAlive %v must not be negative", c.KeepAlive)
	check(c.ScaleDownWindow >= Auto, "ScaleDownWindow %v must not be negative", c.ScaleDownWindow)
	check(c.Lookahead >= Auto, "Lookahead %v must not be negative", c.Lookahead)
	check(c.DrainWithin == Auto || c.DrainWithin > 0, "DrainWithin %v must be above 0", c.DrainWithin)
	check(c.StartDeadline >= Auto, "StartDeadline %v must not be negative", c.StartDeadline)
	check(c.StaleAfter > 0, "StaleAfter %v must be above 0", c.StaleAfter)
	check(c.GaugeLag >= 0, "GaugeLag %v must not be negative", c.GaugeLag)
	check(c.Cooldown >= 0, "Cooldown %v must not be negative", c.Cooldown)
	check(c.Tolerance >= 0 && c.Tolerance <= 0.5, "Tolerance %v must lie between 0 and 0.5", c.Tolerance)
	return errors.Join(faults...)
}

// Sample is what was seen at one moment.
type Sample struct {
	Replicas  int       // pods the target has now, the terminating ones left out; negative = unknown
	Asked     Count     // replicas that the target asks for: others than Replicas during a rollout or under a quota
	Pods      []Pod     // every pod of the target, the terminating ones included
	Demand    Demand    // what waits outside of the pods
	Traffic   Traffic   // arrivals and completions
	ColdStart ColdStart // learned time to ready
}

// asked is how many replicas the target asks for, as far as anybody knows.
func (in Sample) asked() int {
	if in.Asked.Known {
		return in.Asked.Replicas
	}
	return in.Replicas
}

// Count is a number of replicas, if it is known.
type Count struct {
	Known    bool
	Replicas int
}

// Pod is one pod as the cluster shows it, and what its engine said.
type Pod struct {
	Created     time.Time
	ReadyAt     time.Time // zero while the pod is not Ready
	LostAt      time.Time // when a pod that was Ready ceased to be; zero for all others
	Terminating bool
	Failing     bool // crash-looping, or cannot pull its image or model
	Load        Load
}

// Ready reports whether the pod can serve.
func (p Pod) Ready() bool { return !p.ReadyAt.IsZero() && !p.Terminating }

// began is when the pod began to get ready: at its birth, or when it ceased to
// be Ready, for its engine may have been started anew.
func (p *Pod) began() time.Time {
	if p.LostAt.After(p.Created) {
		return p.LostAt
	}
	return p.Created
}

// Load is one engine's reading, in requests. When Known is false the numbers
// are the last ones that were known (zero if there were none).
type Load struct {
	Known            bool
	Running, Waiting float64
}

// Total is running + waiting.
func (l Load) Total() float64 { return l.Running + l.Waiting }

// Demand is what the demand source sees: requests held while nothing can serve
// them, and requests it has sent on that have not ended.
type Demand struct {
	Known          bool
	Held, InFlight float64
}

// ColdStart is the learned time from a pod's creation to Ready.
type ColdStart struct{ P50, P95 time.Duration }

// Reason names the rule that settled a decision.
type Reason string

// The reasons, from the most to the least ordinary.
const (
	ReasonIdle          Reason = "idle"              // nothing to do, nothing running
	ReasonLoad          Reason = "load"              // the steady load wants it
	ReasonBacklog       Reason = "backlog"           // a pile has to be worked off
	ReasonLookahead     Reason = "look-ahead"        // the load is rising
	ReasonHold          Reason = "hold"              // a replica is worth keeping
	ReasonWindow        Reason = "scale-down-window" // a larger need was seen within the fixed window
	ReasonKeepAlive     Reason = "keep-alive"        // the last replica stays warm
	ReasonSettle        Reason = "settle"            // no scale-in so soon after a scale-out
	ReasonOneFirst      Reason = "one-before-zero"   // several replicas must first become one
	ReasonLease         Reason = "lease"             // a start is under way
	ReasonCredit        Reason = "credit-expired"    // a start takes too long to be counted on
	ReasonMin           Reason = "min-replicas"      // MinReplicas is above the need
	ReasonMax           Reason = "max-replicas"      // MaxReplicas is below the need
	ReasonHoldUnknown   Reason = "hold-unknown"      // something could not be read: no scale-in
	ReasonDemandUnknown Reason = "demand-unknown"    // the demand source is silent
	ReasonStalled       Reason = "stalled"           // the engines hang: no growth because of it
	ReasonStartFailed   Reason = "start-failed"      // a start passed its deadline; backing off
	ReasonUnknown       Reason = "unknown"           // nothing could be read for StaleAfter: frozen, or no answer
)

// reasons says in words what each reason means, in the order of the constants.
var reasons = []struct {
	reason Reason
	text   string
}{
	{ReasonIdle, "nothing to do, and nothing runs"},
	{ReasonLoad, "the steady load wants it"},
	{ReasonBacklog, "a pile of requests has to be worked off"},
	{ReasonLookahead, "the load is rising, and a start takes its time"},
	{ReasonHold, "by the recent traffic another replica costs less than the waiting that it spares"},
	{ReasonWindow, "more was needed within the fixed scale-down window"},
	{ReasonKeepAlive, "the last replica stays warm for a while"},
	{ReasonSettle, "it is too soon after a scale-out to scale in"},
	{ReasonOneFirst, "several replicas must first become one, and then zero"},
	{ReasonLease, "a start is under way, and is not given up"},
	{ReasonCredit, "a starting pod takes too long to be counted on, so another is asked for beside it"},
	{ReasonMin, "minReplicas is above the need"},
	{ReasonMax, "maxReplicas is below the need"},
	{ReasonHoldUnknown, "something could not be read, or has ceased to be ready, so nothing scales in"},
	{ReasonDemandUnknown, "the demand source is silent, so nothing scales in"},
	{ReasonStalled, "the engines hang, and more of them would not help"},
	{ReasonStartFailed, "a start passed its deadline, and the next has to wait"},
	{ReasonUnknown, "nothing could be read for staleAfter, so the replicas are frozen as they are"},
}

// Reasons lists every reason.
func Reasons() []Reason {
	var all []Reason
	for _, r := range reasons {
		all = append(all, r.reason)
	}
	return all
}

// Text is the reason in words that fit after "because"; "" for one that is not
// known.
func (r Reason) Text() string {
	for _, known := range reasons {
		if known.reason == r {
			return known.text
		}
	}
	return ""
}

// Decision is the answer, with everything that led to it. The log line, the
// metrics, /debug/targets and `pilotlight explain` all render this struct.
type Decision struct {
	Known    bool      // false: there is no answer, and Value must not be served
	Replicas int       // replicas wanted
	Value    float64   // what the HPA divides by TargetRequests
	Active   bool      // whether KEDA should run at least one replica
	Reason   Reason    // the rule that settled Replicas
	Terms    Terms     // every intermediate number
	At       time.Time // when it was made
}

// Terms holds the intermediate numbers of a decision.
type Terms struct {
	Running  float64 `json:"running"`  // requests running in readable Ready pods
	Waiting  float64 `json:"waiting"`  // requests waiting in them
	Held     float64 `json:"held"`     // requests held outside
	InFlight float64 `json:"inFlight"` // requests sent on by the demand source
	Load     float64 `json:"load"`     // rule 2

	Arrivals  float64 `json:"arrivals"`  // rule 3: requests per second
	Residence float64 `json:"residence"` // rule 3: S, seconds
	Offered   float64 `json:"offered"`   // rule 3: A, requests
	Projected float64 `json:"projected"` // rule 5: A', requests
	Backlog   float64 `json:"backlog"`   // rule 4, requests
	Drain     float64 `json:"drain"`     // rule 4: drainWithin, seconds
	Need      int     `json:"need"`      // replicas the rules on the way up want

	Ready    int `json:"ready"`    // pods that can serve
	Starting int `json:"starting"` // pods on their way, also to be Ready again
	Lost     int `json:"lost"`     // of these, pods that were Ready and are counted on to come back
	Unread   int `json:"unread"`   // Ready pods that could not be read
	Failing  int `json:"failing"`  // starting pods that crash or cannot pull
	Expired  int `json:"expired"`  // rule 6: starting pods that are not counted on any more

	HoldLeft    Span `json:"holdLeft"`    // rule 7: time until the next replica may go
	LeaseLeft   Span `json:"leaseLeft"`   // rule 9: time until the lease ends, if nothing happens
	BackoffLeft Span `json:"backoffLeft"` // rule 9: time until the next start may be tried
	Stalled     bool `json:"stalled"`     // rule 12: load, and no token for StallAfter
}

// Span is a duration that people read: 3m7s, not nanoseconds.
type Span time.Duration

// UnmarshalText reads what MarshalText has rendered.
func (s *Span) UnmarshalText(text []byte) error {
	d, err := time.ParseDuration(string(text))
	*s = Span(d)
	return err
}

// MarshalText renders s to the tenth of a second.
func (s Span) MarshalText() ([]byte, error) {
	return []byte(time.Duration(s).Round(100 * time.Millisecond).String()), nil
}

// State is what the policy remembers between two decisions. It is a plain
// value of fixed size: comparable, and safe to store as JSON so that a restart
// can restore it. The zero State means no history.
type State struct {
	Since        time.Time `json:"since"`        // first decision
	At           time.Time `json:"at"`           // last decision
	KnownAt      time.Time `json:"knownAt"`      // last decision that rested on readings
	LastReplicas int       `json:"lastReplicas"` // replicas wanted by the last decision that rested on readings, or froze
	SeenReplicas int       `json:"seenReplicas"` // replicas that the target asked for at the last decision
	GrewAt       time.Time `json:"grewAt"`       // last time more replicas were wanted, or asked for
	BusyAt       time.Time `json:"busyAt"`       // last time there was load, or it was not known
	DispatchAt   time.Time `json:"dispatchAt"`   // first load since the first pod became Ready
	Failures     int       `json:"failures"`     // starts that failed in a row
	RetryAt      time.Time `json:"retryAt"`      // no new start before this
	TokensAt     time.Time `json:"tokensAt"`     // last time tokens moved, or there was nothing to do
	Steady       float64   `json:"steady"`       // load before the present start, for targets without traffic counts

	Rates  Rates            `json:"rates"`  // recent traffic
	Peak   Window           `json:"peak"`   // recent needs, for a fixed window
	Levels [MaxLevels]Level `json:"levels"` // rule 7
}

// Restored returns the state that a former process left, fit to go on from
// now: what has happened in between is not known, so no time passes for the
// virtual queues, and what cannot be (a hold beyond a week, a number that is
// none) is dropped.
func (s State) Restored(now time.Time) State {
	s.At, s.KnownAt, s.Rates.Last.Known = time.Time{}, now, false
	latest := now.Add(mostHold).UnixNano()
	for i := range s.Levels {
		l := &s.Levels[i]
		if l.Release > latest || !(l.Inside >= 0) || !(l.Volume >= 0) || l.Began > now.UnixNano() {
			*l = Level{}
		}
	}
	if s.Since.After(now) || s.Failures < 0 || s.RetryAt.After(now.Add(lastBackoff)) || !(s.Steady >= 0) || !(s.Rates.Residence >= 0) {
		return State{}
	}
	return s
}
