package demo

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/cmd/internal/cli"
	"github.com/pilotlight-dev/pilotlight/internal/exitcode"
)

// TestMain lets this test binary be the demo's children.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "demo-part" {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM) // as the program's main does
		defer stop()
		os.Exit(Part(ctx, cli.Env{Args: os.Args[2:], Getenv: os.Getenv, Stdout: os.Stdout, Stderr: os.Stderr}, os.Stdin))
	}
	os.Exit(m.Run())
}

// The whole story, with the real binaries' code in child processes.
func TestTheWholeStory(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	dir := t.TempDir()
	self, err := os.Executable()
	require.NoError(t, err)
	var out bytes.Buffer
	began := time.Now()
	require.NoError(t, Run(t.Context(), Options{Self: self, Out: &out, Dir: dir}), "%s", &out)
	require.Less(t, time.Since(began), 90*time.Second)
	for _, want := range []string{"0 -> 1 replicas (push)", "answered by version 1", "12 of 12 answered", "(hpa)", "1 -> 0 replicas (poll)", "0 objects downloaded", "Every step was as it should be."} {
		require.Contains(t, out.String(), want)
	}
	require.NotContains(t, out.String(), "\x1b", "no escape sequences where there is no terminal")
	page, err := os.ReadFile(filepath.Join(dir, "timeline.html"))
	require.NoError(t, err)
	require.Equal(t, 11, strings.Count(string(page), `class="mark"`), "one mark for each step")
	require.NotContains(t, string(page), "http://www", "the page needs nothing else")
	target, err := os.Readlink(filepath.Join(dir, "models", "current"))
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(target, "versions/"), target)
	versions, err := os.ReadDir(filepath.Join(dir, "models", "versions"))
	require.NoError(t, err)
	require.Len(t, versions, 2, "both versions are retained")
}

// A part that cannot run ends the demo at once, and says why.
func TestBrokenPartIsNamed(t *testing.T) {
	broken := filepath.Join(t.TempDir(), "broken")
	require.NoError(t, os.WriteFile(broken, []byte("#!/bin/sh\necho 'port 6000 is cursed' >&2\nexit 3\n"), 0o700))
	began := time.Now()
	err := Run(t.Context(), Options{Self: broken, Out: &bytes.Buffer{}, Dir: t.TempDir()})
	require.ErrorContains(t, err, "port 6000 is cursed")
	require.Less(t, time.Since(began), 15*time.Second)
}

// Whatever the moment: before anything runs, while it starts, in the story.
func TestInterruptedIsNoFailure(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	for _, after := range []time.Duration{0, 20 * time.Millisecond, 200 * time.Millisecond, 1500 * time.Millisecond} {
		ctx, cancel := context.WithTimeout(t.Context(), after)
		var out bytes.Buffer
		err := Run(ctx, Options{Self: self, Out: &out, Dir: t.TempDir()})
		cancel()
		require.ErrorIs(t, err, ErrInterrupted, after)
		require.NotContains(t, out.String(), "failed", after)
	}
}

func TestUnknownPart(t *testing.T) {
	require.Equal(t, exitcode.Usage, Part(t.Context(), cli.Env{Args: []string{"rocket"}}, strings.NewReader("")))
	require.Equal(t, exitcode.Usage, Part(t.Context(), cli.Env{}, strings.NewReader("")))
}

// A stream that breaks off is a lost request, not an answer.
func TestChatTellsLossFromAnswer(t *testing.T) {
	cases := map[string]struct{ body, says string }{
		"Complete":   {"data: {}\n\ndata: {}\n\ndata: [DONE]\n\n", ""},
		"BrokenOff":  {"data: {}\n\ndata: {}\n\n", "broke off after 2"},
		"NotStarted": {"", "broke off after 0"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("X-Model-Version", "1")
				_, _ = w.Write([]byte(tc.body))
			}))
			defer srv.Close()
			r, err := chat(t.Context(), srv.URL, 2)
			if tc.says == "" {
				require.NoError(t, err)
				require.Equal(t, 2, r.tokens)
				_, err = check(r, err, "1")
				require.NoError(t, err)
				_, err = check(r, nil, "2")
				require.ErrorContains(t, err, `version "1", want "2"`)
				return
			}
			require.ErrorContains(t, err, tc.says)
		})
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusServiceUnavailable) }))
	defer srv.Close()
	_, err := chat(t.Context(), srv.URL, 2)
	require.ErrorContains(t, err, "503")
	require.ErrorContains(t, moveAlias(t.Context(), srv.URL, "2"), "503")
}

func TestView(t *testing.T) {
	story := func(tty bool) string {
		var out bytes.Buffer
		v := newView(&out, tty)
		v.sample(sample{Wanted: 2, Ready: 1, Starting: 1, Held: 3, Decision: 2, Reason: "load"})
		v.event(event{At: 1500 * time.Millisecond, Kind: "scale", Text: "1 -> 2 replicas (hpa)"})
		v.event(event{At: 2 * time.Second, Kind: "step", Text: "1. done"})
		v.end(errors.New("x"), "t.html", "logs")
		return out.String()
	}
	plain := story(false)
	require.Equal(t, "   1.5s  ..  1 -> 2 replicas (hpa)\n   2.0s  ok  1. done\n\nThe demo failed. Logs: logs\nTimeline: t.html\n", plain)
	live := story(true)
	require.Contains(t, live, "[#+..]  wanted 2, ready 1, starting 1")
	require.Contains(t, live, " 3 held |||")
	require.Contains(t, live, "2 replicas: load")
	require.Equal(t, strings.Count(live, "replicas  ["), strings.Count(live, "\x1b[4A\x1b[J"), "every panel that was drawn is taken away again")
}

func TestMarksDoNotOverlap(t *testing.T) {
	marks := label([]markView{{X: 10, first: 1, last: 1}, {X: 20, first: 2, last: 2}, {X: 30, first: 3, last: 3}, {X: 90, first: 4, last: 4}})
	var got []string
	for _, m := range marks {
		got = append(got, m.Label)
	}
	require.Equal(t, []string{"", "", "1-3", "4"}, got)
}

func TestTimelinePage(t *testing.T) {
	r := &recorder{
		samples: []sample{{At: 0}, {At: time.Second, Wanted: 1, Starting: 1, Held: 1, Decision: 1}, {At: 2 * time.Second, Ready: 1, Running: 1, Decision: 1}},
		events:  []event{{At: time.Second, Kind: "step", Text: "1. <woken>"}, {At: time.Second, Kind: "scale", Text: "0 -> 1"}},
	}
	path := filepath.Join(t.TempDir(), "t.html")
	require.NoError(t, writeTimeline(path, r, errors.New("it & broke")))
	page, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Contains(t, string(page), "1. &lt;woken&gt;", "text is escaped")
	require.Contains(t, string(page), "Failed: it &amp; broke")
	require.Equal(t, 1, strings.Count(string(page), `class="mark"`))
	require.Error(t, writeTimeline(filepath.Join(t.TempDir(), "none", "t.html"), r, nil))
	require.NoError(t, writeTimeline(path, &recorder{}, nil), "nothing recorded is still a page")
}
