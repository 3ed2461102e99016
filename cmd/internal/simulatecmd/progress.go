package simulatecmd

import (
	"fmt"
	"io"
	"strings"
	"sync"
)

// progress is a bar on a terminal, and nothing elsewhere: the runs take
// seconds.
type progress struct {
	out io.Writer
	tty bool

	mu          sync.Mutex
	done, total int
}

func newProgress(out io.Writer, tty bool, total int) *progress {
	p := &progress{out: out, tty: tty && total > 1, total: total}
	p.draw()
	return p
}

func (p *progress) step() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done++
	p.draw()
}

func (p *progress) draw() {
	if !p.tty {
		return
	}
	const width = 40
	full := width * p.done / p.total
	_, _ = fmt.Fprintf(p.out, "\r[%s%s] %d/%d simulations", strings.Repeat("#", full), strings.Repeat(".", width-full), p.done, p.total) // decoration
}

func (p *progress) end() {
	if p.tty {
		_, _ = fmt.Fprint(p.out, "\r\x1b[K")
	}
}
