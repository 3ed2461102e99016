package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/fetcher"
	"github.com/pilotlight-dev/pilotlight/fetcher/agent"
	"github.com/pilotlight-dev/pilotlight/registry"
)

func get(t *testing.T, a *running, method, path string) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	a.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path, nil))
	return w.Code, w.Body.String()
}

func TestItPublishesThenAsksAndDoesNothing(t *testing.T) {
	w := newWorld(t)
	synctest.Test(t, func(t *testing.T) {
		w.set(func() { w.pullTime = 10 * time.Second })
		a := w.run(t, w.options())
		time.Sleep(5 * time.Second)
		code, _ := get(t, a, "GET", "/readyz")
		require.Equal(t, http.StatusServiceUnavailable, code, "the first version is still coming")
		code, _ = get(t, a, "GET", "/healthz")
		require.Equal(t, http.StatusOK, code)
		time.Sleep(6 * time.Second)
		code, _ = get(t, a, "GET", "/readyz")
		require.Equal(t, http.StatusOK, code)

		looks := w.looked()
		time.Sleep(10 * time.Minute)
		require.InDelta(t, 20, w.looked()-looks, 3, "every 30 s, with jitter")
		require.Equal(t, []string{"1"}, w.pulled(), "an unchanged pointer costs one question and no listing")
		a.end()
	})
}

func TestWhatInitPublishedIsNotBroughtAgain(t *testing.T) {
	w := newWorld(t)
	w.publish("1")
	synctest.Test(t, func(t *testing.T) {
		a := w.run(t, w.options())
		synctest.Wait()
		code, _ := get(t, a, "GET", "/readyz")
		require.Equal(t, http.StatusOK, code)
		time.Sleep(2 * time.Minute)
		require.Empty(t, w.pulled())
		a.end()
	})
}

func TestADamagedVersionIsNoVersion(t *testing.T) {
	w := newWorld(t)
	res := w.publish("1")
	require.NoError(t, os.Remove(filepath.Join(w.root, "versions", res.Manifest.Short(), "config.json")))
	synctest.Test(t, func(t *testing.T) {
		a := w.run(t, w.options())
		time.Sleep(time.Second)
		require.Equal(t, []string{"1"}, w.pulled())
		a.end()
	})
}

func TestAMovedPointerIsFollowedAndBack(t *testing.T) {
	w := newWorld(t)
	synctest.Test(t, func(t *testing.T) {
		a := w.run(t, w.options())
		time.Sleep(time.Second)
		for i, version := range []string{"2", "1", "3"} {
			w.point(version)
			time.Sleep(34 * time.Second)
			st := a.Status(t.Context())
			require.Equal(t, version, st.Published.Version)
			require.True(t, st.Pointer.OK)
			require.Len(t, st.History, i+2)
			require.Equal(t, version, st.History[0].Version)
		}
		a.end()
	})
}

func TestAPointerThatMovesBackEndsTheDownload(t *testing.T) {
	w := newWorld(t)
	w.publish("1")
	synctest.Test(t, func(t *testing.T) {
		a := w.run(t, w.options())
		time.Sleep(time.Second)
		w.set(func() { w.version, w.pullTime = "2", time.Hour })
		time.Sleep(40 * time.Second)
		w.set(func() { w.version = "1" })
		time.Sleep(40 * time.Second)
		require.Equal(t, []string{"2!"}, w.pulled())
		w.set(func() { w.version, w.pullTime = "3", time.Second })
		time.Sleep(40 * time.Second)
		require.Equal(t, []string{"2!", "3"}, w.pulled())
		require.Equal(t, "3", a.Status(t.Context()).Published.Version)
		a.end()
	})
}

func TestTheStopEndsADownload(t *testing.T) {
	w := newWorld(t)
	synctest.Test(t, func(t *testing.T) {
		w.set(func() { w.pullTime = time.Hour })
		a := w.run(t, w.options())
		time.Sleep(time.Minute)
		start := time.Now()
		a.end()
		require.Zero(t, time.Since(start))
		require.Equal(t, []string{"1!"}, w.pulled())
	})
}

