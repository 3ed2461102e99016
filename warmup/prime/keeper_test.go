package prime

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/stretchr/testify/require"
)

// kept is a keeper under way whose work takes as long as it is told to.
type kept struct {
	*Keeper
	t    *testing.T
	reg  *prometheus.Registry
	root string

	mu       sync.Mutex
	cached   []string // folders, "b!" for one that was cancelled
	engines  int      // warm-ups begun
	cacheErr error
	engine   EngineReport
}

const (
	cacheTakes  = time.Minute
	engineTakes = 10 * time.Second
)

// keep runs a keeper in a bubble, above three versions of which `current` names a.
func keep(t *testing.T, play func(t *testing.T, k *kept)) {
	t.Helper()
	root := t.TempDir()
	for _, name := range []string{"a", "b", "c"} {
		require.NoError(t, os.Mkdir(filepath.Join(root, name), 0o750))
	}
	synctest.Test(t, func(t *testing.T) {
		k := &kept{t: t, reg: prometheus.NewRegistry(), root: root, engine: EngineReport{Healthy: true, Requests: 10, Burst: engineTakes}}
		k.point("a")
		var err error
		k.Keeper, err = NewKeeper(KeeperOptions{Cache: k.warmFolder, Engine: k.warmUp, Registerer: k.reg})
		require.NoError(t, err)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- k.Run(ctx) }()
		play(t, k)
		stop()
		require.NoError(t, <-done)
	})
}

func (k *kept) warmFolder(ctx context.Context, dir string) (CacheReport, error) {
	name := filepath.Base(dir)
	stopped := ""
	if !pause(ctx, cacheTakes) {
		name, stopped = name+"!", StoppedCancelled
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.cached = append(k.cached, name)
	return CacheReport{Size: 10, After: 10, Read: 4, Stopped: stopped, Took: cacheTakes}, k.cacheErr
}

func (k *kept) warmUp(ctx context.Context) (EngineReport, error) {
	k.mu.Lock()
	k.engines++
	report := k.engine
	k.mu.Unlock()
	pause(ctx, engineTakes)
	return report, ctx.Err()
}

func (k *kept) current() string { return filepath.Join(k.root, "current") }

// point moves `current`.
func (k *kept) point(name string) {
	k.t.Helper()
	require.NoError(k.t, os.RemoveAll(k.current()))
	require.NoError(k.t, os.Symlink(name, k.current()))
}

// publish moves `current` and says so.
func (k *kept) publish(name string, written bool) {
	k.t.Helper()
	k.point(name)
	k.Published(k.current(), written)
	synctest.Wait()
}

func (k *kept) did() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.cached
}

func (k *kept) probe() int {
	rec := httptest.NewRecorder()
	k.ServeHTTP(rec, httptest.NewRequestWithContext(k.t.Context(), http.MethodGet, "/readyz/engine", nil))
	return rec.Code
}

