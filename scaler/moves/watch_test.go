package moves

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/internal/workload"
)

// fleet are agents that listen.
type fleet struct {
	mu   sync.Mutex
	list []workload.Agent
}

func (f *fleet) AllAgents() []workload.Agent {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.list
}

func (f *fleet) add(t *testing.T, pod string, h http.HandlerFunc) {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	host, text, err := net.SplitHostPort(srv.Listener.Addr().String())
	require.NoError(t, err)
	port, err := strconv.Atoi(text)
	require.NoError(t, err)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.list = append(f.list, workload.Agent{Namespace: "ai", Pod: pod, Host: host, Port: port, RefHash: "8274e780f9"})
}

// says answers /status of an agent whose pointer names a version since a second
// ago, by a clock that is ahead.
func says(version *string, mu *sync.Mutex, ahead time.Duration) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		now := time.Now().Add(ahead).UTC()
		w.Header().Set("Date", now.Format(http.TimeFormat))
		if r.Method != http.MethodGet || r.URL.Path != "/status" {
			http.NotFound(w, r)
			return
		}
		_, _ = fmt.Fprintf(w, `{"v":1,"ref":"models:/llama@champion","named":{"version":%q,"at":%q},"history":[]}`, *version, now.Add(-time.Second).Format(time.RFC3339Nano))
	}
}

func TestAgentsAreAskedAndMovesKept(t *testing.T) {
	var f fleet
	var mu sync.Mutex
	version := "7"
	f.add(t, "a", says(&version, &mu, time.Hour))
	f.add(t, "b", says(&version, &mu, -time.Hour))
	f.add(t, "lost", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", "http://127.0.0.1:1/")
		w.WriteHeader(http.StatusFound)
	})
	f.add(t, "chatty", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, maxAnswer+1)) })
	f.add(t, "odd", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("hello")) })
	var book Book
	reg := prometheus.NewRegistry()
	w, err := New(Options{Book: &book, Agents: &f, Registerer: reg})
	require.NoError(t, err)
	w.client.Timeout = time.Minute // no agent hangs here, but the machine may be busy
	began := time.Now()
	w.ask(t.Context())
	moves := book.Moves(llama)
	require.Len(t, moves, 1)
	require.Equal(t, "7", moves[0].To)
	require.WithinDuration(t, began, moves[0].At, 30*time.Minute, "by our clock, whatever the agents'")
	results := map[string]float64{}
	families, err := reg.Gather()
	require.NoError(t, err)
	for _, m := range families[0].GetMetric() {
		results[m.GetLabel()[0].GetValue()] = m.GetCounter().GetValue()
	}
	require.Equal(t, map[string]float64{"ok": 2, "invalid": 1, "unreachable": 2}, results)

	// The scaler is told by hand that time has passed: what was heard within
	// seconds of each other is not told apart.
	book.mu.Lock()
	e := book.entries[llama]
	e.line[0].At, e.heard = e.line[0].At.Add(-time.Minute), e.heard.Add(-time.Minute)
	book.mu.Unlock()
	mu.Lock()
	version = "8"
	mu.Unlock()
	for range 3 { // two of five in each round
		w.ask(t.Context())
	}
	moves = book.Moves(llama)
	require.Len(t, moves, 2)
	require.Equal(t, "7", moves[0].From)
	require.Equal(t, "8", moves[0].To)
}

