package timeline

import "encoding/json"

// Trace is what drove a scenario. All times are in seconds; moments count from
// the timeline's beginning.
type Trace struct {
	// Began is when the ScaledObject was there, with Replicas asked for.
	Began    float64 `json:"began"`
	Replicas int32   `json:"replicas"`

	Requests []Request `json:"requests"` // by arrival
	Starts   []Start   `json:"starts"`   // by the time they were seen

	// ScaledObject as it was made: kind, name and spec.
	ScaledObject json.RawMessage `json:"scaledObject,omitempty"`

	// Looks are when the scaler has decided, Polls when KEDA said that it had
	// found the target active, Syncs when the HPA had something new to say:
	// moments of their loops, not all of them.
	Looks []float64 `json:"looks"`
	Polls []float64 `json:"polls"`
	Syncs []float64 `json:"syncs"`

	HPASync  float64 `json:"hpaSync"`  // between two looks of the HPA
	Interval float64 `json:"interval"` // between two looks of the scaler
}

// Request is one call of a client, as the activator saw it.
type Request struct {
	At     float64 `json:"at"`             // when it came
	Held   float64 `json:"held"`           // how long it waited for a place in a pod
	Served float64 `json:"served"`         // and then, from dispatch to done
	Gone   bool    `json:"gone,omitempty"` // its client has ended it
}

// Start is one pod.
type Start struct {
	At    float64 `json:"at"`    // when it was asked for
	Took  float64 `json:"took"`  // until it was Ready, 0 if it never was
	Lived float64 `json:"lived"` // until it was told to end, or the timeline ended
}

// Replay is what the simulator made of a trace, beside what there was.
type Replay struct {
	Moves   []Move  `json:"moves"`   // of the simulator, from the timeline's beginning
	Same    bool    `json:"same"`    // the same steps in the same order
	Largest float64 `json:"largest"` // difference of a step, or of the graphs; seconds, -1 = there is none
	Of      float64 `json:"of"`      // what one loop of KEDA or the HPA explains, seconds
	Says    string  `json:"says"`    // the same in words
}
