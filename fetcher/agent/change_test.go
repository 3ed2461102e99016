package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/fetcher"
	"github.com/pilotlight-dev/pilotlight/fetcher/agent"
)

func TestExitAsksOnceForARestart(t *testing.T) {
	w := newWorld(t)
	w.publish("1")
	link := w.link("1")
	synctest.Test(t, func(t *testing.T) {
		opts := w.options()
		opts.Link, opts.Reader, opts.OnChange.Action = link, "uid-1", agent.Exit
		a := w.run(t, opts)
		time.Sleep(time.Minute)
		w.point("2")
		require.ErrorIs(t, <-a.done, agent.ErrRestart)
		named, err := link.Version()
		require.NoError(t, err)
		require.Equal(t, manifest(t, "1").Short(), named, "the engine may still be loading: the link moves when it is gone")
		mark, err := link.Thawed()
		require.NoError(t, err)
		require.Equal(t, manifest(t, "2").Short(), mark, "but it may move then")

		opts.Registerer = nil
		a = w.run(t, opts) // only the agent was restarted
		time.Sleep(time.Hour)
		a.end()

		named, err = link.Set(t.Context(), manifest(t, "2").Short()) // all containers were: init ran
		require.NoError(t, err)
		require.Equal(t, manifest(t, "2").Short(), named)
		a = w.run(t, opts)
		time.Sleep(time.Minute)
		w.point("1")
		require.ErrorIs(t, <-a.done, agent.ErrRestart, "the next change counts again")
	})
}

func TestExitWithoutALinkFollowsTheMovesItSees(t *testing.T) {
	w := newWorld(t)
	synctest.Test(t, func(t *testing.T) {
		opts := w.options()
		opts.OnChange.Action = agent.Exit
		a := w.run(t, opts)
		time.Sleep(time.Minute)
		w.point("2")
		time.Sleep(34 * time.Second)
		require.ErrorIs(t, <-a.done, agent.ErrRestart)
	})
}

func TestAReaderSeesAChangeThatCameBeforeIt(t *testing.T) {
	w := newWorld(t)
	w.publish("1")
	link := w.link("1")
	w.publish("2") // after init, before the agent
	synctest.Test(t, func(t *testing.T) {
		opts := w.options()
		opts.Puller, opts.Link, opts.Reader, opts.OnChange.Action = nil, link, "uid-1", agent.Exit
		a := w.run(t, opts)
		require.ErrorIs(t, <-a.done, agent.ErrRestart)
	})
}

func TestAPinnedPodIsLeftAlone(t *testing.T) {
	w := newWorld(t)
	w.publish("1")
	link := w.link("1")
	w.publish("2")
	synctest.Test(t, func(t *testing.T) {
		opts := w.options()
		opts.Puller, opts.Link, opts.Reader, opts.OnChange.Action, opts.Pinned = nil, link, "uid-1", agent.Exit, true
		a := w.run(t, opts)
		time.Sleep(time.Hour)
		a.end()
		mark, err := link.Thawed()
		require.NoError(t, err)
		require.Empty(t, mark)
	})
}

// prefetcher is a world whose pulls bring and do not publish.
type prefetcher struct{ *world }

func (p prefetcher) Pull(context.Context) (fetcher.Result, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pulls = append(p.pulls, "prefetched "+p.version)
	return fetcher.Result{Manifest: manifest(p.t, p.version)}, p.pullErr
}

func TestAPinnedAgentPrefetchesWhatThePointerNames(t *testing.T) {
	w, pointer := newWorld(t), newWorld(t)
	w.publish("1")
	synctest.Test(t, func(t *testing.T) {
		opts := w.options()
		opts.Pinned, opts.Prefetcher = true, prefetcher{pointer}
		a := w.run(t, opts)
		time.Sleep(10 * time.Minute)
		require.Equal(t, []string{"prefetched 1"}, pointer.pulled(), "once, however often it is asked")
		pointer.set(func() { pointer.pullErr = errors.New("the disk is full") })
		pointer.point("2")
		time.Sleep(time.Hour)
		failed := len(pointer.pulled())
		require.Greater(t, failed, 3)
		require.Less(t, failed, 20, "less and less often, not at each of 120 polls")
		require.True(t, a.Status(t.Context()).Pointer.OK, "a prefetch that fails concerns nobody now")
		pointer.set(func() { pointer.pullErr = nil })
		time.Sleep(time.Hour)
		st := a.Status(t.Context())
		require.Equal(t, manifest(t, "2").Short(), st.Prefetched)
		require.Equal(t, "1", st.Published.Version, "the pod keeps its version")
		require.Equal(t, "2", st.Named.Version, "what the pointer names, not what this pod is pinned to")
		require.Empty(t, w.pulled())
		a.end()
	})
}

