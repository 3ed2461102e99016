package fetchercmd_test

import (
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/internal/exitcode"
	"github.com/pilotlight-dev/pilotlight/internal/fake/engine"
	"github.com/pilotlight-dev/pilotlight/internal/freeport"
)

const engineKey = "sk-engine"

// vllm is an engine that starts when it is told to.
type vllm struct {
	t    *testing.T
	addr string

	mu     sync.Mutex
	keys   map[string]int // of requests that generate
	broken bool           // answers those with 500
	slow   chan struct{}  // if not nil they wait for it
}

func newVLLM(t *testing.T) *vllm {
	t.Helper()
	addr, err := freeport.Addr(t.Context())
	require.NoError(t, err)
	return &vllm{t: t, addr: addr, keys: map[string]int{}}
}

func (v *vllm) url() string { return "http://" + v.addr }

// start lets it listen, and returns what ends it.
func (v *vllm) start() (stop func()) {
	v.t.Helper()
	e := engine.New(engine.Config{Model: "llama", DecodeInterval: time.Millisecond, PrefillTokensPerSecond: 1e6})
	next := e.Handler()
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			v.mu.Lock()
			v.keys[r.Header.Get("Authorization")]++
			broken, slow := v.broken, v.slow
			v.mu.Unlock()
			if slow != nil {
				<-slow
			}
			if broken {
				http.Error(w, "no kernel", http.StatusInternalServerError)
				return
			}
		}
		next.ServeHTTP(w, r)
	}))
	require.NoError(v.t, srv.Listener.Close())
	l, err := (&net.ListenConfig{}).Listen(v.t.Context(), "tcp", v.addr)
	require.NoError(v.t, err)
	srv.Listener = l
	srv.Start()
	stop = sync.OnceFunc(srv.Close)
	v.t.Cleanup(stop)
	return stop
}

func (v *vllm) asked() (n int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, times := range v.keys {
		n += times
	}
	return n
}

// gate asks /readyz/engine.
func (f *follower) gate() int {
	code, _ := f.ask("GET", "/readyz/engine")
	return code
}

// figure is the value of a series on a metrics page, "" if it is not there.
func figure(page, series string) string {
	_, rest, _ := strings.Cut(page, "\n"+series+" ")
	value, _, _ := strings.Cut(rest, "\n")
	return value
}

func TestAgentWarmsCacheAndEngine(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	code, stderr := s.init()
	require.Equal(t, exitcode.OK, code, stderr)
	keyFile := filepath.Join(t.TempDir(), "key")
	require.NoError(t, os.WriteFile(keyFile, []byte(engineKey+"\n"), 0o600))
	v := newVLLM(t)
	v.slow = make(chan struct{})
	f := s.agent("--poll", "1s", "--durability", "durable", "--engine-url", v.url(), "--warm-requests", "4", "--engine-api-key-file", keyFile)
	f.eventually("the cache is warm", func() bool { return strings.Contains(f.out.String(), "the page cache was warmed") })
	require.Equal(t, http.StatusServiceUnavailable, f.gate())
	stop := v.start()
	f.eventually("the first request", func() bool { return v.asked() == 1 })
	f.eventually("--engine-health follows from --engine-url", func() bool { return f.status().Serving.State == "ready" })
	require.Equal(t, http.StatusServiceUnavailable, f.gate(), "healthy is not warm")
	close(v.slow)
	f.eventually("the gate", func() bool { return f.gate() == http.StatusOK })
	require.Equal(t, map[string]int{"Bearer " + engineKey: 4}, v.keys)

	_, metrics := f.ask("GET", "/metrics")
	names := []string{`pilotlight_prime_engine_requests_total{result="ok"} 4`, "pilotlight_prime_engine_ready 1", "pilotlight_prime_engine_seconds_count 1"}
	if runtime.GOOS == "linux" {
		names = append(names, `pilotlight_prime_cache_runs_total{result="warm"} 1`)
		require.Equal(t, figure(metrics, "pilotlight_prime_cache_size_bytes"), figure(metrics, "pilotlight_prime_cache_resident_bytes"))
	}
	for _, name := range names {
		require.True(t, strings.Contains(metrics, "\n"+name+"\n"), name)
	}
	stop()
	f.eventually("an engine that has gone is not ready", func() bool { return f.gate() == http.StatusServiceUnavailable })
	v.start()
	f.eventually("and is warmed up again", func() bool { return f.gate() == http.StatusOK && v.asked() == 8 })

	require.NoError(t, s.registry.SetAlias("llama", "champion", "2"))
	f.publishes("2")
	f.eventually("the version that took its place", func() bool { return strings.Count(f.out.String(), "the page cache was warmed") == 2 })
	require.Equal(t, http.StatusOK, f.gate(), "the engine serves on")
	f.end()
	require.NotContains(t, f.out.String(), engineKey)
}

