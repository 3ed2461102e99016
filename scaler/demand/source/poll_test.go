package source

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/internal/tlsconf"
	"github.com/pilotlight-dev/pilotlight/internal/tlsconf/tlstest"
	"github.com/pilotlight-dev/pilotlight/internal/trigger"
	"github.com/pilotlight-dev/pilotlight/internal/workload"
	"github.com/pilotlight-dev/pilotlight/scaler/policy"
)

// answers is a server whose answer can be changed.
type answers struct {
	*httptest.Server
	body   atomic.Pointer[string]
	asked  atomic.Int64
	bearer atomic.Pointer[string]
}

func serve(t *testing.T, body string) *answers {
	t.Helper()
	a := &answers{}
	a.body.Store(&body)
	a.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.asked.Add(1)
		bearer := r.Header.Get("Authorization")
		a.bearer.Store(&bearer)
		switch body := *a.body.Load(); {
		case strings.HasPrefix(body, "http://"):
			http.Redirect(w, r, body, http.StatusFound)
		case body == "500":
			w.WriteHeader(http.StatusInternalServerError)
		default:
			_, _ = io.WriteString(w, body)
		}
	}))
	t.Cleanup(a.Close)
	return a
}

func (a *answers) say(body string) { a.body.Store(&body) }

// ask polls an entry by hand, so that tests need no clock: its times are longer
// than any test.
func ask(t *testing.T, lines string, tr trigger.Trigger) (*poller, *View) {
	t.Helper()
	e := one(t, lines+"\ninterval: 5s\ntimeout: 10s")
	set, err := New([]Entry{e}, Options{})
	require.NoError(t, err)
	tr.DemandFrom = "it"
	require.Empty(t, set.Check(llama, tr))
	v := set.Open(llama, tr)
	return set.pollers["it"], v
}

func TestHeldRequestsWake(t *testing.T) {
	srv := serve(t, "llm_d_epp_flow_control_pool_saturation 0\n")
	p, v := ask(t, "type: epp\nurl: "+srv.URL, trigger.Trigger{ModelName: "llama"})
	c := make(chan struct{}, 1)
	stop := v.Wake(llama, c)
	p.poll(t.Context())
	require.Equal(t, policy.Demand{Known: true}, v.Since(t.Context(), llama, time.Time{}))
	require.Empty(t, c)

	srv.say(newQueue)
	p.poll(t.Context())
	require.Len(t, c, 1, "there were none before")
	<-c
	require.Equal(t, policy.Demand{Known: true, Held: 5}, v.Since(t.Context(), llama, time.Now()))
	require.False(t, v.Traffic(llama).Known, "it counts no arrivals")
	p.poll(t.Context())
	require.Empty(t, c, "still waiting is no news")

	stop()
	before := srv.asked.Load()
	p.poll(t.Context())
	require.Equal(t, before, srv.asked.Load(), "nobody asks any more")
	require.Equal(t, policy.Demand{}, v.Since(t.Context(), llama, time.Time{}))
}

// A failure does not make it zero: the last number stands for a while, and then
// it is unknown.
func TestUnknownIsNotZero(t *testing.T) {
	srv := serve(t, newQueue)
	p, v := ask(t, "type: epp\nurl: "+srv.URL, trigger.Trigger{ModelName: "llama"})
	defer v.Wake(llama, make(chan struct{}, 1))()
	p.poll(t.Context())
	srv.say("500")
	p.poll(t.Context())
	require.Equal(t, policy.Demand{Known: true, Held: 5}, v.Since(t.Context(), llama, time.Now()))
	_, problem := v.Says()
	require.Equal(t, "answered HTTP 500", problem, "without the address")
	w := v.watch()
	w.at = w.at.Add(-p.entry.Stale())
	require.Equal(t, policy.Demand{}, v.Since(t.Context(), llama, time.Now()), "too old to stand for now")
	srv.say(newQueue)
	p.poll(t.Context())
	require.True(t, v.Since(t.Context(), llama, time.Now()).Known)
	_, problem = v.Says()
	require.Empty(t, problem)
}

