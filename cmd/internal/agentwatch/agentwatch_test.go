package agentwatch_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubefake "k8s.io/client-go/kubernetes/fake"

	"github.com/pilotlight-dev/pilotlight/cmd/internal/agentwatch"
	"github.com/pilotlight-dev/pilotlight/fetcher"
	"github.com/pilotlight-dev/pilotlight/fetcher/agent"
	"github.com/pilotlight-dev/pilotlight/internal/workload"
	"github.com/pilotlight-dev/pilotlight/registry"
)

const digest = "aaaa"

func pod(name string, state agent.EngineState, serves string) agentwatch.Pod {
	return agentwatch.Pod{Name: name, Status: &agent.Status{V: 1, Serving: agent.Serving{State: state, Digest: serves, Version: "1"}}}
}

func with(p agentwatch.Pod, change func(*agentwatch.Pod)) agentwatch.Pod {
	change(&p)
	return p
}

func TestJudge(t *testing.T) {
	ready := pod("a", agent.EngineReady, digest)
	tests := map[string]struct {
		pods []agentwatch.Pod
		want agentwatch.Verdict
		done bool
	}{
		"NoPods":        {nil, agentwatch.Verdict{}, false},
		"AllReady":      {[]agentwatch.Pod{ready, ready}, agentwatch.Verdict{Ready: 2, Total: 2}, true},
		"OneLoading":    {[]agentwatch.Pod{ready, pod("b", agent.EngineLoading, digest)}, agentwatch.Verdict{Ready: 1, Total: 2}, false},
		"OneOnAnother":  {[]agentwatch.Pod{ready, pod("b", agent.EngineReady, "bbbb")}, agentwatch.Verdict{Ready: 1, Total: 2}, false},
		"AShortDigest":  {[]agentwatch.Pod{pod("a", agent.EngineReady, digest[:2])}, agentwatch.Verdict{Total: 1}, false},
		"DigestUnknown": {[]agentwatch.Pod{pod("a", agent.EngineReady, "")}, agentwatch.Verdict{Total: 1}, false},
		"EngineUnknown": {[]agentwatch.Pod{pod("a", agent.EngineUnknown, digest)}, agentwatch.Verdict{Total: 1}, false},
		"Unreachable":   {[]agentwatch.Pod{ready, {Name: "b", Unknown: "no answer"}}, agentwatch.Verdict{Ready: 1, Total: 2}, false},
		"Terminating":   {[]agentwatch.Pod{ready, {Name: "b", Terminating: true}}, agentwatch.Verdict{Ready: 1, Total: 1}, true},
		"OnlyLeaving":   {[]agentwatch.Pod{with(ready, func(p *agentwatch.Pod) { p.Terminating = true })}, agentwatch.Verdict{}, false},
		"Writer":        {[]agentwatch.Pod{ready, {Name: "w", Writer: true}}, agentwatch.Verdict{Ready: 1, Total: 1}, true},
		"OnlyAWriter":   {[]agentwatch.Pod{{Name: "w", Writer: true}}, agentwatch.Verdict{}, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := agentwatch.Judge(tc.pods, digest)
			require.Equal(t, tc.want, got)
			require.Equal(t, tc.done, got.Done())
		})
	}
	require.False(t, agentwatch.Judge([]agentwatch.Pod{pod("a", agent.EngineReady, "")}, "").Done(), "no digest is no digest")
}

func TestPodsDescribeThemselves(t *testing.T) {
	require.Equal(t, "ready", pod("a", agent.EngineReady, digest).Describe())
	require.Equal(t, "unknown: no answer", agentwatch.Pod{Unknown: "no answer"}.Describe())
	require.Equal(t, "failing: image", agentwatch.Pod{Failure: workload.FailureImage}.Describe())
	require.Equal(t, "terminating", agentwatch.Pod{Terminating: true, Failure: workload.FailureCrash}.Describe())
	require.Equal(t, "ai/a", agentwatch.Pod{Namespace: "ai", Name: "a"}.ID())
}

// script plays one round after another, and the last for ever.
type script struct {
	rounds [][]agentwatch.Pod
	errs   []error
	asked  int
}

func (s *script) Pods(context.Context) ([]agentwatch.Pod, error) {
	i := min(s.asked, len(s.rounds)-1)
	s.asked++
	if i < len(s.errs) && s.errs[i] != nil {
		return nil, s.errs[i]
	}
	return s.rounds[i], nil
}

