package webhook

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/pilotlight-dev/pilotlight/internal/workload"
)

const (
	coalesce     = time.Second // between nudges for one reference
	maxPending   = 1000        // references that wait for their turn
	maxNudges    = 16          // at a time
	nudgeTimeout = 2 * time.Second
	// hashDigits of the SHA-256 of a reference name it in a pod's label.
	hashDigits = 10
)

// Agents finds the pods that follow the reference with this hash.
type Agents interface {
	Agents(refHash string) []workload.Agent
}

// RefHash is the value of the label by which a reference's pods are found: the
// first ten hex digits of its SHA-256.
func RefHash(ref string) string {
	sum := sha256.Sum256([]byte(ref))
	return hex.EncodeToString(sum[:])[:hashDigits]
}

// Nudger tells agents to ask their registry soon. Run it.
type Nudger struct {
	agents Agents
	log    *slog.Logger
	nudges *prometheus.CounterVec
	client *http.Client
	wake   chan struct{} // holds one

	mu      sync.Mutex
	pending map[string]time.Time // when a reference's turn comes
	last    map[string]time.Time // when it was last
}

// NewNudger fails when the metric cannot be registered. A nil logger discards.
func NewNudger(agents Agents, log *slog.Logger, r prometheus.Registerer) (*Nudger, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	n := &Nudger{
		agents: agents, log: log, wake: make(chan struct{}, 1), pending: map[string]time.Time{}, last: map[string]time.Time{},
		nudges: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pilotlight_webhook_nudges_total", Help: "Agents told of a moved alias, by result: ok, refused (an answer other than 2xx) or unreachable.",
		}, []string{"result"}),
		client: &http.Client{
			Timeout:       nudgeTimeout,
			Transport:     &http.Transport{DisableKeepAlives: true, MaxResponseHeaderBytes: 16 << 10},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
	return n, r.Register(n.nudges)
}

// Nudge asks for the agents of ref to be told: at once, or a second after they
// were last told. It does not block.
func (n *Nudger) Nudge(ref string) { n.nudge(ref, time.Now()) }

func (n *Nudger) nudge(ref string, now time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, waits := n.pending[ref]; waits || len(n.pending) >= maxPending {
		return
	}
	turn := now
	if next := n.last[ref].Add(coalesce); next.After(turn) {
		turn = next
	}
	n.pending[ref] = turn
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// due takes out the references whose turn has come, and says how long until
// the next.
func (n *Nudger) due(now time.Time) (refs []string, wait time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	wait = time.Hour
	for ref, turn := range n.pending {
		if left := turn.Sub(now); left > 0 {
			wait = min(wait, left)
			continue
		}
		delete(n.pending, ref)
		refs = append(refs, ref)
	}
	for ref, at := range n.last {
		if now.Sub(at) > coalesce {
			delete(n.last, ref)
		}
	}
	for _, ref := range refs {
		n.last[ref] = now
	}
	return refs, wait
}

// Run tells the agents until ctx ends.
func (n *Nudger) Run(ctx context.Context) {
	for {
		refs, wait := n.due(time.Now())
		for _, ref := range refs {
			n.tell(ctx, ref)
		}
		if len(refs) > 0 {
			continue // time has passed
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-n.wake:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// tell posts to every agent of ref. One that cannot be told asks by itself at
// its next poll, so that nothing is repeated.
func (n *Nudger) tell(ctx context.Context, ref string) {
	agents := n.agents.Agents(RefHash(ref))
	var mu sync.Mutex
	counts := map[string]int{}
	var group errgroup.Group
	group.SetLimit(maxNudges)
	for _, a := range agents {
		group.Go(func() error {
			result := n.post(ctx, a)
			n.nudges.WithLabelValues(result).Inc()
			mu.Lock()
			defer mu.Unlock()
			counts[result]++
			return nil
		})
	}
	_ = group.Wait() // the functions above return no error
	n.log.InfoContext(ctx, "agents nudged", "ref", ref, "agents", len(agents), "ok", counts["ok"], "refused", counts["refused"], "unreachable", counts["unreachable"])
}

func (n *Nudger) post(ctx context.Context, a workload.Agent) string {
	u := "http://" + net.JoinHostPort(a.Host, strconv.Itoa(a.Port)) + "/nudge"
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, u, http.NoBody)
	if err != nil {
		return "unreachable"
	}
	resp, err := n.client.Do(req)
	if err != nil {
		n.log.DebugContext(ctx, "agent not reached", "namespace", a.Namespace, "pod", a.Pod, "error", err)
		return "unreachable"
	}
	_, _ = io.CopyN(io.Discard, resp.Body, 4<<10)
	_ = resp.Body.Close() // it was only read
	if resp.StatusCode < 200 || resp.StatusCode >= 300 {
		return "refused"
	}
	return "ok"
}