func TestAddOnCountsBothTogether(t *testing.T) {
	srv := serve(t, `{"ai/llama":{"Concurrency":4}}`)
	p, v := ask(t, "type: http-addon\nurl: "+srv.URL, trigger.Trigger{})
	defer v.Wake(llama, make(chan struct{}, 1))()
	p.poll(t.Context())
	require.Equal(t, policy.Demand{Known: true, Held: 4}, v.Since(t.Context(), llama, time.Time{}), "no Ready pod: all wait")
	require.Equal(t, policy.Demand{Known: true, InFlight: 4}, v.Since(t.Context(), llama, time.Now()), "a Ready pod: all are sent on")
}

func TestRouterCountsArrivals(t *testing.T) {
	page := func(n float64) string {
		return fmt.Sprintf("# TYPE vllm:num_incoming_requests_total counter\nvllm:num_incoming_requests_total{model=\"llama\"} %v\nprocess_start_time_seconds 1000\n", n)
	}
	srv := serve(t, page(100))
	p, v := ask(t, "type: router\nurl: "+srv.URL, trigger.Trigger{ModelName: "llama"})
	c := make(chan struct{}, 1)
	defer v.Wake(llama, c)()
	p.poll(t.Context())
	require.Equal(t, policy.Traffic{Known: true}, v.Traffic(llama), "what came before we listened is no news")
	require.Empty(t, c)
	srv.say(page(103))
	p.poll(t.Context())
	require.Equal(t, policy.Traffic{Known: true, Arrivals: 3}, v.Traffic(llama))
	require.Len(t, c, 1)
	require.Equal(t, policy.Demand{Known: true}, v.Since(t.Context(), llama, time.Time{}))
	srv.say(page(2))
	p.poll(t.Context())
	require.InDelta(t, 5, v.Traffic(llama).Arrivals, 0, "a counter that falls was reset")
}

// Several processes behind one address count each for themselves.
func TestCounterTellsProcessesApart(t *testing.T) {
	began := time.Unix(5000, 0)
	var c counter
	require.Zero(t, c.count(map[string]float64{"a 1000.000": 100}, began))
	require.Zero(t, c.count(map[string]float64{"b 1001.000": 50}, began.Add(time.Second)), "an older one that we had not met")
	require.InDelta(t, 2, c.count(map[string]float64{"a 1000.000": 102}, began.Add(2*time.Second)), 0, "and no restart in between")
	require.InDelta(t, 4, c.count(map[string]float64{"c 5002.000": 4}, began.Add(3*time.Second)), 0, "one that has started since counts from zero")
	require.Zero(t, c.count(map[string]float64{"d 0.000": 4}, began.Add(3*time.Second)), "one that does not say when it started may be old")
	require.Zero(t, c.count(map[string]float64{"a 1000.000": 500}, began.Add(time.Hour)), "not seen for too long")
	require.InDelta(t, 6, c.total, 0)
}

// Behind a headless Service every process holds its own share.
func TestEveryAddressIsAsked(t *testing.T) {
	srv := serve(t, `{"ai/llama":{"Concurrency":2}}`)
	port := srv.URL[strings.LastIndex(srv.URL, ":")+1:]
	e := one(t, "type: http-addon\nurl: http://interceptors.keda:"+port+"/queue\ntimeout: 10s")
	dns := addresses{"127.0.0.1", "127.0.0.2", "127.0.0.1"}
	set, err := newSet([]Entry{e}, Options{}, dns)
	require.NoError(t, err)
	f := set.pollers["it"].fetch
	targets, err := f.targets(t.Context(), "")
	require.NoError(t, err)
	require.Len(t, targets, 2, "each address once")
	sum := tally{counts: map[string]float64{}}
	for _, u := range targets[:1] {
		got, err := f.get(t.Context(), u)
		require.NoError(t, err)
		sum = sum.with(u, got, question{ref: llama, query: "llama"}).with(u, got, question{ref: llama, query: "llama"})
	}
	require.InDelta(t, 4, sum.sum, 0)
	set, err = newSet([]Entry{e}, Options{}, addresses{})
	require.NoError(t, err)
	_, err = set.pollers["it"].fetch.targets(t.Context(), "")
	require.ErrorIs(t, err, ErrUnknown, "no address is no process, which is not zero requests")
	many := make(addresses, maxAddresses+1)
	for i := range many {
		many[i] = fmt.Sprintf("10.0.0.%d", i+1)
	}
	set, err = newSet([]Entry{e}, Options{}, many)
	require.NoError(t, err)
	_, err = set.pollers["it"].fetch.targets(t.Context(), "")
	require.ErrorIs(t, err, ErrUnknown)
}

