package contender

import (
	"strconv"
	"time"

	"github.com/pilotlight-dev/pilotlight/internal/trigger"
	"github.com/pilotlight-dev/pilotlight/internal/workload"
	"github.com/pilotlight-dev/pilotlight/scaler"
	"github.com/pilotlight-dev/pilotlight/scaler/policy"
	"github.com/pilotlight-dev/pilotlight/scaler/simulate"
	"github.com/pilotlight-dev/pilotlight/warmup/coldstart"
)

// Ours are the parameters of Pilotlight's own policy.
type Ours struct {
	Config    policy.Config
	ColdStart policy.ColdStart  // as the scaler would have learned it
	Fresh     bool              // scaler and activator have just started: ColdStart is the trigger's, and learned from
	Through   *simulate.Through // nil = Recommended
	Uncounted int               // of a Fresh one: requests that had come when it heard of the activator first; 0 = all by then
	State     policy.State      // what it remembers from before the run
}

// Recommended is the ScaledObject that Pilotlight's chart renders: polling 10,
// cooldown 30, no stabilisation, tolerance 0, external-push. The HPA may go
// where it is sent in one step: the policy bounds what it asks for, and a ramp
// of four pods per 15 s only makes the rest of a pile wait longer.
func Recommended() *simulate.Through {
	up, down := simulate.DefaultUp(), simulate.DefaultDown()
	up.Policies = []simulate.ScalingPolicy{{Type: simulate.Pods, Value: 100, Period: 15 * time.Second}}
	up.Tolerance, down.Tolerance, down.Stabilization = 0, 0, 0
	return &simulate.Through{
		KEDA: simulate.KEDA{PollingInterval: 10 * time.Second, CooldownPeriod: 30 * time.Second},
		Push: true, Up: &up, Down: &down,
	}
}

// Config is the policy's configuration for a trigger in a ScaledObject that
// looks like through, as the scaler itself makes it.
func Config(t trigger.Trigger, minReplicas, maxReplicas int, through *simulate.Through) policy.Config {
	w := workload.Workload{
		MinReplicas: minReplicas, MaxReplicas: maxReplicas,
		Cooldown: through.KEDA.CooldownPeriod, Tolerance: simulate.DefaultTolerance,
	}
	if through.Up != nil && through.Down != nil {
		w.Tolerance = max(through.Up.Tolerance, through.Down.Tolerance)
	}
	return scaler.PolicyConfig(t, w)
}

// Controller is package policy behind KEDA. The Config must be valid.
func (o Ours) Controller() simulate.Controller {
	through := o.Through
	if through == nil {
		through = Recommended()
	}
	t := *through
	t.Target = o.Config.TargetRequests
	return simulate.Controller{
		Name: "pilotlight", Source: "package scaler/policy", Through: &t,
		New: func() simulate.Policy { return &ours{Ours: o, state: o.State} },
	}
}

type ours struct {
	Ours
	state   policy.State
	pods    []policy.Pod
	learner coldstart.Learner
	heard   bool // of the activator
}

func (o *ours) Name() string { return "pilotlight" }

func (o *ours) Observe(v simulate.View) simulate.Proposal {
	o.pods = o.pods[:0]
	for _, p := range v.Pods {
		o.pods = append(o.pods, policy.Pod{
			Created: p.Created, ReadyAt: p.ReadyAt, Terminating: p.Terminating, Failing: p.Failing,
			Load: policy.Load{Known: true, Running: float64(p.Running), Waiting: float64(p.Waiting)},
		})
	}
	arrivals, known := o.arrivals(v)
	in := policy.Sample{
		Replicas: v.Replicas, Pods: o.pods, ColdStart: o.coldStart(v),
		Demand: policy.Demand{Known: true, Held: float64(v.Held), InFlight: float64(v.InFlight)},
		Traffic: policy.Traffic{
			Known: known, TokensKnown: true, Arrivals: arrivals, Completions: v.Completions,
			ServiceSeconds: v.ServiceSeconds, Tokens: v.Tokens,
		},
	}
	var d policy.Decision
	d, o.state = policy.Decide(o.Config, o.state, in, v.Now)
	return simulate.Proposal{Known: d.Known, Replicas: d.Replicas, Value: d.Value, Active: d.Active, Reason: string(d.Reason)}
}

// arrivals are the requests that the activator tells of, if it was heard. A scaler
// that has just started counts from the first report on, which has the Uncounted.
func (o *ours) arrivals(v simulate.View) (n float64, known bool) {
	switch {
	case !o.Fresh || o.heard:
		return v.Arrivals, true
	case v.Arrivals == 0 || v.Arrivals < float64(o.Uncounted):
		return 0, false
	}
	o.heard = true
	if o.Uncounted > 0 {
		return float64(o.Uncounted), true
	}
	return v.Arrivals, true
}

// coldStart is what the scaler believes of the next start.
func (o *ours) coldStart(v simulate.View) policy.ColdStart {
	if !o.Fresh {
		return o.ColdStart
	}
	pods := make([]coldstart.Pod, len(v.Pods))
	for i, p := range v.Pods {
		pods[i] = coldstart.Pod{Name: strconv.Itoa(p.ID), Created: p.Created, Ready: p.ReadyAt}
	}
	o.learner.Observe(coldstart.Key{}, pods, v.Now)
	return policy.ColdStart(o.learner.Quantiles(coldstart.Key{}, "", o.ColdStart.P50))
}