func TestABrokenPointerKeepsTheLastGoodVersion(t *testing.T) {
	w := newWorld(t)
	w.publish("1")
	synctest.Test(t, func(t *testing.T) {
		opts := w.options()
		opts.ErrorFile = filepath.Join(w.root, "error.json")
		a := w.run(t, opts)
		time.Sleep(time.Second)
		w.set(func() { w.lookErr = fmt.Errorf("%w:\n503", registry.ErrUnreachable) })
		time.Sleep(5 * time.Minute)
		st := a.Status(t.Context())
		require.Equal(t, "1", st.Published.Version)
		require.False(t, st.Pointer.OK)
		require.Equal(t, 6, st.Pointer.Code)
		require.Equal(t, "asking the pointer: the registry is unreachable: 503", st.Pointer.Reason)
		code, _ := get(t, a, "GET", "/readyz")
		require.Equal(t, http.StatusOK, code, "what is published can still be served")

		data, err := os.ReadFile(opts.ErrorFile)
		require.NoError(t, err)
		var file struct {
			Code        int
			Reason, Ref string
			At          time.Time
		}
		require.NoError(t, json.Unmarshal(data, &file))
		require.Equal(t, 6, file.Code)
		require.Equal(t, ref, file.Ref)

		w.set(func() { w.lookErr = nil })
		time.Sleep(40 * time.Second)
		require.True(t, a.Status(t.Context()).Pointer.OK)
		require.NoFileExists(t, opts.ErrorFile)
		a.end()
	})
}

func TestAFailingPullIsRepeatedLessAndLess(t *testing.T) {
	w := newWorld(t)
	w.publish("1")
	synctest.Test(t, func(t *testing.T) {
		a := w.run(t, w.options())
		time.Sleep(time.Second)
		w.set(func() { w.version, w.pullErr = "2", fmt.Errorf("%w: bad bytes", fetcher.ErrIntegrity) })
		time.Sleep(time.Hour)
		failed := len(w.pulled())
		require.Greater(t, failed, 5)
		require.Less(t, failed, 14, "not every 30 s: each attempt may download everything")
		require.Greater(t, w.looked(), 100, "the pointer is asked on at the usual pace")
		st := a.Status(t.Context())
		require.False(t, st.Pointer.OK)
		require.Contains(t, st.Pointer.Reason, "bringing version 2")

		w.set(func() { w.version, w.pullErr = "1", nil }) // rolled back
		time.Sleep(34 * time.Second)
		require.True(t, a.Status(t.Context()).Pointer.OK)
		w.set(func() { w.version = "3" })
		time.Sleep(34 * time.Second)
		require.Equal(t, "3", a.Status(t.Context()).Published.Version)
		a.end()
	})
}

func TestTooManyFailuresEndTheAgent(t *testing.T) {
	w := newWorld(t)
	synctest.Test(t, func(t *testing.T) {
		w.set(func() { w.lookErr = registry.ErrNotFound })
		opts := w.options()
		opts.MaxFailures = 4
		start := time.Now()
		a := w.run(t, opts)
		err := <-a.done
		require.ErrorIs(t, err, registry.ErrNotFound)
		require.ErrorContains(t, err, "4 failures in a row")
		require.Less(t, time.Since(start), 10*time.Second, "before anything is published it does not wait for the next poll")
		a.stop()
	})
}

func TestNudgesAreAnsweredAtMostEveryFiveSeconds(t *testing.T) {
	w := newWorld(t)
	w.publish("1")
	synctest.Test(t, func(t *testing.T) {
		opts := w.options()
		opts.Poll = time.Hour
		a := w.run(t, opts)
		time.Sleep(time.Minute)
		require.Equal(t, 1, w.looked())
		w.point("2")
		code, _ := get(t, a, "POST", "/nudge")
		require.Equal(t, http.StatusAccepted, code)
		synctest.Wait()
		require.Equal(t, []string{"2"}, w.pulled(), "at once")
		for range 50 {
			a.Nudge()
			time.Sleep(200 * time.Millisecond)
		}
		require.InDelta(t, 4, w.looked(), 1, "ten seconds of nudges")
		looks := w.lookedAt()
		for i := range looks[1:] {
			require.GreaterOrEqual(t, looks[i+1].Sub(looks[i]), agent.NudgeEvery)
		}
		code, _ = get(t, a, "GET", "/nudge")
		require.Equal(t, http.StatusMethodNotAllowed, code)
		a.end()
	})
}

func TestTheStatusIsTheDocumentedJSON(t *testing.T) {
	w := newWorld(t)
	w.publish("1")
	synctest.Test(t, func(t *testing.T) {
		a := w.run(t, w.options())
		time.Sleep(time.Second)
		code, body := get(t, a, "GET", "/status")
		require.Equal(t, http.StatusOK, code)
		var st map[string]any
		require.NoError(t, json.Unmarshal([]byte(body), &st))
		require.EqualValues(t, 1, st["v"])
		require.Equal(t, ref, st["ref"])
		digest := manifest(t, "1").Digest
		published, _ := st["published"].(map[string]any)
		require.Equal(t, digest, published["digest"])
		require.Equal(t, "1", published["version"])
		require.NotEmpty(t, published["at"])
		require.NotEmpty(t, published["model"])
		require.Equal(t, map[string]any{"digest": "", "version": "", "since": nil, "state": "unknown"}, st["serving"])
		pointer, _ := st["pointer"].(map[string]any)
		require.Equal(t, true, pointer["ok"])
		require.EqualValues(t, 0, pointer["code"])
		require.Contains(t, pointer, "reason")
		require.NotEmpty(t, pointer["checkedAt"])
		named, _ := st["named"].(map[string]any)
		require.Equal(t, "1", named["version"])
		require.Equal(t, pointer["checkedAt"], named["at"], "when it answered last")
		require.Len(t, st["history"], 1)
		a.end()
	})
}