type addresses []string

func (a addresses) LookupNetIP(context.Context, string, string) (out []netip.Addr, err error) {
	for _, s := range a {
		out = append(out, netip.MustParseAddr(s))
	}
	return out, nil
}

func TestBadAnswersHaveAWord(t *testing.T) {
	elsewhere := serve(t, newQueue)
	for name, tc := range map[string]struct{ body, word string }{
		"Redirect": {elsewhere.URL, "redirect"},
		"Status":   {"500", "status_500"},
		"TooLarge": {strings.Repeat("# x\n", maxBody/4+1), "too_large"},
	} {
		t.Run(name, func(t *testing.T) {
			srv := serve(t, tc.body)
			p, _ := ask(t, "type: epp\nurl: "+srv.URL, trigger.Trigger{ModelName: "llama"})
			_, err := p.fetch.get(t.Context(), p.fetch.base)
			require.ErrorIs(t, err, ErrUnknown)
			require.Equal(t, tc.word, reason(err))
		})
	}
	require.Zero(t, elsewhere.asked.Load(), "a redirect is not followed")
	gone := serve(t, "")
	gone.Close()
	p, _ := ask(t, "type: epp\nurl: "+gone.URL, trigger.Trigger{ModelName: "llama"})
	_, err := p.fetch.get(t.Context(), p.fetch.base)
	require.Equal(t, "refused", reason(err))
	ctx, cancel := context.WithTimeout(t.Context(), -1)
	defer cancel()
	_, err = p.fetch.get(ctx, p.fetch.base)
	require.Equal(t, "timeout", reason(err))
}

func TestTokenIsReadAnewAndNotTold(t *testing.T) {
	srv := serve(t, newQueue)
	file := filepath.Join(t.TempDir(), "token")
	write := func(s string, at time.Time) {
		require.NoError(t, os.WriteFile(file, []byte(s), 0o600))
		require.NoError(t, os.Chtimes(file, at, at))
	}
	write("first\n", time.Unix(1, 0))
	p, v := ask(t, "type: epp\nurl: "+srv.URL+"\nbearerTokenFile: "+file, trigger.Trigger{ModelName: "llama"})
	defer v.Wake(llama, make(chan struct{}, 1))()
	p.poll(t.Context())
	require.Equal(t, "Bearer first", *srv.bearer.Load())
	write("second", time.Unix(2, 0))
	p.poll(t.Context())
	require.Equal(t, "Bearer second", *srv.bearer.Load())
	write("not a token", time.Unix(3, 0))
	p.poll(t.Context())
	_, problem := v.Says()
	require.Contains(t, problem, "token")
	require.NotContains(t, problem, "not a token")
	require.NotContains(t, problem, file, "a path of ours is not for tenants")
	_, err := New([]Entry{one(t, "type: epp\nurl: http://x\nbearerTokenFile: /no/such/file")}, Options{})
	require.ErrorIs(t, err, ErrConfig)
}

// Prometheus is asked one query for all that share it, by a running poller.
func TestOnePollForAll(t *testing.T) {
	var queries atomic.Int64
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/prom/api/v1/query" && r.URL.Query().Get("query") == `sum(q{namespace="ai"})` {
			queries.Add(1)
		}
		_, _ = io.WriteString(w, `{"status":"success","data":{"resultType":"scalar","result":[1,"3"]}}`)
	}))
	defer srv.Close()
	reg := prometheus.NewRegistry()
	set, err := New([]Entry{one(t, "type: prometheus\nurl: "+srv.URL+"/prom\ninterval: 5s\ntimeout: 5s\nquery: sum(q{namespace=\"{{namespace}}\"})")}, Options{Registerer: reg})
	require.NoError(t, err)
	tr := trigger.Trigger{DemandFrom: "it"}
	var views []*View
	for _, name := range []string{"a", "b", "c"} {
		ref := llama
		ref.Name = name
		v := set.Open(ref, tr)
		defer v.Wake(ref, make(chan struct{}, 1))()
		views = append(views, v)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { set.Run(ctx); close(done) }()
	for _, v := range views {
		require.Equal(t, policy.Demand{Known: true, Held: 3}, v.Since(t.Context(), llama, time.Now()), "the first answer is waited for")
	}
	cancel()
	<-done
	require.LessOrEqual(t, queries.Load(), int64(2), "three targets, one query, asked again when somebody joined")
	families, err := reg.Gather()
	require.NoError(t, err)
	require.Len(t, families, 1, "no error")
	require.Equal(t, "pilotlight_demand_source_last_success_timestamp_seconds", families[0].GetName())
}

