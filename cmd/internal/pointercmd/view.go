package pointercmd

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pilotlight-dev/pilotlight/cmd/internal/agentwatch"
)

// view shows a wait on stderr: redrawn on a terminal, one line for each change
// elsewhere, one JSON object for each change with -o json.
type view struct {
	app    *app
	target proven
	begun  time.Time
	drawn  int               // lines on the terminal
	last   map[string]string // pod -> what was said about it
}

func (a *app) newView(target proven) *view {
	return &view{app: a, target: target, begun: a.Now(), last: map[string]string{}}
}

// event is a change, for -o json.
type event struct {
	At      time.Time `json:"at"`
	Pod     string    `json:"pod"`
	State   string    `json:"state"`
	Reason  string    `json:"reason,omitempty"`
	Version string    `json:"version,omitempty"`
	Ready   bool      `json:"ready"` // on the version that is waited for
}

func (v *view) show(r agentwatch.Round) {
	if v.app.StderrTTY && v.app.output == "table" {
		v.redraw(r)
		return
	}
	if r.Err == nil {
		delete(v.last, "")
	} else {
		v.say("", fmt.Sprintf("the pods cannot be listed: %v", r.Err), event{At: r.At, State: "unknown", Reason: r.Err.Error()})
	}
	here := map[string]bool{}
	for _, p := range r.Pods {
		here[p.ID()] = true
		doc := describePod(p)
		v.say(p.ID(), v.line(p), event{At: r.At, Pod: p.ID(), State: p.State(), Reason: p.Reason(), Version: doc.Serving.Version, Ready: p.Serves(v.target.digest)})
	}
	for id := range v.last {
		if id != "" && !here[id] {
			v.say(id, id+"  gone", event{At: r.At, Pod: id, State: "gone"})
			delete(v.last, id)
		}
	}
}

// say writes what is new about a pod.
func (v *view) say(id, text string, e event) {
	if v.last[id] == text {
		return
	}
	v.last[id] = text
	if v.app.output == "json" {
		if data, err := json.Marshal(e); err == nil {
			say(v.app.err, "%s\n", data)
		}
		return
	}
	say(v.app.err, "%s\n", clean(text))
}

func (v *view) line(p agentwatch.Pod) string {
	text := p.ID() + "  " + p.Describe()
	if p.Status != nil && p.Status.Serving.Version != "" {
		text += "  version " + p.Status.Serving.Version
	}
	return text
}

// redraw paints over what it painted before.
func (v *view) redraw(r agentwatch.Round) {
	p := &page{color: v.app.colors(true)}
	head := fmt.Sprintf("waiting for version %s (%s): %s, %s", v.target.version, short(v.target.digest), r.Verdict, v.app.Now().Sub(v.begun).Round(time.Second))
	lines := []string{clean(head)}
	if r.Err != nil {
		lines = append(lines, p.paint(yellow, clean("the pods cannot be listed: "+r.Err.Error())))
	}
	pods := slices.Clone(r.Pods)
	for _, pod := range pods {
		shade := yellow
		switch {
		case !pod.Counts():
			shade = dim
		case pod.Serves(v.target.digest):
			shade = green
		case pod.Failure != "":
			shade = red
		}
		lines = append(lines, "  "+p.paint(shade, clean(v.line(pod))))
	}
	var b strings.Builder
	if v.drawn > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", v.drawn)
	}
	for _, l := range lines {
		b.WriteString("\r\x1b[2K" + l + "\n")
	}
	b.WriteString("\x1b[J") // pods that are gone
	v.drawn = len(lines)
	say(v.app.err, "%s", b.String())
}

// end leaves the last picture where it is.
func (v *view) end() { v.drawn = 0 }
