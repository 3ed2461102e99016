package fetchercmd

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/term"

	"github.com/pilotlight-dev/pilotlight/fetcher"
)

const (
	barEvery  = 200 * time.Millisecond
	lineEvery = 5 * time.Second
	barWidth  = 30
)

// progress shows a run: a bar that redraws itself on a terminal, else a log
// line every few seconds. It is also the writer of the log, so that a log line
// never lands inside the bar.
type progress struct {
	out io.Writer
	bar bool

	total, done, retries atomic.Int64

	mu    sync.Mutex
	drawn bool // a bar is on the current line
}

func newProgress(out io.Writer, bar bool) *progress { return &progress{out: out, bar: bar} }

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// Planned implements fetcher.Progress.
func (p *progress) Planned(plan fetcher.Plan) { p.total.Store(plan.Bytes) }

// Advanced implements fetcher.Progress.
func (p *progress) Advanced(n int64) { p.done.Add(n) }

// Retried implements fetcher.Progress.
func (p *progress) Retried(string, error) { p.retries.Add(1) }

// Write implements io.Writer for the log.
func (p *progress) Write(line []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.drawn {
		p.drawn = false
		if _, err := io.WriteString(p.out, "\r\x1b[K"); err != nil {
			return 0, err // a writer's own error
		}
	}
	return p.out.Write(line) // as above
}

// start shows the progress until the returned function is called, which waits
// for the last redraw.
func (p *progress) start(ctx context.Context, log *slog.Logger) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	every := lineEvery
	if p.bar {
		every = barEvery
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		last := int64(0)
		for {
			select {
			case <-ctx.Done():
				p.clear()
				return
			case <-ticker.C:
				last = p.show(ctx, log, every, last)
			}
		}
	})
	return func() { cancel(); wg.Wait() }
}

// show draws one state and returns the bytes it showed.
func (p *progress) show(ctx context.Context, log *slog.Logger, since time.Duration, last int64) int64 {
	total, done := p.total.Load(), p.done.Load()
	if total == 0 {
		return done
	}
	rate := float64(max(0, done-last)) / since.Seconds() / 1e6
	if p.bar {
		p.draw(done, total, rate)
		return done
	}
	log.InfoContext(ctx, "downloading", "bytes", done, "of", total,
		"percent", rounded(100*float64(done)/float64(total)), "megabytes_per_second", rounded(rate), "retries", p.retries.Load())
	return done
}

func (p *progress) draw(done, total int64, rate float64) {
	fraction := min(1, max(0, float64(done)/float64(total)))
	full := int(fraction * barWidth)
	p.mu.Lock()
	defer p.mu.Unlock()
	_, _ = fmt.Fprintf(p.out, "\r\x1b[K[%s%s] %3.0f%%  %.1f/%.1f MB  %.1f MB/s", // a bar that cannot be drawn is not missed
		strings.Repeat("#", full), strings.Repeat(".", barWidth-full), 100*fraction, float64(done)/1e6, float64(total)/1e6, rate)
	p.drawn = true
}

func (p *progress) clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.drawn {
		_, _ = io.WriteString(p.out, "\r\x1b[K") // as in draw
		p.drawn = false
	}
}

// rounded keeps one decimal.
func rounded(x float64) float64 { return math.Round(x*10) / 10 }
