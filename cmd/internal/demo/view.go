package demo

import (
	"fmt"
	"io"
	"strings"
	"sync"
)

// A view tells the story as it happens: one line for each event, and on a
// terminal a panel below that shows the present.
type view struct {
	out io.Writer
	tty bool

	mu     sync.Mutex
	panel  int // lines of the panel now on the screen
	latest sample
}

func newView(out io.Writer, tty bool) *view { return &view{out: out, tty: tty} }

var marks = map[string]string{"step": "ok", "scale": "..", "failed": "XX"}

func (v *view) event(e event) {
	mark := marks[e.Kind]
	line := fmt.Sprintf("%6.1fs  %s  %s", e.At.Seconds(), mark, e.Text)
	if v.tty && e.Kind == "step" {
		line = fmt.Sprintf("%6.1fs  \x1b[32m%s\x1b[0m  %s", e.At.Seconds(), mark, e.Text)
	}
	v.print(line)
}

// print writes a line above the panel.
func (v *view) print(line string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.clear()
	_, _ = fmt.Fprintln(v.out, line) // nowhere left to say so
	v.draw()
}

func (v *view) sample(s sample) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.latest = s
	if v.tty {
		v.clear()
		v.draw()
	}
}

// draw puts the panel on the screen; clear takes it away again.
func (v *view) draw() {
	if !v.tty {
		return
	}
	s := v.latest
	lines := []string{
		"",
		fmt.Sprintf("  replicas  [%s]  wanted %d, ready %d, starting %d", bar(s.Ready, s.Starting, maxReplicas), s.Wanted, s.Ready, s.Starting),
		fmt.Sprintf("  requests  %2.0f on engines, %2.0f held %s", s.Running, s.Held, strings.Repeat("|", min(int(s.Held), 40))),
		fmt.Sprintf("  decision  %d replicas: %s", s.Decision, s.Reason),
	}
	for _, l := range lines {
		_, _ = fmt.Fprintln(v.out, l)
	}
	v.panel = len(lines)
}

func (v *view) clear() {
	if v.panel > 0 {
		_, _ = fmt.Fprintf(v.out, "\x1b[%dA\x1b[J", v.panel)
		v.panel = 0
	}
}

// bar draws Ready replicas as #, starting ones as +, room as a dot.
func bar(ready, starting, room int) string {
	return strings.Repeat("#", ready) + strings.Repeat("+", starting) + strings.Repeat(".", max(room-ready-starting, 0))
}

// end says how it went and where the timeline is.
func (v *view) end(err error, html, logs string) {
	v.close()
	v.print("")
	if err != nil {
		v.print("The demo failed. Logs: " + logs)
	} else {
		v.print("Every step was as it should be.")
	}
	v.print("Timeline: " + html)
}

// close takes the panel away for good.
func (v *view) close() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.clear()
	v.tty = false
}
