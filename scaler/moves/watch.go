package moves

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/pilotlight-dev/pilotlight/internal/workload"
)

const (
	// DefaultEvery is Options.Every's default.
	DefaultEvery = 15 * time.Second

	askTimeout = 2 * time.Second
	askAtOnce  = 16
	maxAnswer  = 256 << 10 // bytes; ten publications take 3 KiB

	// enough agents of a pointer are asked in a round, another choice of them in
	// each, and more where histories are to be heard.
	enough, enoughQuiet = 2, 16

	// maxAsked bounds a round: with askAtOnce agents that hang, it takes four
	// minutes. It is a thousand pointers that are listened to.
	maxAsked = 2000
)

// Agents finds the pods that follow a model reference.
type Agents interface{ AllAgents() []workload.Agent }

// Options configures a Watcher. Book and Agents are required.
type Options struct {
	Book       *Book
	Agents     Agents
	Every      time.Duration         // between rounds; default DefaultEvery
	Swapped    func(Swap) bool       // is told of each swap until it has found whom it concerns; nil: nobody
	Logger     *slog.Logger          // nil: discard
	Registerer prometheus.Registerer // nil: none
}

// Watcher asks agents what they have seen. Run it.
type Watcher struct {
	opts   Options
	asked  *prometheus.CounterVec
	client *http.Client
	turn   int                // pointers covered so far: where the next round begins
	refs   map[pointer]string // what the agents of a pointer call it; as last heard
	full   bool               // the Book had no room in the last round, which was said
	served map[Key]Move       // what was last heard to be published, and told
}

// Swap says that a pod has published another version than was published before
// for the same reference in its namespace, be it by a moved pointer or by a
// rollout that pins the version.
type Swap struct {
	Key
	Move
	Pods []string // that follow the reference in the namespace
}

// String says it in a line.
func (s Swap) String() string {
	_, pod, _ := strings.Cut(s.By, "/")
	return fmt.Sprintf("%s: version %s is published in place of %s, in pod %s first", s.Ref, s.To, s.From, pod)
}

// pointer is what pods follow, as far as their labels say.
type pointer struct{ namespace, hash string }

