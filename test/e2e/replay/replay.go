// Package replay plays what was recorded of a scenario on a real control plane
// again, in the simulator, and says how far the two are apart.
//
//	Run(ctx, *timeline.Timeline) (*timeline.Replay, error)
//
// The scenario's Trace gives the simulator what it has no say in: when clients
// asked, how long each answer took, and who left; how long each pod took to start,
// and which of several was taken away; the ScaledObject; and at which moments
// scaler, KEDA and HPA looked. What is to be compared it does not give: the policy
// (package scaler/policy as it is) and the models of KEDA and the HPA decide the
// replicas anew. A client that asks again when it has its answer does so in the
// simulator, too, whenever the answer comes there (clients.go).
//
// Compare looks at the two step functions. They are the same when the replicas
// take the same values in the same order; then each step has a counterpart, and
// the largest difference of their times is what the simulator is wrong by. Where
// a step is there in one of them only (3 to 1, or 3 to 2 to 1), the difference is
// that of their graphs. One loop of KEDA (pollingInterval) or of the HPA (its sync
// period) is what luck explains: a decision that falls a moment before a look in
// one and a moment after it in the other.
//
// Faults (a killed scaler, an API server that is away) have no place in the
// simulator: a scenario that they explain is not replayed, and its timeline says
// why.
package replay

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pilotlight-dev/pilotlight/scaler/simulate"
	"github.com/pilotlight-dev/pilotlight/test/e2e/timeline"
)

// ErrNoTrace is returned for a timeline from which nothing can be replayed.
var ErrNoTrace = errors.New("no ScaledObject was recorded")

// Run simulates what t has recorded and compares. Its errors: ErrNoTrace, those
// of the ScaledObject (package scaledobject) and of the simulator.
func Run(ctx context.Context, t *timeline.Timeline) (*timeline.Replay, error) {
	in, err := read(t)
	if err != nil {
		return nil, fmt.Errorf("replaying %s: %w", t.Name, err)
	}
	result, err := in.play(ctx)
	if err != nil {
		return nil, fmt.Errorf("replaying %s: %w", t.Name, err)
	}
	var moves []timeline.Move
	for _, m := range result.Moves {
		moves = append(moves, timeline.Move{
			Seconds: in.trace.Began + m.At.Seconds(), From: int32(m.From), To: int32(m.To), By: names[m.By], //nolint:gosec // small
		})
	}
	seen := since(t.Moves, in.trace.Began)
	r := Compare(in.trace.Replicas, seen, moves, t.Ended)
	r.Of = max(in.object.PollingInterval.Seconds(), in.trace.HPASync)
	r.Says = says(r, in.trace.Replicas, seen)
	return r, nil
}

// names are the simulator's names of who moves replicas.
var names = map[string]string{simulate.ByPush: timeline.ByKEDA, simulate.ByPoll: timeline.ByKEDA, simulate.ByHPA: timeline.ByHPA}

// since leaves out what happened before.
func since(moves []timeline.Move, began float64) []timeline.Move {
	i := slices.IndexFunc(moves, func(m timeline.Move) bool { return m.Seconds >= began })
	if i < 0 {
		return nil
	}
	return moves[i:]
}

// Compare sets what the simulator did, from some replicas on, beside what was
// seen until ended, in seconds. Steps that the simulator alone took after that
// make no difference: nobody watched any more.
func Compare(from int32, seen, simulated []timeline.Move, ended float64) *timeline.Replay {
	watched := simulated
	for n := len(watched); n > len(seen) && watched[n-1].Seconds > ended; n-- {
		watched = watched[:n-1]
	}
	to := func(a, b timeline.Move) bool { return a.To == b.To }
	if slices.EqualFunc(seen, watched, to) {
		r := &timeline.Replay{Moves: watched, Same: true}
		for i, m := range seen {
			r.Largest = max(r.Largest, math.Abs(m.Seconds-watched[i].Seconds))
		}
		return r
	}
	a, b := graph{from, seen}, graph{from, simulated}
	r := &timeline.Replay{Moves: simulated, Largest: max(a.apart(b, ended), b.apart(a, ended))}
	if math.IsInf(r.Largest, 0) { // JSON has no such number
		r.Largest = -1
	}
	return r
}

// graph is a step function.
type graph struct {
	from  int32
	moves []timeline.Move
}

func (g graph) at(seconds float64) int32 {
	n := g.from
	for _, m := range g.moves {
		if m.Seconds > seconds {
			break
		}
		n = m.To
	}
	return n
}

// apart is how far in time one has to go from g, at its worst moment until ended,
// to find its value on the other graph, of which the steps are part: between 3
// and 1 there is 2.
func (g graph) apart(other graph, ended float64) (worst float64) {
	const every = 0.01 // seconds
	for t := 0.0; t <= ended; t += every {
		worst = max(worst, other.nearest(t, g.at(t)))
	}
	return worst
}

// nearest is how far from a moment the graph passes a value; endless if never.
func (g graph) nearest(t float64, value int32) float64 {
	if g.at(t) == value {
		return 0
	}
	best, before := math.Inf(1), g.from
	for _, m := range g.moves {
		if min(before, m.To) <= value && value <= max(before, m.To) {
			best = min(best, math.Abs(m.Seconds-t))
		}
		before = m.To
	}
	return best
}

// says puts a comparison into words.
//
//	same 4 steps, largest difference 1.2 s of 5.0 s
//	other steps: 0 1 4 2 1 0, the simulator 0 1 4 1 0, difference 4.8 s of 5.0 s
func says(r *timeline.Replay, from int32, seen []timeline.Move) string {
	if !r.Same {
		text := "other steps: " + path(from, seen) + ", the simulator " + path(from, r.Moves)
		if r.Largest >= 0 {
			text += fmt.Sprintf(", difference %.1f s of %.1f s", r.Largest, r.Of)
		}
		return text
	}
	if len(seen) == 0 {
		return "same: no step"
	}
	text := fmt.Sprintf("same %d steps, largest difference %.1f s of %.1f s", len(seen), r.Largest, r.Of)
	if len(seen) == 1 {
		text = strings.Replace(text, "steps", "step", 1)
	}
	return text
}

func path(from int32, moves []timeline.Move) string {
	out := []string{strconv.Itoa(int(from))}
	for _, m := range moves {
		out = append(out, strconv.Itoa(int(m.To)))
	}
	return strings.Join(out, " ")
}

func duration(seconds float64) time.Duration {
	return time.Duration(seconds * float64(time.Second))
}
