package activator

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/pilotlight-dev/pilotlight/internal/demandpb"
)

// Target is what the activator knows of one ScaledObject.
type Target struct {
	Namespace      string      `json:"namespace"`
	ScaledObject   string      `json:"scaledObject"`
	Models         []string    `json:"models"`
	PathPrefix     string      `json:"pathPrefix,omitempty"`
	TargetRequests float64     `json:"targetRequests"`
	Held           int         `json:"held"`
	HeldBytes      int64       `json:"heldBytes"`
	OldestSeconds  float64     `json:"oldestHoldSeconds"`
	InFlight       uint64      `json:"inFlight"`
	Arrivals       uint64      `json:"arrivals"`
	Completed      uint64      `json:"completed"`
	State          string      `json:"state"`            // as the scaler last said: unknown, asleep, starting, ready, failed
	Reason         string      `json:"reason,omitempty"` // class of a failed start
	Closed         string      `json:"closed,omitempty"` // why nobody may wait
	Pods           []TargetPod `json:"pods"`
}

// TargetPod is a Ready pod.
type TargetPod struct {
	Name     string `json:"name"`
	Address  string `json:"address"`
	InFlight int    `json:"inFlight"`
	Resting  bool   `json:"resting,omitempty"` // a dial was refused, or it said that it goes down
}

// states are the words for what the scaler says.
var states = map[demandpb.State]string{
	demandpb.State_STATE_UNKNOWN: "unknown", demandpb.State_STATE_ASLEEP: "asleep", demandpb.State_STATE_STARTING: "starting",
	demandpb.State_STATE_READY: "ready", demandpb.State_STATE_FAILED: "failed",
}

// Targets describes all targets, sorted by name.
func (a *Activator) Targets() []Target {
	out := []Target{}
	for _, p := range a.sorted() {
		out = append(out, p.describe(time.Now()))
	}
	return out
}

func (p *pool) describe(now time.Time) Target {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := Target{
		Namespace: p.ref.Namespace, ScaledObject: p.ref.Name, Models: append([]string{p.trigger.ModelName}, p.trigger.ModelAliases...),
		PathPrefix: p.trigger.PathPrefix, TargetRequests: p.trigger.TargetRequests,
		Held: p.line.Len(), HeldBytes: p.bytes, InFlight: p.inFlight, Arrivals: p.arrivals, Completed: p.completed,
		State: states[p.start.GetState()], Reason: p.start.GetReason(), Pods: []TargetPod{},
	}
	if p.line.Len() > 0 {
		t.OldestSeconds = now.Sub(p.oldest()).Seconds()
	}
	if p.closed != nil {
		t.Closed = p.closed.Error()
	}
	for _, b := range p.ready {
		t.Pods = append(t.Pods, TargetPod{b.name, b.addr, b.inFlight, now.Before(b.shunned)})
	}
	return t
}

// ServeTargets writes Targets as JSON: the page /debug/targets.
func (a *Activator) ServeTargets(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	_ = enc.Encode(a.Targets()) // a client that has gone needs no answer
}