func TestTheTouchFileIsWrittenOnChangesOnly(t *testing.T) {
	w := newWorld(t)
	w.publish("1")
	synctest.Test(t, func(t *testing.T) {
		opts := w.options()
		opts.TouchFile = filepath.Join(t.TempDir(), "touched")
		a := w.run(t, opts)
		time.Sleep(time.Minute)
		require.NoFileExists(t, opts.TouchFile)
		w.point("2")
		time.Sleep(34 * time.Second)
		data, err := os.ReadFile(opts.TouchFile)
		require.NoError(t, err)
		require.Equal(t, manifest(t, "2").Digest+"\n", string(data))
		a.end()
	})
}

func TestMetrics(t *testing.T) {
	w := newWorld(t)
	synctest.Test(t, func(t *testing.T) {
		a := w.run(t, w.options())
		time.Sleep(time.Second)
		w.point("2")
		time.Sleep(34 * time.Second)
		families, err := w.reg.Gather()
		require.NoError(t, err)
		problems, err := promlint.NewWithMetricFamilies(families).Lint()
		require.NoError(t, err)
		require.Empty(t, problems)
		found := map[string]float64{}
		for _, f := range families {
			m := f.GetMetric()[0]
			found[f.GetName()] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
			require.Regexp(t, "^pilotlight_(agent|fetcher)_", f.GetName())
		}
		require.InDelta(t, 1, found["pilotlight_agent_pointer_ok"], 0)
		require.InDelta(t, 200, found["pilotlight_fetcher_downloaded_bytes_total"], 0)
		require.InDelta(t, 1, found["pilotlight_agent_published_info"], 0)
		a.end()
	})
}

func TestTheAgentRemovesWhatNothingRetains(t *testing.T) {
	w := newWorld(t)
	synctest.Test(t, func(t *testing.T) {
		for _, version := range []string{"1", "2", "3"} {
			w.publish(version)
		}
		w.point("3")
		link := w.link("")
		collector, err := fetcher.NewCollector(w.store, fetcher.Retention{}, link)
		require.NoError(t, err)
		opts := w.options()
		opts.Collector = collector
		a := w.run(t, opts)
		first := filepath.Join(w.root, "versions", manifest(t, "1").Short())
		time.Sleep(59 * time.Minute)
		require.DirExists(t, first)
		time.Sleep(7 * time.Minute)
		require.NoDirExists(t, first)
		require.DirExists(t, filepath.Join(w.root, "versions", manifest(t, "2").Short()))
		require.EqualValues(t, 1, collector.Removed())
		a.end()
	})
}

func TestARootOfSomebodyElseEndsTheAgent(t *testing.T) {
	w := newWorld(t)
	require.NoError(t, os.Mkdir(filepath.Join(w.root, "current"), 0o750))
	a := w.run(t, w.options())
	require.ErrorIs(t, <-a.done, fetcher.ErrUsage)
	a.stop()
}

func TestOptionsThatCannotBe(t *testing.T) {
	w := newWorld(t)
	tests := map[string]func(*agent.Options){
		"NoStore":   func(o *agent.Options) { o.Store = nil },
		"NoRef":     func(o *agent.Options) { o.Ref = "" },
		"NegPoll":   func(o *agent.Options) { o.Poll = -1 },
		"NoProgram": func(o *agent.Options) { o.OnChange.Action = agent.Exec },
		"BadURL": func(o *agent.Options) {
			o.OnChange = agent.OnChange{Action: agent.Webhook, URL: "ftp://user:secret@x/"}
		},
		"OtherAction": func(o *agent.Options) { o.OnChange.Action = "reboot" },
	}
	for name, spoil := range tests {
		t.Run(name, func(t *testing.T) {
			opts := w.options()
			spoil(&opts)
			_, err := agent.New(opts)
			require.ErrorIs(t, err, fetcher.ErrUsage)
			require.NotContains(t, err.Error(), "secret")
		})
	}
}

func TestCancelledBeforeItBegan(t *testing.T) {
	w := newWorld(t)
	a, err := agent.New(w.options())
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, a.Run(ctx))
	require.False(t, errors.Is(ctx.Err(), agent.ErrRestart))
}
