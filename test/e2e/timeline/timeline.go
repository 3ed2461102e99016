// Package timeline holds what was seen of a scenario, moment by moment, and draws
// it; with it what drove the scenario (Trace), so that the simulator can play it
// again, and what the simulator made of it (Replay).
package timeline

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Point is what there was at one moment.
type Point struct {
	Seconds float64 `json:"t"` // since the timeline began
	// Wanted is the scaler's decision, nil while it is unknown.
	Wanted *int   `json:"wanted"`
	Reason string `json:"reason,omitempty"`
	// Replicas are the Deployment's, -1 while there is none; Ready of them are
	// ready.
	Replicas int32 `json:"replicas"`
	Ready    int32 `json:"ready"`
	// Arrivals are the requests per second that the scaler counts.
	Arrivals float64 `json:"arrivals"`
	// Load is what the scaler counts; Waiting of it wait: Held at the activator,
	// the rest in engines' queues. In requests.
	Load    float64 `json:"load"`
	Waiting float64 `json:"waiting"`
	Held    float64 `json:"held"`
	// KEDA and HPA are nil while there is no ScaledObject and no HPA.
	KEDA *KEDA `json:"keda"`
	HPA  *HPA  `json:"hpa"`
}

// KEDA is its view: the conditions of the ScaledObject, "True", "False",
// "Unknown", or "" as long as it has not said.
type KEDA struct {
	Ready    string `json:"ready"`
	Active   string `json:"active"`
	Fallback string `json:"fallback"`
	Paused   string `json:"paused"`
}

// HPA is the autoscaler's view.
type HPA struct {
	Desired int32    `json:"desired"`
	Current int32    `json:"current"`
	Metric  *float64 `json:"metric"` // per replica, nil while it has none
}

// Mark is something that the scenario did.
type Mark struct {
	Seconds float64 `json:"t"`
	Text    string  `json:"text"`
}

// Who moves replicas.
const (
	ByKEDA = "KEDA"
	ByHPA  = "HPA"
)

// Move is one change of the replicas asked for.
type Move struct {
	Seconds float64 `json:"t"`
	From    int32   `json:"from"`
	To      int32   `json:"to"`
	By      string  `json:"by"` // ByKEDA, ByHPA, or the field manager's name
}

// Timeline is one scenario.
type Timeline struct {
	Name   string    `json:"name"`
	Began  time.Time `json:"began"`
	Ended  float64   `json:"ended"` // seconds after it began
	Failed bool      `json:"failed"`
	Points []Point   `json:"points"`
	Marks  []Mark    `json:"marks"`
	Moves  []Move    `json:"moves"` // what KEDA and the HPA have patched, when

	Trace  *Trace  `json:"trace"`  // nil: what drove it was not recorded
	Apart  string  `json:"apart"`  // why the simulator does not replay it, "" if it does
	Replay *Replay `json:"replay"` // nil: it does not
}

// Most is the largest number of replicas there was.
func (t *Timeline) Most() (n int32) {
	for _, p := range t.Points {
		n = max(n, p.Replicas)
	}
	return n
}

// Save writes NAME.json and NAME.svg into a folder.
func (t *Timeline) Save(dir string) error {
	data, err := json.MarshalIndent(t, "", " ")
	if err != nil {
		return fmt.Errorf("encoding the timeline %s: %w", t.Name, err)
	}
	if err := os.WriteFile(filepath.Join(dir, t.Name+".json"), data, 0o600); err != nil {
		return err // names the file
	}
	return os.WriteFile(filepath.Join(dir, t.Name+".svg"), []byte(t.SVG()), 0o600) // as above
}

// Load reads every timeline of a folder, by name.
func Load(dir string) ([]*Timeline, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, fmt.Errorf("looking for timelines in %s: %w", dir, err)
	}
	var all []*Timeline
	for _, name := range files {
		data, err := os.ReadFile(name) //nolint:gosec // a file of the folder that was asked for
		if err != nil {
			return nil, err // names the file
		}
		var t Timeline
		if err := json.Unmarshal(data, &t); err != nil {
			return nil, fmt.Errorf("reading %s: %w", name, err)
		}
		all = append(all, &t)
	}
	slices.SortFunc(all, func(a, b *Timeline) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}
