package scaler

import (
	"fmt"
	"slices"
	"time"

	"github.com/pilotlight-dev/pilotlight/internal/events"
	"github.com/pilotlight-dev/pilotlight/internal/workload"
	"github.com/pilotlight-dev/pilotlight/scaler/policy"
)

// Events tells the people who look at a ScaledObject what is wrong with it (Warn),
// or worth knowing (Note). It must not block.
type Events interface {
	Warn(o events.Object, reason, message string)
	Note(o events.Object, reason, message string)
}

// A condition is something wrong with a target that a person should hear of.
type condition struct{ reason, message string }

// unknownAfter is how long a demand source may be silent before it is worth an
// event: a rollout of the activators is not.
const unknownAfter = 30 * time.Second

// conditions lists what is wrong. The messages hold no number that changes
// from look to look.
func (t *target) conditions(o *outcome, now time.Time) []condition {
	var out []condition
	add := func(reason, format string, args ...any) {
		out = append(out, condition{reason, fmt.Sprintf(format, args...)})
	}
	if o.conflict != "" {
		add(events.ModelNameConflict, "%s", o.conflict)
	}
	if o.At.IsZero() || o.Err != nil {
		return out // nothing was seen this time
	}
	pod := worst(o.Workload)
	switch f := pod.Failure; {
	case f == workload.FailurePointer:
		add(events.PointerBroken, "%s", explain(pod))
	case f.Failing():
		add(events.StartFailing, "%s", explain(pod))
	}
	if o.Reason == policy.ReasonStartFailed {
		add(events.StartFailed, "no pod became Ready in time; another start is tried after a pause%s", because(o.failed))
	}
	if o.Terms.Expired > o.Terms.Failing {
		add(events.CreditExpired, "a starting pod takes longer than it should and is not counted on any more: another is asked for beside it")
	}
	if o.Terms.Stalled {
		add(events.EngineStalled, "there is load and no engine has made a token for %v: more replicas would not help", policy.StallAfter)
	}
	if !o.silentSince.IsZero() && now.Sub(o.silentSince) >= unknownAfter {
		add(events.DemandUnknown, "%s", t.silence())
	}
	return out
}

// silence says why the demand is unknown.
func (t *target) silence() string {
	if t.source == nil {
		return "no activator reports: nothing shrinks, and what is at zero stays there"
	}
	_, problem := t.source.Says()
	return "demand source " + t.trigger.DemandFrom + " is unknown: nothing shrinks, and what is at zero stays there" + because(problem)
}

func because(text string) string {
	if text == "" {
		return ""
	}
	return " (" + text + ")"
}

// worst is the pod whose failure says most: one for which waiting is useless
// before one that may still come. The zero Pod if none fails.
func worst(w workload.Workload) workload.Pod {
	var out workload.Pod
	for _, p := range w.Pods {
		if p.Terminating || p.Failure == workload.FailureNone {
			continue
		}
		if out.Failure == workload.FailureNone || p.Failure.Hopeless() && !out.Failure.Hopeless() {
			out = p
		}
	}
	return out
}

// explain says in words why a pod does not get ready.
func explain(p workload.Pod) string {
	words := map[workload.Failure]string{
		workload.FailureImage:         "its image cannot be pulled",
		workload.FailureCrash:         "a container keeps crashing",
		workload.FailurePointer:       "the model reference is broken",
		workload.FailureIntegrity:     "the model is damaged or incomplete",
		workload.FailureNoSpace:       "the volume is too small for the model",
		workload.FailureStore:         "the registry or the store cannot be reached",
		workload.FailureDeadline:      "it takes longer than startDeadline",
		workload.FailureUnschedulable: "no node has room for it",
	}
	return "pod " + p.Name + " does not start: " + words[p.Failure] + because(p.Detail)
}

// hopeless reports whether pods are starting, none is Ready, and waiting is
// useless for all of them.
func hopeless(w workload.Workload) bool {
	starting := false
	for _, p := range w.Pods {
		if p.Terminating {
			continue
		}
		if p.Ready() || !p.Failure.Hopeless() {
			return false
		}
		starting = true
	}
	return starting
}

// lingerFor is how long a failure is believed after it was last seen: between
// two tries of the kubelet a container runs for a moment.
const lingerFor = 20 * time.Second

// note takes in what this look says about failures, and remembers the last for
// as long as it explains why nothing runs.
func (o *outcome) note(now time.Time) {
	switch p := worst(o.Workload); {
	case o.Terms.Ready > 0:
		o.failure, o.failed, o.failedAt = workload.FailureNone, "", time.Time{}
	case p.Failure != workload.FailureNone:
		o.failure, o.failed = p.Failure, explain(p)
		if hopeless(o.Workload) {
			o.failedAt = now
		}
	case o.Reason == policy.ReasonStartFailed && o.failure == workload.FailureNone:
		o.failure, o.failed = workload.FailureDeadline, "nothing is seen to be wrong with its pods, but none became Ready within startDeadline"
	case o.Terms.Starting == 0 && o.Reason != policy.ReasonStartFailed && o.Active:
		o.failure, o.failed, o.failedAt = workload.FailureNone, "", time.Time{} // another try begins
	}
}

// tell emits an event for each condition that is new since the outcome before.
func (t *target) tell(before, next *outcome, now time.Time) {
	next.conditions = t.conditions(next, now)
	if t.opts.Events == nil {
		return
	}
	o := events.Object{Namespace: t.key.Namespace, Name: t.key.Name, UID: next.Workload.UID}
	for _, c := range next.conditions {
		if before == nil || !slices.Contains(before.conditions, c) {
			t.opts.Events.Warn(o, c.reason, c.message)
		}
	}
}

// Swapped tells those who look at the ScaledObjects of some pods that another
// version of their model is published, and reports whether there is one. It does
// not block.
func (s *Scaler) Swapped(namespace string, pods []string, message string) bool {
	told := map[string]bool{} // edited triggers of one ScaledObject are targets of their own
	for _, t := range s.all() {
		o := t.latest.Load()
		if o == nil || t.key.Namespace != namespace || told[t.key.Name] {
			continue
		}
		if slices.ContainsFunc(o.Workload.Pods, func(p workload.Pod) bool { return slices.Contains(pods, p.Name) }) {
			told[t.key.Name] = true
			if s.opts.Events != nil {
				s.opts.Events.Note(events.Object{Namespace: namespace, Name: t.key.Name, UID: o.Workload.UID}, events.ModelSwapped, message)
			}
		}
	}
	return len(told) > 0
}
