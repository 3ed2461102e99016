package scaler

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/pilotlight-dev/pilotlight/internal/workload"
)

// Costs writes the deletion cost of a pod: of those that are alike otherwise a
// ReplicaSet deletes the one with the lowest first. A nil cost removes it.
// Errors are those of package workload.
type Costs interface {
	SetDeletionCost(ctx context.Context, namespace, pod string, cost *int) error
}

const (
	// shrinkSoon is how long before a scale-in its victims are marked: two
	// syncs of the HPA, so that the marks are there when it acts.
	shrinkSoon = 30 * time.Second
	// costEvery bounds how often the marks of one target are moved.
	costEvery = 5 * time.Second
	// mostVictims bounds the marks of one target.
	mostVictims = 10
	costTimeout = 3 * time.Second
	restDenied  = time.Minute // after a refusal, how long nothing is written
	sayDenied   = time.Hour
)

// A marker marks the victims of one target's next scale-in: the least busy
// pods, with -1, -2, ... Who is no victim any more loses the mark. Only its own
// marks are touched: a cost that somebody else has set stays, and its pod is
// left out.
type marker struct {
	costs *costWriter // nil: off
	key   key

	last    time.Time
	written map[string]int // by pod, 0 = removed; what the cache may not show yet
	busy    sync.Mutex     // held while a batch is written
}

// victims is how many pods are to be marked: as many as are about to go, one
// shortly before the next may go, else none.
func victims(o *outcome) int {
	surplus := o.Workload.Replicas - o.Replicas
	if !o.Known || o.Err != nil || o.Terms.Ready < 2 {
		return 0
	}
	if surplus <= 0 {
		left := time.Duration(o.Terms.HoldLeft)
		if left <= 0 || left > shrinkSoon || o.Terms.Need >= o.Workload.Replicas {
			return 0
		}
		surplus = 1
	}
	return min(surplus, o.Terms.Ready-1, mostVictims)
}

// A candidate is a Ready pod with its load.
type candidate struct {
	name  string
	load  float64
	known bool // load could be read: who cannot be read counts as busy
	cost  int  // its mark, 0 without one
}

// marks says which pods get another mark, 0 for none, when n of them are about
// to go. Of two that are equally busy the marked one stays marked.
//
//	loads a 5, b 0, c 2, n 1, nobody marked  -> b -1
//	then b 4, c 0                            -> c -1, b 0
func marks(all []candidate, n int) map[string]int {
	ranked := slices.Clone(all)
	slices.SortFunc(ranked, func(a, b candidate) int {
		return cmp.Or(-cmp.Compare(oneIf(a.known), oneIf(b.known)), cmp.Compare(a.load, b.load), cmp.Compare(a.cost, b.cost), cmp.Compare(a.name, b.name))
	})
	out := map[string]int{}
	for i, c := range ranked {
		want := 0
		if i < n && c.known {
			want = i - n
		}
		if want != c.cost {
			out[c.name] = want
		}
	}
	return out
}

// candidates are the Ready pods whose cost is ours to set.
func (m *marker) candidates(w workload.Workload, t *target) []candidate {
	var out []candidate
	there := map[string]bool{}
	for _, p := range w.Pods {
		there[p.Name] = true
		if !p.Ready() {
			continue
		}
		c := candidate{name: p.Name, load: t.loads[p.Name].Total(), known: t.loads[p.Name].Known}
		if p.Cost != nil {
			c.cost = *p.Cost
		}
		if mark, ok := m.written[p.Name]; ok {
			c.cost = mark
		}
		if c.cost > 0 || c.cost < -mostVictims {
			continue // somebody else's
		}
		out = append(out, c)
	}
	for pod := range m.written {
		if !there[pod] {
			delete(m.written, pod)
		}
	}
	return out
}

// mark writes what has to change, without keeping the loop waiting.
func (t *target) mark(ctx context.Context, o *outcome, now time.Time, run func(func())) {
	m := &t.marker
	n := victims(o)
	if m.costs == nil || n == 0 || now.Sub(m.last) < costEvery || !m.busy.TryLock() {
		return
	}
	change := marks(m.candidates(o.Workload, t), n)
	if len(change) == 0 {
		m.busy.Unlock()
		return
	}
	m.last = now
	for pod, mark := range change {
		m.written[pod] = mark
	}
	run(func() {
		defer m.busy.Unlock()
		m.costs.write(ctx, m.key.Namespace, change)
	})
}

// A costWriter is shared by all targets: missing rights are the same for all.
type costWriter struct {
	costs Costs
	log   *slog.Logger

	mu       sync.Mutex
	deniedAt time.Time
	saidAt   time.Time
}

func (w *costWriter) write(ctx context.Context, namespace string, change map[string]int) {
	if w.resting(time.Now()) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, costTimeout)
	defer cancel()
	for pod, mark := range change {
		var cost *int
		if mark != 0 {
			cost = &mark
		}
		err := w.costs.SetDeletionCost(ctx, namespace, pod, cost)
		switch {
		case err == nil, ctx.Err() != nil, errors.Is(err, workload.ErrNotFound): // it has gone already
		case errors.Is(err, workload.ErrForbidden):
			w.denied(err, time.Now())
			return
		default:
			w.log.Warn("marking a pod for the next scale-in", "namespace", namespace, "pod", pod, "error", err)
		}
	}
}

func (w *costWriter) resting(now time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.deniedAt.IsZero() && now.Sub(w.deniedAt) < restDenied
}

// denied says once an hour that the right is missing.
func (w *costWriter) denied(err error, now time.Time) {
	w.mu.Lock()
	say := w.saidAt.IsZero() || now.Sub(w.saidAt) >= sayDenied
	w.deniedAt = now
	if say {
		w.saidAt = now
	}
	w.mu.Unlock()
	if say {
		w.log.Warn("deletion costs cannot be written, which is said once an hour: grant patch on pods", "error", err)
	}
}