// New fails when the metric cannot be registered.
func New(opts Options) (*Watcher, error) {
	if opts.Every <= 0 {
		opts.Every = DefaultEvery
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.Registerer == nil {
		opts.Registerer = prometheus.NewRegistry()
	}
	w := &Watcher{
		opts: opts, served: map[Key]Move{},
		asked: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pilotlight_moves_asked_total", Help: "Agents asked how their pointer stands, by result: ok, invalid (no status of that model) or unreachable.",
		}, []string{"result"}),
		client: &http.Client{
			Timeout:       askTimeout,
			Transport:     &http.Transport{DisableKeepAlives: true, MaxResponseHeaderBytes: 16 << 10},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
	return w, opts.Registerer.Register(w.asked)
}

// Run asks every so often until ctx ends.
func (w *Watcher) Run(ctx context.Context) {
	tick := time.NewTicker(w.opts.Every)
	defer tick.Stop()
	for {
		w.ask(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// group are the agents of one pointer.
type group struct {
	pointer
	agents []workload.Agent
}

// groups sorts agents by pointer; the order is that of agents.
func groups(agents []workload.Agent) []*group {
	known := map[pointer]*group{}
	var out []*group
	for _, a := range agents {
		p := pointer{a.Namespace, a.RefHash}
		if known[p] == nil {
			known[p] = &group{pointer: p}
			out = append(out, known[p])
		}
		known[p].agents = append(known[p].agents, a)
	}
	return out
}

// pick chooses n of the agents, others in every lap.
func (g *group) pick(lap, n int) []workload.Agent {
	n = min(n, len(g.agents))
	out := make([]workload.Agent, n)
	for i := range out {
		out[i] = g.agents[(lap*n+i)%len(g.agents)]
	}
	return out
}

// plan is who is asked in a round.
type plan struct {
	asked   []workload.Agent
	covered int                // pointers whose turn it is
	waiting map[pointer]string // what the agents of the others call them, where it is known
	groups  []*group
}

// following are the pods that follow a reference in a namespace; refs is what
// agents call their pointers.
func (p plan) following(k Key, refs map[pointer]string) []string {
	var pods []string
	for _, g := range p.groups {
		if g.namespace != k.Namespace || refs[g.pointer] != k.Ref {
			continue
		}
		for _, a := range g.agents {
			pods = append(pods, a.Pod)
		}
	}
	return pods
}

// plan says who is asked in this round. One that is too long for all pointers
// ends early, and the next goes on from there: a lap over all may take several.
func (w *Watcher) plan(now time.Time) plan {
	all := groups(w.opts.Agents.AllAgents())
	out := plan{waiting: map[pointer]string{}, groups: all}
	full := false
	for i := range all {
		g := all[(w.turn+i)%len(all)]
		ref, known := w.refs[g.pointer]
		n := enough
		if !known || w.opts.Book.Quiet(Key{g.namespace, ref}, now) {
			n = enoughQuiet
		}
		n = min(n, len(g.agents))
		if full = full || len(out.asked)+n > maxAsked; !full {
			out.asked, out.covered = append(out.asked, g.pick((w.turn+i)/len(all), n)...), out.covered+1
		} else if known {
			out.waiting[g.pointer] = ref
		}
	}
	return out
}

// ask is one round.
func (w *Watcher) ask(ctx context.Context) {
	var mu sync.Mutex
	plan := w.plan(time.Now())
	told, refs := map[Key][]Seen{}, plan.waiting
	var work errgroup.Group
	work.SetLimit(askAtOnce)
	for _, a := range plan.asked {
		work.Go(func() error {
			ref, seen, result := w.status(ctx, a)
			w.asked.WithLabelValues(result).Inc()
			if result != "ok" {
				return nil
			}
			mu.Lock()
			defer mu.Unlock()
			k := Key{a.Namespace, ref}
			told[k] = append(told[k], seen)
			refs[pointer{a.Namespace, a.RefHash}] = ref
			return nil
		})
	}
	_ = work.Wait() // the functions above return no error
	w.turn, w.refs = w.turn+plan.covered, refs
	now, noRoom := time.Now(), 0
	for k, seen := range told {
		w.swap(k, seen, func() []string { return plan.following(k, refs) })
		if w.opts.Book.Full(k) {
			noRoom++
			continue
		}
		if m, moved := w.opts.Book.Learn(k, seen, now); moved {
			w.opts.Logger.InfoContext(ctx, "a model pointer has moved", "namespace", k.Namespace, "ref", k.Ref, "from", m.From, "to", m.To, "seen_by", m.By)
		}
	}
	if noRoom > 0 && !w.full {
		w.opts.Logger.WarnContext(ctx, "too many model pointers: the moves of some are not remembered", "remembered", maxKeys, "not_remembered", noRoom)
	}
	w.full = noRoom > 0
}

// swap tells of the latest publication that was heard of, if it is later than the
// last one and of another version. Agents that disagree, or lag, have published
// what they have at some time before, and repeat nothing.
func (w *Watcher) swap(k Key, told []Seen, pods func() []string) {
	var latest *Move
	for _, s := range told {
		if p := s.Published; p != nil && (latest == nil || p.At.After(latest.At)) {
			latest = p
		}
	}
	last, known := w.served[k]
	switch {
	case latest == nil || known && !latest.At.After(last.At):
		return
	case !known || latest.To == last.To:
		if !known && len(w.served) >= maxKeys {
			clear(w.served) // what is heard next of each is taken for the first
		}
	default:
		m := *latest
		m.From = last.To
		if w.opts.Swapped != nil && !w.opts.Swapped(Swap{k, m, pods()}) {
			return // nobody it concerns is known yet
		}
	}
	w.served[k] = *latest
}

// status asks one agent.
func (w *Watcher) status(ctx context.Context, a workload.Agent) (ref string, told Seen, result string) {
	by := a.Namespace + "/" + a.Pod
	body, sent, now, err := w.get(ctx, "http://"+net.JoinHostPort(a.Host, strconv.Itoa(a.Port))+"/status")
	if err != nil {
		w.opts.Logger.DebugContext(ctx, "agent not asked", "pod", by, "error", err)
		return "", Seen{}, "unreachable"
	}
	ref, told, err = parse(body, a.RefHash, by, sent, now)
	if err != nil {
		w.opts.Logger.DebugContext(ctx, "agent not understood", "pod", by, "error", err)
		return "", Seen{}, "invalid"
	}
	return ref, told, "ok"
}

// get returns an answer, when it was given by the clock of whoever gave it, and
// when it came by ours.
func (w *Watcher) get(ctx context.Context, url string) (body []byte, sent, now time.Time, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, sent, now, err
	}
	resp, err := w.client.Do(req)
	if err != nil {
		return nil, sent, now, err
	}
	defer resp.Body.Close() //nolint:errcheck // it is only read
	now = time.Now()
	if sent, err = http.ParseTime(resp.Header.Get("Date")); err != nil {
		sent = now
	}
	body, err = io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return nil, sent, now, err
	case resp.StatusCode != http.StatusOK:
		return nil, sent, now, fmt.Errorf("it answers %d", resp.StatusCode)
	case len(body) > maxAnswer:
		return nil, sent, now, fmt.Errorf("its answer is longer than %d bytes", maxAnswer)
	}
	return body, sent, now, nil
}