func TestWatch(t *testing.T) {
	loading, ready := []agentwatch.Pod{pod("a", agent.EngineLoading, digest)}, []agentwatch.Pod{pod("a", agent.EngineReady, digest)}
	t.Run("UntilItHolds", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			begun := time.Now()
			last, err := agentwatch.Watch(t.Context(), agentwatch.WatchOptions{Source: &script{rounds: [][]agentwatch.Pod{loading, loading, ready}}, Digest: digest})
			require.NoError(t, err)
			require.True(t, last.Verdict.Done())
			require.Equal(t, 2*agentwatch.DefaultEvery, time.Since(begun))
		})
	})
	t.Run("UntilTheContextEnds", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			enough := errors.New("enough")
			ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, enough)
			defer cancel()
			last, err := agentwatch.Watch(ctx, agentwatch.WatchOptions{Source: &script{rounds: [][]agentwatch.Pod{loading}}, Digest: digest})
			require.ErrorIs(t, err, enough)
			require.Equal(t, 1, last.Verdict.Total, "the last round is returned")
		})
	})
	t.Run("UntilSeenHasSeenEnough", func(t *testing.T) {
		enough := errors.New("enough")
		_, err := agentwatch.Watch(t.Context(), agentwatch.WatchOptions{
			Source: &script{rounds: [][]agentwatch.Pod{ready}}, Digest: digest, Seen: func(agentwatch.Round) error { return enough },
		})
		require.ErrorIs(t, err, enough)
	})
	t.Run("WhatCannotBeListedIsUnknown", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var rounds []agentwatch.Round
			source := &script{rounds: [][]agentwatch.Pod{loading, ready, ready}, errs: []error{nil, errors.New("away"), nil}}
			_, err := agentwatch.Watch(t.Context(), agentwatch.WatchOptions{Source: source, Digest: digest, Seen: func(r agentwatch.Round) error {
				rounds = append(rounds, r)
				return nil
			}})
			require.NoError(t, err)
			require.Len(t, rounds, 3)
			require.EqualError(t, rounds[1].Err, "away")
			require.Equal(t, "unknown: away", rounds[1].Pods[0].Describe())
		})
	})
}

func TestParseAddresses(t *testing.T) {
	got, err := agentwatch.ParseAddresses([]string{"pod", "10.0.0.1:9999", "[::1]:9400", "::1", " spaced "})
	require.NoError(t, err)
	require.Equal(t, []string{"pod:9400", "10.0.0.1:9999", "[::1]:9400", "[::1]:9400", "spaced:9400"}, got)
	for _, bad := range []string{"", "http://pod:9400", "pod:9400/status", "user@pod", ":9400"} {
		_, err := agentwatch.ParseAddresses([]string{bad})
		require.ErrorContains(t, err, "want host:port", bad)
	}
}

func TestTheRealAgentIsUnderstood(t *testing.T) {
	store, err := fetcher.OpenStore(t.TempDir(), slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	for action, opts := range map[agent.Action]agent.Options{
		agent.None: {}, agent.Exit: {OnChange: agent.OnChange{Action: agent.Exit}},
	} {
		opts.Ref, opts.Store = "models:/llama@champion", store
		a, err := agent.New(opts)
		require.NoError(t, err)
		ts := httptest.NewServer(a.Handler())
		t.Cleanup(ts.Close)
		pods, err := agentwatch.Addresses{Addrs: []string{ts.Listener.Addr().String()}, Client: ts.Client()}.Pods(t.Context())
		require.NoError(t, err)
		require.Empty(t, pods[0].Unknown)
		require.Equal(t, action, pods[0].Status.OnChange)
		require.Equal(t, "models:/llama@champion", pods[0].Ref)
		require.Equal(t, "unknown", pods[0].State(), "nobody probes an engine here")
	}
}

func TestASlowAgentDoesNotHoldUpTheOthers(t *testing.T) {
	fast := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"v":1}`)) }))
	t.Cleanup(fast.Close)
	gone := httptest.NewServer(nil)
	gone.Close()
	pods, err := agentwatch.Addresses{Addrs: []string{gone.Listener.Addr().String(), fast.Listener.Addr().String()}, Client: fast.Client()}.Pods(t.Context())
	require.NoError(t, err)
	unknown := 0
	for _, p := range pods {
		if p.Unknown != "" {
			unknown++
			require.Contains(t, p.Unknown, "refused")
		}
	}
	require.Equal(t, 1, unknown)
}

func TestPodsAreFoundByEitherFormOfTheReference(t *testing.T) {
	ref, err := registry.ParseModel("llama@champion")
	require.NoError(t, err)
	require.Regexp(t, "^[0-9a-f]{10}$", agentwatch.RefHash(ref))
	require.Equal(t, "8274e780f9", agentwatch.RefHash(ref), "the first ten digits of the SHA-256 of models:/llama@champion")
	labelled := func(name, hash, annotation string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: "ai", Name: name, Labels: map[string]string{agentwatch.RefLabel: hash}, Annotations: map[string]string{agentwatch.RefAnnotation: annotation},
		}}
	}
	client := kubefake.NewClientset(
		labelled("long", agentwatch.RefHash(ref), "models:/llama@champion"), labelled("short", "a12a13b723", "llama@champion"),
		labelled("unsaid", agentwatch.RefHash(ref), ""), labelled("collision", agentwatch.RefHash(ref), "gemma@champion"), labelled("other", "0123456789", ""),
	)
	pods, err := agentwatch.Cluster{Client: client, Ref: ref}.Pods(t.Context())
	require.NoError(t, err)
	var names []string
	for _, p := range pods {
		names = append(names, p.Name)
	}
	require.Equal(t, []string{"long", "short", "unsaid"}, names)
	all, err := agentwatch.Cluster{Client: client}.Pods(t.Context())
	require.NoError(t, err)
	require.Len(t, all, 5)
}
