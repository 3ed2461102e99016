package simulate

import "time"

// A Policy looks at a target and says how many replicas it wants.
type Policy interface {
	Name() string
	// Observe is called once every Controller.Interval. The View is valid
	// until it returns.
	Observe(View) Proposal
}

// A View is what can be seen of a target from outside: its pods, what their
// engines report, and what the activator counts.
type View struct {
	Now      time.Time
	Replicas int // that the target asks for
	Pods     []PodView

	Held     int // requests at the activator
	InFlight int // requests it has sent on that have not ended

	// Totals since the beginning.
	Arrivals       float64
	Completions    float64
	ServiceSeconds float64 // from dispatch to done, over the completions
	Tokens         float64
}

// A PodView is one pod. ReadyAt is zero until it is Ready.
type PodView struct {
	ID                   int // of the run's pods, in order of creation, from 1
	Created, ReadyAt     time.Time
	Terminating, Failing bool
	Running, Waiting     int // as its engine reports them
}

// Ready reports whether the pod can serve.
func (p PodView) Ready() bool { return !p.ReadyAt.IsZero() && !p.Terminating }

// Starting reports whether the pod is on its way.
func (p PodView) Starting() bool { return p.ReadyAt.IsZero() && !p.Terminating }

// Count adds the pods up: those that serve, those on their way, and what the
// serving ones run and have waiting.
func (v View) Count() (ready, starting, running, waiting int) {
	for _, p := range v.Pods {
		switch {
		case p.Ready():
			ready++
			running += p.Running
			waiting += p.Waiting
		case p.Starting():
			starting++
		}
	}
	return ready, starting, running, waiting
}

// A Proposal is a policy's answer.
type Proposal struct {
	Known    bool    // false: there is no answer
	Replicas int     // replicas wanted
	Value    float64 // what the HPA divides by its target
	Active   bool    // whether KEDA should run at least one replica
	Reason   string  // why, in a word
}

// A Controller is a policy and the way its proposals reach the replicas.
type Controller struct {
	Name     string
	Source   string        // where the policy and its parameters come from
	Interval time.Duration // between two looks; 0 = 1 s
	Wakes    time.Duration // it looks so long after requests begin to wait, too; 0 = it does not
	Reports  time.Duration // the activator tells it so often what it has counted; 0 = whenever it looks
	Warm     int           // replicas it has had up before the beginning, at the scenario's minimum
	Through  *Through      // nil: Proposal.Replicas is set at once, as controllers of their own do
	New      func() Policy // a policy without memory, for one run

	// FirstLook is when it looks for the first time; 0 = drawn, as the phase of
	// every loop (Scenario.Seed).
	FirstLook time.Duration
}

// Through is the way over KEDA and the HPA. A polling interval of 0 is KEDA's
// 30 s, unset rules are autoscaling/v2's; the cooldown is taken as it is.
type Through struct {
	KEDA     KEDA          // MaxReplicas 0: the scenario's bounds
	Push     bool          // an active proposal reaches KEDA at once while at zero (external-push)
	Target   float64       // AverageValue; 0 = the scenario's TargetRequests
	Up, Down *Rules        // nil = DefaultUp, DefaultDown
	Sync     time.Duration // of the HPA; 0 = 15 s

	// Moments, in order, at which KEDA polls and the HPA syncs; after the last of
	// them once in every interval. Without any the phase is drawn, as that of
	// every loop (Scenario.Seed).
	Polls, Syncs []time.Duration
}

func (t Through) complete(s Scenario) Through {
	orDefault(&t.KEDA.PollingInterval, 30*time.Second)
	orDefault(&t.Target, s.TargetRequests)
	orDefault(&t.Sync, 15*time.Second)
	if t.KEDA.MaxReplicas == 0 {
		t.KEDA.MinReplicas, t.KEDA.MaxReplicas = s.MinReplicas, s.MaxReplicas
	}
	if t.Up == nil {
		up := DefaultUp()
		t.Up = &up
	}
	if t.Down == nil {
		down := DefaultDown()
		t.Down = &down
	}
	return t
}

func (t Through) hpa() HPA {
	return HPA{
		MinReplicas: max(1, t.KEDA.MinReplicas), MaxReplicas: t.KEDA.MaxReplicas,
		Target: t.Target, Up: *t.Up, Down: *t.Down,
	}
}
