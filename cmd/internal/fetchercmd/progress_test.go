package fetchercmd

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/fetcher"
)

// buffer is a writer that two goroutines may use.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func TestProgressInAPodIsALineEveryFewSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out buffer
		p := newProgress(&out, false)
		stop := p.start(t.Context(), slog.New(slog.NewTextHandler(p, nil)))
		p.Planned(fetcher.Plan{Bytes: 100e6})
		p.Advanced(50e6)
		p.Retried("x", nil)
		time.Sleep(5*time.Second + time.Millisecond)
		synctest.Wait()
		require.Equal(t, 1, strings.Count(out.String(), "\n"))
		require.Contains(t, out.String(), "percent=50 megabytes_per_second=10 retries=1")
		stop()
	})
}

func TestProgressOnATerminalIsABarThatLogLinesDoNotBreak(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out buffer
		p := newProgress(&out, true)
		log := slog.New(slog.NewTextHandler(p, nil))
		stop := p.start(t.Context(), log)
		p.Planned(fetcher.Plan{Bytes: 100e6})
		p.Advanced(50e6)
		time.Sleep(201 * time.Millisecond)
		synctest.Wait()
		log.Info("hello")
		stop()
		require.Contains(t, out.String(), "[###############...............]  50%  50.0/100.0 MB  250.0 MB/s\r\x1b[Ktime=")
		require.NotContains(t, out.String(), "level=INFO msg=downloading")
	})
}