// Many queries share a server, and one that is slow does not make the others
// unknown.
func TestSlowQueryHarmsOnlyItself(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.RawQuery, "slow") {
			<-r.Context().Done()
			return
		}
		_, _ = io.WriteString(w, `{"status":"success","data":{"resultType":"scalar","result":[1,"1"]}}`)
	}))
	defer srv.Close()
	set, err := New([]Entry{one(t, "type: prometheus\nurl: "+srv.URL+"\ntimeout: 3s\nquery: q{so=\"{{scaledObject}}\"}")}, Options{})
	require.NoError(t, err)
	views := map[string]*View{}
	for i := range 40 {
		ref := workload.Ref{Namespace: "ai", Name: fmt.Sprintf("m%d", i)}
		if i == 0 {
			ref.Name = "slow"
		}
		views[ref.Name] = set.Open(ref, trigger.Trigger{DemandFrom: "it"})
		defer views[ref.Name].Wake(ref, make(chan struct{}, 1))()
	}
	set.pollers["it"].poll(t.Context())
	for name, v := range views {
		require.Equal(t, name != "slow", v.Since(t.Context(), llama, time.Time{}).Known, name)
	}
	_, problem := views["slow"].Says()
	require.Equal(t, "did not answer in time", problem)
}

// A source's certificate and the CA that signed it may be replaced together: the
// next connection is by the new ones.
func TestACertificateOfAnotherCAIsTrustedOnceItsFileIs(t *testing.T) {
	dir := t.TempDir()
	issue := func(name string) tlsconf.Files {
		ca, err := tlstest.New(name)
		require.NoError(t, err)
		files, err := ca.Issue(dir, "epp")
		require.NoError(t, err)
		return files
	}
	files := issue("first")
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "close") // each poll makes a handshake
		_, _ = io.WriteString(w, newQueue)
	}))
	var err error
	srv.TLS, err = tlsconf.Server(tlsconf.Files{Cert: files.Cert, Key: files.Key})
	require.NoError(t, err)
	srv.StartTLS()
	t.Cleanup(srv.Close)
	p, v := ask(t, "type: epp\nurl: "+srv.URL+"\ncaFile: "+files.CA, trigger.Trigger{ModelName: "llama"})
	defer v.Wake(llama, make(chan struct{}, 1))()
	p.poll(t.Context())
	_, problem := v.Says()
	require.Empty(t, problem)
	require.Equal(t, policy.Demand{Known: true, Held: 5}, v.Since(t.Context(), llama, time.Now()))

	trusted, err := os.ReadFile(files.CA)
	require.NoError(t, err)
	issue("second")
	renewed, err := os.ReadFile(files.CA)
	require.NoError(t, err)
	touch := func(names ...string) {
		later := time.Now().Add(time.Hour)
		for _, name := range names {
			require.NoError(t, os.Chtimes(name, later, later))
		}
	}
	require.NoError(t, os.WriteFile(files.CA, trusted, 0o600))
	touch(files.Cert, files.Key)
	require.Eventually(t, func() bool { p.poll(t.Context()); _, problem := v.Says(); return problem != "" }, 30*time.Second, 50*time.Millisecond,
		"signed by a CA that is not trusted")
	require.NoError(t, os.WriteFile(files.CA, renewed, 0o600))
	touch(files.CA)
	require.Eventually(t, func() bool { p.poll(t.Context()); _, problem := v.Says(); return problem == "" }, 30*time.Second, 50*time.Millisecond)
}