func TestAReadOnlyAgentWatchesAndHolds(t *testing.T) {
	w := newWorld(t)
	link := w.link("")
	synctest.Test(t, func(t *testing.T) {
		opts := w.options()
		opts.Puller, opts.Link, opts.Reader = nil, link, "uid-1"
		a := w.run(t, opts)
		time.Sleep(time.Minute)
		code, _ := get(t, a, "GET", "/readyz")
		require.Equal(t, http.StatusServiceUnavailable, code)
		st := a.Status(t.Context())
		require.False(t, st.Watch.OK)
		require.Contains(t, st.Watch.Reason, "nothing is published")

		w.publish("1")
		time.Sleep(40 * time.Second)
		code, _ = get(t, a, "GET", "/readyz")
		require.Equal(t, http.StatusOK, code)
		named, err := link.Version()
		require.NoError(t, err)
		require.Equal(t, manifest(t, "1").Short(), named, "without an init container the agent sets the link")

		w.publish("2")
		time.Sleep(40 * time.Second)
		st = a.Status(t.Context())
		require.Equal(t, "2", st.Published.Version)
		require.Equal(t, "1", st.Serving.Version, "what the link names, for the pod's life")
		require.Nil(t, st.Pointer, "it asks none")
		require.True(t, st.Watch.OK, "the volume can be seen")
		require.NotNil(t, st.Watch.CheckedAt)
		families, err := w.reg.Gather()
		require.NoError(t, err)
		for _, f := range families {
			require.NotEqual(t, "pilotlight_agent_pointer_ok", f.GetName(), "0 would be an alarm, 1 a lie")
		}

		before := beat(t, w)
		time.Sleep(fetcher.HoldWithAgent / 2)
		require.Greater(t, beat(t, w), before+5, "the hold is renewed")
		a.end()
		require.Zero(t, w.looked())
	})
}

// beat reads the counter of the pod's reader file.
func beat(t *testing.T, w *world) int {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(w.root, ".readers", "uid-1"))
	require.NoError(t, err)
	var rec struct {
		Beat    int
		Version string
	}
	require.NoError(t, json.Unmarshal(data, &rec))
	require.Equal(t, manifest(t, "1").Short(), rec.Version)
	return rec.Beat
}

func TestExecRunsAProgramUntilItSucceeds(t *testing.T) {
	w := newWorld(t)
	out := filepath.Join(t.TempDir(), "out")
	opts := w.options()
	opts.Poll = time.Hour
	// Fails the first time, then writes what it was told.
	opts.OnChange = agent.OnChange{Action: agent.Exec, Command: []string{
		"/bin/sh", "-c", `if [ ! -e "$0.tried" ]; then touch "$0.tried"; exit 1; fi; echo "$PILOTLIGHT_REF $PILOTLIGHT_VERSION $PILOTLIGHT_DIGEST $PILOTLIGHT_PREVIOUS_DIGEST" > "$0.tmp"; mv "$0.tmp" "$0"`, out,
	}}
	w.publish("1")
	w.point("2")
	a := w.run(t, opts)
	want := ref + " 2 " + manifest(t, "2").Digest + " " + manifest(t, "1").Digest + "\n"
	require.Eventually(t, func() bool {
		data, err := os.ReadFile(out) //nolint:gosec // a file of this test
		return err == nil && string(data) == want
	}, 30*time.Second, 20*time.Millisecond)
	a.end()
}

func TestAProgramThatHangsIsEnded(t *testing.T) {
	w := newWorld(t)
	opts := w.options()
	opts.OnChange = agent.OnChange{Action: agent.Exec, Command: []string{"/bin/sh", "-c", "sleep 600"}, Timeout: time.Minute}
	w.publish("1")
	w.point("2")
	a := w.run(t, opts)
	require.Eventually(t, func() bool { return len(w.pulled()) == 1 }, 30*time.Second, 10*time.Millisecond)
	start := time.Now()
	a.end()
	require.Less(t, time.Since(start), 10*time.Second, "the agent's end does not wait for it")
}

func TestWebhookPostsTheChange(t *testing.T) {
	w := newWorld(t)
	bodies := make(chan []byte, 10)
	fails := 1
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if fails--; fails >= 0 {
			http.Error(rw, "not now", http.StatusServiceUnavailable)
			return
		}
		body, _ := io.ReadAll(r.Body) // checked by what follows
		bodies <- body
	}))
	defer server.Close()
	opts := w.options()
	opts.OnChange = agent.OnChange{Action: agent.Webhook, URL: server.URL + "/hook?token=secret"}
	w.publish("1")
	w.point("2")
	a := w.run(t, opts)
	require.JSONEq(t, `{"ref":"`+ref+`","digest":"`+manifest(t, "2").Digest+`","version":"2","previousDigest":"`+manifest(t, "1").Digest+`"}`, string(<-bodies))
	a.end()
	require.Empty(t, bodies, "once for one change")
}
