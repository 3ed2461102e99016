package prime

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/internal/fake/engine"
)

const gib = 1 << 30

func TestBudget(t *testing.T) {
	cases := map[string]struct {
		m    Memory
		want int64
	}{
		"Machine": {Memory{Available: 20 * gib}, 19 * gib},
		"Cgroup":  {Memory{Available: 20 * gib, Limit: 16 * gib, Used: 4 * gib}, 11 * gib},
		"Tight":   {Memory{Available: 20 * gib, Limit: gib, Used: gib / 2}, 0},
		"Over":    {Memory{Available: 20 * gib, Limit: gib, Used: 2 * gib}, 0},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) { require.Equal(t, tc.want, Budget(tc.m, gib)) })
	}
}

func TestReadMemory(t *testing.T) {
	root := t.TempDir()
	write := func(name, body string) {
		path := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(body), 0o600))
	}
	_, err := ReadMemory(root)
	require.Error(t, err)
	write("proc/meminfo", "MemTotal:  100 kB\nMemFree: 1 kB\n")
	_, err = ReadMemory(root)
	require.ErrorContains(t, err, "MemAvailable")
	write("proc/meminfo", "MemTotal:  100 kB\nMemAvailable:   50 kB\n")
	m, err := ReadMemory(root)
	require.NoError(t, err)
	require.Equal(t, Memory{Available: 50 << 10}, m)
	write("sys/fs/cgroup/memory.max", "max\n")
	m, err = ReadMemory(root)
	require.NoError(t, err)
	require.Zero(t, m.Limit)
	write("sys/fs/cgroup/memory.max", "4096\n")
	m, err = ReadMemory(root)
	require.NoError(t, err)
	require.Equal(t, Memory{Available: 50 << 10, Limit: 4096, Used: 4096}, m, "what is used is unknown, which is not zero")
	write("sys/fs/cgroup/memory.current", "1024\n")
	m, err = ReadMemory(root)
	require.NoError(t, err)
	require.EqualValues(t, 1024, m.Used)
}

func TestPlan(t *testing.T) {
	cases := map[string]struct {
		files  []file
		budget int64
		want   []piece
		fits   bool
	}{
		"Fits":       {[]file{{"a", 10, 0}, {"b", 5, -1}}, 15, []piece{{"a", 0, 10}, {"b", 0, 5}}, true},
		"Resident":   {[]file{{"a", 10, 10}, {"b", 10, 0}, {"c", 10, 4}}, 12, []piece{{"b", 0, 10}, {"c", 0, 2}}, false},
		"Pieces":     {[]file{{"a", pieceSize + 1, 0}}, 2 * pieceSize, []piece{{"a", 0, pieceSize}, {"a", pieceSize, 1}}, true},
		"NoRoom":     {[]file{{"a", 10, 0}}, 0, nil, false},
		"AllThere":   {[]file{{"a", 10, 10}}, 0, nil, true},
		"PartlyFits": {[]file{{"a", 10, 4}}, 6, []piece{{"a", 0, 10}}, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, fits := plan(tc.files, tc.budget)
			require.Equal(t, tc.want, got)
			require.Equal(t, tc.fits, fits)
		})
	}
}

// model makes a folder with two weights behind a link, as the fetcher does.
func model(t *testing.T, size int) string {
	t.Helper()
	dir := t.TempDir()
	version := filepath.Join(dir, "versions", "0123456789ab")
	require.NoError(t, os.MkdirAll(filepath.Join(version, "sub"), 0o755))
	for _, name := range []string{"model-1.safetensors", "sub/model-2.safetensors"} {
		require.NoError(t, os.WriteFile(filepath.Join(version, name), make([]byte, size), 0o600))
	}
	require.NoError(t, os.WriteFile(filepath.Join(version, "empty"), nil, 0o600))
	require.NoError(t, os.Symlink(version, filepath.Join(dir, "current")))
	return filepath.Join(dir, "current")
}

func plenty() (Memory, error) { return Memory{Available: 100 * gib}, nil }

func TestWarmReadsTheFolder(t *testing.T) {
	const size = 3<<20 + 17
	report, err := Cache{Dir: model(t, size), Memory: plenty}.Warm(t.Context())
	require.NoError(t, err)
	require.Equal(t, 2, report.Files)
	require.EqualValues(t, 2*size, report.Size)
	require.Empty(t, report.Stopped)
	if runtime.GOOS != "linux" {
		require.EqualValues(t, -1, report.After)
		require.Equal(t, report.Size, report.Read)
		return
	}
	require.Equal(t, report.Size, report.After, "all of it is resident")
	require.LessOrEqual(t, report.Size, report.Before+report.Read, "and what was not has been read")
}

func TestWarmStopsAtTheGuard(t *testing.T) {
	t.Run("Before", func(t *testing.T) {
		c := Cache{Dir: model(t, 1<<20), Memory: func() (Memory, error) { return Memory{Available: DefaultReserve}, nil }}
		report, err := c.Warm(t.Context())
		require.NoError(t, err, "it is no failure")
		require.Zero(t, report.Read)
		if report.Before < report.Size {
			require.Equal(t, StoppedMemory, report.Stopped)
		}
	})
	t.Run("Meanwhile", func(t *testing.T) {
		var asked atomic.Int64
		c := Cache{Readers: 1, Reserve: 1, Memory: func() (Memory, error) {
			if asked.Add(1) > 1 {
				return Memory{}, nil
			}
			return plenty()
		}}
		path := filepath.Join(model(t, 1000), "model-1.safetensors")
		n, err := c.read(t.Context(), []piece{{path, 0, 500}, {path, 500, 500}})
		require.ErrorIs(t, err, errNoRoom)
		require.EqualValues(t, 500, n)
	})
	t.Run("Unknown", func(t *testing.T) {
		_, err := Cache{Dir: model(t, 1), Memory: func() (Memory, error) { return Memory{}, errors.New("no meminfo") }}.Warm(t.Context())
		require.ErrorContains(t, err, "no meminfo", "what cannot be read is not plenty")
	})
	t.Run("Cancelled", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		report, err := Cache{Dir: model(t, 1), Memory: plenty}.Warm(ctx)
		require.NoError(t, err)
		require.Equal(t, StoppedCancelled, report.Stopped)
	})
	t.Run("NoFolder", func(t *testing.T) {
		report, err := Cache{Dir: filepath.Join(t.TempDir(), "none")}.Warm(t.Context())
		require.ErrorIs(t, err, os.ErrNotExist)
		require.Equal(t, StoppedError, report.Stopped)
	})
}