func TestThatThereIsNoRoomIsSaidOnce(t *testing.T) {
	var f fleet
	var mu sync.Mutex
	version := "7"
	f.add(t, "a", says(&version, &mu, 0))
	var book Book
	for i := range maxKeys {
		book.Learn(Key{"other", strconv.Itoa(i)}, []Seen{named(0, "1")}, at(1))
	}
	var log bytes.Buffer
	w, err := New(Options{Book: &book, Agents: &f, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	require.NoError(t, err)
	for range 3 {
		w.ask(t.Context())
	}
	require.Empty(t, book.Moves(llama))
	require.Equal(t, 1, strings.Count(log.String(), "not_remembered=1"), log.String())
}

// However many pods there are, a few of them are asked, and not always the same.
func TestARoundIsBounded(t *testing.T) {
	var f fleet
	for i := range 100 {
		f.list = append(f.list, workload.Agent{Namespace: "ai", Pod: strconv.Itoa(i), RefHash: "8274e780f9"})
	}
	for i := range 2 * maxAsked {
		f.list = append(f.list, workload.Agent{Namespace: "many", Pod: strconv.Itoa(i), RefHash: strconv.Itoa(i)})
	}
	var book Book
	w, err := New(Options{Book: &book, Agents: &f})
	require.NoError(t, err)
	plan := func(now time.Time) []workload.Agent { p := w.plan(now); w.turn += p.covered; return p.asked }
	require.Len(t, plan(at(0)), maxAsked)
	f.list = f.list[:100]
	require.Len(t, plan(at(0)), enoughQuiet, "nothing is known of it yet")
	w.refs = map[pointer]string{{"ai", "8274e780f9"}: llama.Ref}
	book.Learn(llama, []Seen{named(0, "7")}, at(1))
	asked := map[string]bool{}
	for range 100 / enough {
		round := plan(at(10))
		require.Len(t, round, enough)
		for _, a := range round {
			asked[a.Pod] = true
		}
	}
	require.Len(t, asked, 100, "everybody's turn comes")
}

// A round that is too long for all pointers goes on where the last one ended, and
// asks other agents of each when it comes round.
func TestEveryPointersTurnComes(t *testing.T) {
	const pointers, pods = 700, 6
	var f fleet
	refs := map[pointer]string{}
	var book Book
	for i := range pointers {
		hash := strconv.Itoa(i)
		for j := range pods {
			f.list = append(f.list, workload.Agent{Namespace: "ai", Pod: hash + "-" + strconv.Itoa(j), RefHash: hash})
		}
	}
	w, err := New(Options{Book: &book, Agents: &f})
	require.NoError(t, err)
	first := map[string]bool{} // by pointer: nothing is known of any yet, all six are asked
	for range 3 {              // 700 pointers, 333 a round
		p := w.plan(at(0))
		require.LessOrEqual(t, len(p.asked), maxAsked)
		for _, a := range p.asked {
			first[a.RefHash] = true
		}
		w.turn += p.covered
	}
	require.Len(t, first, pointers)

	for i := range pointers {
		hash := strconv.Itoa(i)
		refs[pointer{"ai", hash}] = hash
		book.Learn(Key{"ai", hash}, []Seen{named(0, "7")}, at(1))
	}
	w.refs = refs
	for range 3 * pointers { // more than a round takes
		f.list = append(f.list, workload.Agent{Namespace: "ai", Pod: "x" + strconv.Itoa(len(f.list)), RefHash: "x" + strconv.Itoa(len(f.list))})
	}
	everybody := map[string]bool{}
	for range 60 {
		p := w.plan(at(10))
		for _, a := range p.asked {
			everybody[a.Pod] = true
		}
		w.turn += p.covered
	}
	require.Len(t, everybody, len(f.list))
}

func TestTheWatchEndsWithItsContext(t *testing.T) {
	var f fleet
	stuck := make(chan struct{})
	defer close(stuck)
	asked := make(chan struct{}, 1)
	f.add(t, "a", func(_ http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		select {
		case <-r.Context().Done():
		case <-stuck:
		}
	})
	w, err := New(Options{Book: &Book{}, Agents: &f, Every: time.Hour})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { w.Run(ctx); close(done) }()
	<-asked
	cancel()
	<-done
}

// agents are pods of one reference that tell what they have published.
type agents struct {
	t    *testing.T
	w    *Watcher
	book Book
	f    fleet
	says map[string]*Move
	told []string
	deaf bool // nobody whom it concerns is known
}

func swapping(t *testing.T) *agents {
	t.Helper()
	a := &agents{t: t, says: map[string]*Move{}}
	a.restart()
	return a
}

// restart makes another process of the scaler.
func (a *agents) restart() {
	var err error
	a.w, err = New(Options{Book: &a.book, Agents: &a.f, Swapped: func(s Swap) bool {
		if !a.deaf {
			a.told = append(a.told, fmt.Sprintf("%s %v: %s", s.Namespace, s.Pods, s))
		}
		return !a.deaf
	}})
	require.NoError(a.t, err)
	a.w.client.Transport = handler{http.HandlerFunc(a.serve)}
}

func (a *agents) serve(w http.ResponseWriter, r *http.Request) {
	m := a.says[r.URL.Hostname()]
	w.Header().Set("Date", time.Now().UTC().Format(http.TimeFormat))
	_, _ = fmt.Fprintf(w, `{"v":1,"ref":"models:/llama@champion","published":{"version":%q,"digest":%q,"at":%q},"history":[]}`, m.To, strings.Repeat("a", 64), m.At.Format(time.RFC3339Nano))
}

// publish makes a pod publish a version now.
func (a *agents) publish(pod, version string) {
	if a.says[pod] == nil {
		a.f.list = append(a.f.list, workload.Agent{Namespace: "ai", Pod: pod, Host: pod, Port: 9400, RefHash: "8274e780f9"})
	}
	a.says[pod] = &Move{At: time.Now().UTC(), To: version}
}

// ask is a round, a minute later.
func (a *agents) ask() []string {
	time.Sleep(time.Minute)
	a.told = nil
	a.w.ask(a.t.Context())
	return a.told
}

// A swap is told of once, to everybody who follows the reference, and not when it
// is heard of for the first time.
func TestASwapIsToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := swapping(t)
		a.publish("writer", "7")
		a.publish("llama-0", "7")
		require.Empty(t, a.ask())
		a.publish("writer", "8")
		require.Equal(t, []string{"ai [writer llama-0]: models:/llama@champion: version 8 is published in place of 7, in pod writer first"}, a.ask())
		a.publish("llama-0", "8") // a reader that lags
		require.Empty(t, a.ask())
		require.Empty(t, a.ask())
		a.publish("llama-1", "8") // another replica
		require.Empty(t, a.ask())
		a.publish("llama-1", "7") // a rollout that pins the version
		a.f.list = a.f.list[2:]
		require.Equal(t, []string{"ai [llama-1]: models:/llama@champion: version 7 is published in place of 8, in pod llama-1 first"}, a.ask())
		a.w.opts.Swapped = nil
		a.publish("llama-1", "9")
		require.Empty(t, a.ask())
	})
}

// One that concerns nobody who is known yet, as when KEDA has not asked since the
// scaler began, is told later.
func TestASwapWaitsForWhomItConcerns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := swapping(t)
		a.publish("llama-0", "7")
		require.Empty(t, a.ask())
		a.deaf = true
		a.publish("llama-0", "8")
		require.Empty(t, a.ask())
		require.Empty(t, a.ask())
		a.deaf = false
		require.Len(t, a.ask(), 1)
		require.Empty(t, a.ask())
	})
}

// Pods of one namespace that follow two registries by one name publish different
// versions, and do so once.
func TestAgentsThatDisagreeRepeatNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := swapping(t)
		a.publish("llama-0", "7")
		require.Empty(t, a.ask())
		a.publish("llama-1", "8")
		require.Len(t, a.ask(), 1)
		for range 20 {
			require.Empty(t, a.ask())
		}
		a.restart()
		for range 20 {
			require.Empty(t, a.ask(), "what is heard first is no news")
		}
	})
}

// handler answers without sockets.
type handler struct{ http.Handler }

func (h handler) RoundTrip(r *http.Request) (*http.Response, error) {
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, r)
	return rec.Result(), nil
}
