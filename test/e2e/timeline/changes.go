package timeline

import (
	"fmt"
	"strconv"
	"strings"
)

// Change is a moment at which something was no longer as before, in words.
type Change struct {
	Seconds                                  float64
	Wanted, Reason, Replicas, Ready, Waiting string
	KEDA, HPA                                string
	Patched                                  string // what was patched since the change before, and by whom
}

// Changes are the points that differ from the one before in anything but the
// load.
func (t *Timeline) Changes() []Change {
	var out []Change
	moves := t.Moves
	for _, p := range t.Points {
		c := p.words()
		for len(moves) > 0 && moves[0].Seconds <= p.Seconds {
			c.patched(moves[0])
			moves = moves[1:]
		}
		if len(out) > 0 && c.same(out[len(out)-1]) {
			continue
		}
		out = append(out, c)
	}
	if len(moves) > 0 { // as the recording ended
		last := Change{Seconds: t.Ended}
		if len(out) > 0 {
			last = out[len(out)-1]
			last.Seconds, last.Patched = t.Ended, ""
		}
		for _, m := range moves {
			last.patched(m)
			last.Replicas = strconv.Itoa(int(m.To))
		}
		out = append(out, last)
	}
	return out
}

func (c *Change) patched(m Move) {
	c.Patched = strings.TrimPrefix(fmt.Sprintf("%s, %s %d to %d", c.Patched, m.By, m.From, m.To), ", ")
}

// same reports whether nothing has changed since before.
func (c Change) same(before Change) bool {
	before.Seconds, before.Waiting, before.Patched = c.Seconds, c.Waiting, ""
	return c == before
}

func (p Point) words() Change {
	c := Change{Seconds: p.Seconds, Wanted: "unknown", Reason: p.Reason, Ready: strconv.Itoa(int(p.Ready)), Waiting: strconv.FormatFloat(p.Waiting, 'f', -1, 64)}
	if p.Wanted != nil {
		c.Wanted = strconv.Itoa(*p.Wanted)
	}
	if p.Replicas >= 0 {
		c.Replicas = strconv.Itoa(int(p.Replicas))
	}
	if k := p.KEDA; k != nil {
		for _, one := range []struct{ is, yes, no string }{
			{k.Ready, "ready", "not ready"}, {k.Active, "active", "inactive"}, {k.Fallback, "fallback", ""}, {k.Paused, "paused", ""},
		} {
			word := map[string]string{"True": one.yes, "False": one.no}[one.is]
			if word != "" {
				c.KEDA = strings.TrimPrefix(c.KEDA+", "+word, ", ")
			}
		}
	}
	if h := p.HPA; h != nil {
		c.HPA = fmt.Sprintf("%d of %d", h.Current, h.Desired)
		if h.Metric != nil {
			c.HPA += fmt.Sprintf(", metric %.3g", *h.Metric)
		}
	}
	return c
}