// listener records the requests that an engine gets.
type listener struct {
	http.Handler
	mu       sync.Mutex
	bodies   []map[string]any
	inFlight int
	most     int
	paths    []string
	key      string
}

func (l *listener) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	l.mu.Lock()
	l.paths = append(l.paths, r.URL.Path)
	if r.Method == http.MethodPost {
		var m map[string]any
		_ = json.Unmarshal(body, &m)
		l.bodies = append(l.bodies, m)
		l.inFlight++
		l.most = max(l.most, l.inFlight)
		l.key = r.Header.Get("Authorization")
		defer func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.inFlight--
		}()
	}
	l.mu.Unlock()
	r.Body = io.NopCloser(strings.NewReader(string(body)))
	l.Handler.ServeHTTP(w, r)
}

func TestEngineIsWarmedUp(t *testing.T) {
	l := &listener{Handler: engine.New(engine.Config{Model: "llama", DecodeInterval: 5 * time.Millisecond, PrefillTokensPerSecond: 1e6}).Handler()}
	srv := httptest.NewServer(l)
	t.Cleanup(srv.Close)
	report, err := Engine{URL: srv.URL, APIKey: "sk-1"}.Warm(t.Context())
	require.NoError(t, err)
	require.True(t, report.Healthy)
	require.Equal(t, 10, report.Requests)
	require.Zero(t, report.Failed, report.Problem)
	require.Equal(t, "/health", l.paths[0])
	require.Equal(t, "Bearer sk-1", l.key)
	require.Greater(t, l.most, 1, "the burst comes together")
	prompts := map[any]bool{}
	longest := 0
	for _, b := range l.bodies {
		require.Equal(t, "llama", b["model"], "the first that it lists")
		require.InDelta(t, 1, b["temperature"], 0)
		require.GreaterOrEqual(t, b["max_tokens"], 2.0)
		text, ok := b["prompt"].(string)
		require.True(t, ok)
		prompts[text[:16]] = true
		longest = max(longest, len(strings.Fields(text)))
	}
	require.Len(t, prompts, 10, "no two begin alike")
	require.Greater(t, longest, DefaultLongTokens/2)
}

// What an engine refuses is reported, and does not keep the model from serving.
func TestFailedWarmUpIsReported(t *testing.T) {
	var lengths []int
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			return
		}
		var m struct{ Prompt string }
		_ = json.NewDecoder(r.Body).Decode(&m)
		if n := len(strings.Fields(m.Prompt)); n > 600 {
			lengths = append(lengths, n)
			w.WriteHeader(http.StatusBadRequest)
		}
	}))
	t.Cleanup(srv.Close)
	report, err := Engine{URL: srv.URL, Model: "m", Requests: 3}.Warm(t.Context())
	require.NoError(t, err)
	require.Zero(t, report.Failed, "shorter ones are tried: %s", report.Problem)
	require.Len(t, lengths, 2)

	broken := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	t.Cleanup(broken.Close)
	report, err = Engine{URL: broken.URL, Model: "m", Requests: 4}.Warm(t.Context())
	require.NoError(t, err)
	require.Equal(t, 4, report.Failed)
	require.Contains(t, report.Problem, "HTTP 500")
	report, err = Engine{URL: broken.URL, Model: "m", Requests: 1}.Warm(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, report.Failed, "only the short one")
	report, err = Engine{URL: broken.URL, Model: "m", Requests: -1}.Warm(t.Context())
	require.NoError(t, err)
	require.Equal(t, EngineReport{Healthy: true, Waited: report.Waited}, report, "health was waited for, and nothing sent")
	report, err = Engine{URL: broken.URL}.Warm(t.Context())
	require.NoError(t, err)
	require.Contains(t, report.Problem, "lists none")
	_, err = Engine{URL: "127.0.0.1:8000"}.Warm(t.Context())
	require.ErrorContains(t, err, "http://127.0.0.1:8000")
}

// refusing is an engine that is not there until a moment.
type refusing struct{ until time.Time }

func (r refusing) RoundTrip(*http.Request) (*http.Response, error) {
	if time.Now().Before(r.until) {
		return nil, errors.New("connection refused")
	}
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader("{}"))}, nil
}

func TestHealthIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := Engine{URL: "http://engine:8000", Model: "m", Client: &http.Client{Transport: refusing{time.Now().Add(5 * time.Minute)}}}
		report, err := e.Warm(t.Context())
		require.NoError(t, err)
		require.Equal(t, 5*time.Minute, report.Waited)

		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		e.Client = &http.Client{Transport: refusing{time.Now().Add(time.Hour)}}
		report, err = e.Warm(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.False(t, report.Healthy)
	})
}

func TestSecretsDoNotPrint(t *testing.T) {
	require.NotContains(t, fmt.Sprintf("%v %+v %#v", Engine{APIKey: "sk-1"}, Engine{APIKey: "sk-1"}, Engine{APIKey: "sk-1"}), "sk-1")
}
