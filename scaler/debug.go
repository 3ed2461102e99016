package scaler

import (
	"cmp"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/pilotlight-dev/pilotlight/internal/demandpb"
	"github.com/pilotlight-dev/pilotlight/internal/workload"
	"github.com/pilotlight-dev/pilotlight/scaler/policy"
)

// TargetStatus is one entry of /debug/targets.
type TargetStatus struct {
	Namespace    string       `json:"namespace"`
	ScaledObject string       `json:"scaledObject"`
	Trigger      string       `json:"trigger"` // hash of the metadata
	ModelName    string       `json:"modelName"`
	Mode         string       `json:"mode"`
	Known        bool         `json:"known"`    // KEDA gets an answer; with Reason "unknown" it freezes the replicas
	Replicas     *int         `json:"replicas"` // null while not known, as the next two
	Value        *float64     `json:"value"`
	Active       *bool        `json:"active"`
	Reason       string       `json:"reason"`
	Terms        policy.Terms `json:"terms"`
	DecidedAt    time.Time    `json:"decidedAt"`
	Error        string       `json:"error,omitempty"` // why there is no answer, or no newer one

	Unread map[string]string `json:"unread,omitempty"` // why a pod cannot be read, by pod
	Demand DemandStatus      `json:"demand"`

	Conditions []ConditionStatus `json:"conditions,omitempty"` // what is wrong, as the events say it
	Failure    *FailureStatus    `json:"failure,omitempty"`    // why no pod gets ready
}

// DemandStatus says where a target's demand comes from.
type DemandStatus struct {
	From    string `json:"from"`
	Blind   string `json:"blind,omitempty"`   // what the source cannot see
	Problem string `json:"problem,omitempty"` // why it is unknown
}

// ConditionStatus is one thing that is wrong with a target.
type ConditionStatus struct {
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

// FailureStatus says why no pod gets ready, or none did the last time.
type FailureStatus struct {
	Class   workload.Failure `json:"class"`
	Message string           `json:"message"`
}

// Targets lists every target with its latest decision, sorted by name.
func (s *Scaler) Targets() []TargetStatus {
	out, now := []TargetStatus{}, time.Now()
	for _, t := range s.all() {
		st := TargetStatus{
			Namespace: t.key.Namespace, ScaledObject: t.key.Name, Trigger: t.key.hash,
			ModelName: t.trigger.ModelName, Mode: t.trigger.Mode,
		}
		if o := t.latest.Load(); o != nil {
			st.Reason, st.Terms, st.DecidedAt = string(o.Reason), o.Terms, o.At
			if o.Known { // in shadow mode: what would have been
				st.Replicas, st.Value, st.Active = &o.Replicas, &o.Value, &o.Active
			}
			switch _, err := t.answer(now); {
			case err != nil:
				st.Error, st.Replicas, st.Value, st.Active = err.Error(), nil, nil, nil
			case o.Err != nil:
				st.Known, st.Error = true, o.Err.Error()
			default:
				st.Known = true
			}
			for _, c := range o.conditions {
				st.Conditions = append(st.Conditions, ConditionStatus{c.reason, c.message})
			}
			if o.failure != workload.FailureNone {
				st.Failure = &FailureStatus{o.failure, o.failed}
			}
		}
		st.Demand.From = t.trigger.DemandFrom
		if t.source != nil {
			st.Demand.Blind, st.Demand.Problem = t.source.Says()
		}
		t.mu.Lock()
		if len(t.problems) > 0 {
			st.Unread = maps.Clone(t.problems)
		}
		t.mu.Unlock()
		out = append(out, st)
	}
	slices.SortFunc(out, func(a, b TargetStatus) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.ScaledObject, b.ScaledObject), cmp.Compare(a.Trigger, b.Trigger))
	})
	return out
}

// DebugHandler serves Targets as JSON: all, or those of ?namespace= and
// ?scaledObject=.
func (s *Scaler) DebugHandler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked := func(key, value string) bool { want := r.URL.Query().Get(key); return want == "" || want == value }
		targets := slices.DeleteFunc(s.Targets(), func(t TargetStatus) bool {
			return !asked("namespace", t.Namespace) || !asked("scaledObject", t.ScaledObject)
		})
		w.Header().Set("Content-Type", "application/json")
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		_ = enc.Encode(targets) // a reader that has gone needs no answer
	})
}

// TargetState tells an activator how a ScaledObject is doing. A start has
// failed when its deadline has passed and the next has to wait, and as soon as
// waiting is useless for every pod that starts.
func (s *Scaler) TargetState(ref workload.Ref) *demandpb.TargetState {
	st := &demandpb.TargetState{Namespace: ref.Namespace, ScaledObject: ref.Name}
	now := time.Now()
	s.mu.RLock()
	defer s.mu.RUnlock()
	var last int64
	for _, t := range s.targets[ref] {
		o, used := t.latest.Load(), t.used.Load()
		if o == nil || used < last {
			continue // or of a trigger that has been edited since
		}
		last = used
		switch {
		case o.Terms.Ready > 0:
			st.State = demandpb.State_STATE_READY
		case o.Reason == policy.ReasonStartFailed, o.Terms.Starting > 0 && now.Sub(o.failedAt) < lingerFor:
			st.State = demandpb.State_STATE_FAILED
			st.RetryAfterSeconds = uint32(min(max(time.Duration(o.Terms.BackoffLeft).Seconds(), 0), 3600))
		case o.Active:
			st.State = demandpb.State_STATE_STARTING
		default:
			st.State = demandpb.State_STATE_ASLEEP
		}
		st.Reason = string(o.failure)
	}
	return st
}