// What was downloaded to a volume of the pod's is in memory: nothing is read.
func TestAgentDoesNotWarmWhatItHasJustWritten(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	f := s.agent("--poll", "1s", "--durability", "ephemeral")
	f.publishes("1")
	require.NoError(t, s.registry.SetAlias("llama", "champion", "2"))
	f.publishes("2")
	require.NoError(t, s.registry.SetAlias("llama", "champion", "1"))
	f.eventually("a version that is back may be cold", func() bool { return strings.Contains(f.out.String(), "the page cache was warmed") })
	_, metrics := f.ask("GET", "/metrics")
	require.Equal(t, "1", figure(metrics, "pilotlight_prime_cache_seconds_count"))
	require.Equal(t, http.StatusNotFound, f.gate(), "there is no engine")
	f.end()
}

func TestAFailedWarmUpIsNoFailure(t *testing.T) {
	for name, args := range map[string][]string{"Refused": nil, "NoKey": {"--engine-api-key-file", "/nowhere/key"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, v := newSystem(t), newVLLM(t)
			v.broken = true
			f := s.agent(append([]string{"--warm-cache", "off", "--engine-url", v.url()}, args...)...)
			f.eventually("the engine is looked for", func() bool { return f.status().Serving.State == "loading" })
			v.start()
			f.eventually("the gate", func() bool { return f.gate() == http.StatusOK })
			_, body := f.ask("GET", "/readyz/engine")
			var said struct {
				Ready  bool
				Cache  *struct{}
				Engine struct{ Problem string }
			}
			require.NoError(t, json.Unmarshal([]byte(body), &said))
			require.True(t, said.Ready)
			require.Nil(t, said.Cache)
			require.NotEmpty(t, said.Engine.Problem)
			f.publishes("1")
			_, metrics := f.ask("GET", "/metrics")
			require.Equal(t, "1", figure(metrics, `pilotlight_prime_engine_runs_total{result="failed"}`))
			require.NotContains(t, f.out.String(), "the page cache was warmed")
			f.end()
		})
	}
}

func TestAWriterWarmsNothing(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	f := s.agent("--writer", "--poll", "1s")
	f.publishes("1")
	_, metrics := f.ask("GET", "/metrics")
	require.Equal(t, "0", figure(metrics, "pilotlight_prime_cache_seconds_count"))
	f.end()
}

func TestWarmingThatCannotBe(t *testing.T) {
	with := func(args ...string) []string {
		return append([]string{"agent", "--model", "a@b", "--root", "ROOT"}, args...)
	}
	requireFailures(t, map[string]failure{
		"OtherCache":   {nil, with("--warm-cache", "on"), exitcode.Usage, []string{"--warm-cache", "auto or off"}},
		"LessThanNone": {nil, with("--warm-requests", "-1"), exitcode.Usage, []string{"--warm-requests -1", "0 to 256"}},
		"NoURL":        {nil, with("--engine-url", "127.0.0.1:8000"), exitcode.Usage, []string{"--engine-url", "http://127.0.0.1:8000"}},
		"KeyOfNobody":  {nil, with("--engine-api-key-file", "/x"), exitcode.Usage, []string{"--engine-url"}},
		"Writer":       {nil, with("--writer", "--engine-url", "http://127.0.0.1:8000"), exitcode.Usage, []string{"no engine"}},
	})
}