// figures are the metrics that are no histograms, as name or name/result.
func (k *kept) figures() map[string]float64 {
	k.t.Helper()
	families, err := k.reg.Gather()
	require.NoError(k.t, err)
	out := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := strings.TrimPrefix(f.GetName(), "pilotlight_prime_")
			for _, l := range m.GetLabel() {
				name += "/" + l.GetValue()
			}
			switch {
			case m.GetGauge() != nil:
				out[name] = m.GetGauge().GetValue()
			case m.GetCounter() != nil:
				out[name] = m.GetCounter().GetValue()
			default:
				out[name] = float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return out
}

// has compares some of the figures.
func (k *kept) has(want map[string]float64) {
	k.t.Helper()
	got := k.figures()
	for name, value := range want {
		require.Contains(k.t, got, name)
		require.InDelta(k.t, value, got[name], 0, name)
	}
}

func TestTheGateOpensAfterTheWarmUpOfEveryStart(t *testing.T) {
	keep(t, func(t *testing.T, k *kept) {
		require.Equal(t, http.StatusServiceUnavailable, k.probe(), "nobody has seen the engine")
		for range 2 {
			k.EngineDown(k.current())
			time.Sleep(5 * time.Minute)
			require.Equal(t, http.StatusServiceUnavailable, k.probe(), "it loads")
			k.EngineUp(true)
			time.Sleep(engineTakes - time.Second)
			require.Equal(t, http.StatusServiceUnavailable, k.probe(), "it is healthy, and not warm")
			time.Sleep(2 * time.Second)
			require.Equal(t, http.StatusOK, k.probe())
		}
		require.Equal(t, 10, k.Status().Engine.Requests)
		k.has(map[string]float64{"engine_ready": 1, "engine_requests_total/ok": 20, "engine_requests_total/failed": 0, "engine_seconds": 2})
	})
}

func TestAnEngineThatGoesDuringItsWarmUp(t *testing.T) {
	keep(t, func(t *testing.T, k *kept) {
		k.EngineDown("")
		k.EngineUp(true)
		time.Sleep(engineTakes / 2)
		k.EngineDown("")
		time.Sleep(engineTakes)
		require.Equal(t, http.StatusServiceUnavailable, k.probe())
		require.Nil(t, k.Status().Engine, "what was said of the one before is not said of this one")
		k.EngineUp(true)
		time.Sleep(engineTakes + time.Second)
		require.Equal(t, http.StatusOK, k.probe())
		require.Equal(t, 2, k.engines)
	})
}

func TestAnEngineThatWasUpBeforeIsLeftAlone(t *testing.T) {
	keep(t, func(t *testing.T, k *kept) {
		k.EngineUp(false)
		require.Equal(t, http.StatusOK, k.probe(), "it serves already")
		time.Sleep(time.Minute)
		require.Zero(t, k.engines)
	})
}

func TestWhatFailsIsReportedAndOpensTheGate(t *testing.T) {
	keep(t, func(t *testing.T, k *kept) {
		k.engine = EngineReport{Healthy: true, Requests: 10, Failed: 10, Problem: "HTTP 500"}
		k.cacheErr = errors.New("no meminfo")
		k.EngineDown(k.current())
		k.EngineUp(true)
		time.Sleep(2 * cacheTakes)
		require.Equal(t, http.StatusOK, k.probe())
		rec := httptest.NewRecorder()
		k.ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/readyz/engine", nil))
		var status Status
		require.NoError(t, json.Unmarshal(rec.Body.Bytes(), &status))
		require.Equal(t, "HTTP 500", status.Engine.Problem)
		require.NotNil(t, status.Cache)
		k.has(map[string]float64{"engine_runs_total/failed": 1, "engine_ready": 1})
	})
}

func TestTheCacheFollowsWhatIsPublished(t *testing.T) {
	keep(t, func(t *testing.T, k *kept) {
		k.publish("a", false)
		k.EngineDown(k.current()) // the first probe, a moment later
		k.publish("a", false)
		time.Sleep(cacheTakes + time.Second)
		require.Equal(t, []string{"a"}, k.did(), "once")
		k.EngineDown(k.current())
		time.Sleep(cacheTakes + time.Second)
		require.Equal(t, []string{"a"}, k.did(), "it is warm still")

		k.publish("b", false)
		time.Sleep(time.Second)
		k.publish("c", false)
		time.Sleep(cacheTakes + time.Second)
		require.Equal(t, []string{"a", "b!", "c"}, k.did(), "another version takes its place")
		time.Sleep(warmFor)
		k.EngineDown(k.current())
		time.Sleep(cacheTakes + time.Second)
		require.Equal(t, []string{"a", "b!", "c", "c"}, k.did(), "an engine that goes down later may find it cold")
		k.has(map[string]float64{
			"cache_resident_bytes": 10, "cache_size_bytes": 10, "cache_read_bytes_total": 16, "cache_seconds": 4,
			"cache_runs_total/warm": 3, "cache_runs_total/cancelled": 1,
		})
	})
}

func TestWhatWasJustWrittenIsWarm(t *testing.T) {
	keep(t, func(t *testing.T, k *kept) {
		k.publish("a", false)
		k.publish("b", true)
		k.EngineDown(k.current())
		time.Sleep(2 * cacheTakes)
		require.Equal(t, []string{"a!"}, k.did(), "and what was being warmed is not needed any more")
		k.Published(filepath.Join(k.root, "gone"), false)
		time.Sleep(cacheTakes)
		require.Equal(t, []string{"a!"}, k.did(), "a folder that is not there is no reason to end")
	})
}

func TestAKeeperOfNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, err := NewKeeper(KeeperOptions{})
		require.NoError(t, err)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- k.Run(ctx) }()
		k.Published("/", false)
		k.EngineDown("/")
		k.EngineUp(true)
		synctest.Wait()
		require.True(t, k.Status().Ready, "nothing to send")
		require.Nil(t, k.Status().Cache)
		stop()
		require.NoError(t, <-done)
	})
}

func TestMetricsOfWarming(t *testing.T) {
	reg := prometheus.NewRegistry()
	_, err := NewKeeper(KeeperOptions{Registerer: reg})
	require.NoError(t, err)
	families, err := reg.Gather()
	require.NoError(t, err)
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	require.NoError(t, err)
	require.Empty(t, problems)
	for _, f := range families {
		if f.GetName() == "pilotlight_prime_cache_resident_bytes" {
			require.True(t, math.IsNaN(f.GetMetric()[0].GetGauge().GetValue()), "unknown is not zero")
		}
	}
	_, err = NewKeeper(KeeperOptions{Registerer: reg})
	require.Error(t, err, "twice")
}
