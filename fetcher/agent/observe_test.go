package agent_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// observer writes down what it is told.
type observer struct {
	mu   sync.Mutex
	told []string
}

func (o *observer) note(format string, args ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.told = append(o.told, fmt.Sprintf(format, args...))
}

func (o *observer) all() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]string{}, o.told...)
}

func (o *observer) Published(dir string, written bool) {
	o.note("published %s %v", filepath.Base(dir), written)
}
func (o *observer) EngineDown(dir string) { o.note("down %s", filepath.Base(dir)) }
func (o *observer) EngineUp(started bool) { o.note("up %v", started) }

func TestAnObserverIsToldOfPublications(t *testing.T) {
	tests := map[string]struct {
		before, link string // versions
		ephemeral    bool
		want         []string
	}{
		"Nothing":   {"", "", false, []string{"published current false", "published current false"}},
		"Ephemeral": {"", "", true, []string{"published current true", "published current true"}},
		"Before":    {"1", "", true, []string{"published current false", "published current true"}},
		"Linked":    {"1", "1", false, []string{"published model false", "published current false"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w, o := newWorld(t), &observer{}
			w.ephemeral = tc.ephemeral
			opts := w.options()
			opts.Observer = o
			if tc.before != "" {
				w.publish(tc.before)
			}
			if tc.link != "" {
				opts.Link, opts.Reader = w.link(tc.link), "uid-1"
			}
			synctest.Test(t, func(t *testing.T) {
				a := w.run(t, opts)
				time.Sleep(10 * time.Minute)
				require.Equal(t, tc.want[:1], o.all(), "once, however often it is looked at")
				w.point("2")
				time.Sleep(10 * time.Minute)
				require.Equal(t, tc.want, o.all())
				a.end()
			})
		})
	}
}

func TestAnObserverIsToldOfTheEngine(t *testing.T) {
	w, o := newWorld(t), &observer{}
	w.publish("1")
	opts := w.options()
	opts.Observer, opts.Poll = o, time.Hour
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	opts.EngineHealth = srv.URL + "/health"
	a := w.run(t, opts)
	told := func(n int) []string {
		require.Eventually(t, func() bool { return len(o.all()) >= n }, 30*time.Second, 10*time.Millisecond)
		return o.all()
	}
	require.Equal(t, []string{"published current false", "up false"}, told(2), "it was up before")
	addr := srv.Listener.Addr().String()
	srv.Close()
	require.Equal(t, "down current", told(3)[2])
	again := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	require.NoError(t, again.Listener.Close())
	again.Listener = listenAt(t, addr)
	again.Start()
	defer again.Close()
	require.Equal(t, "up true", told(4)[3])
	a.end()
}
