package timeline

import (
	"fmt"
	"html"
	"math"
	"strings"
)

// The picture's measures, in pixels.
const (
	width, height            = 900, 250
	left, right, top, bottom = 40, 110, 40, 48
)

// The replicas, those of the simulator, and KEDA's bar.
const (
	blue   = "#1b5fa8"
	purple = "#8a2be2"
	teal   = "#0b7285"
)

// line is one stepped curve; NaN is a gap.
type line struct {
	label, colour, dash string
	at                  func(Point) float64
}

func lines() []line {
	return []line{
		{"ready", "#2a9d55", "", func(p Point) float64 { return float64(p.Ready) }},
		{"wanted", "#d9480f", "4 3", func(p Point) float64 {
			if p.Wanted == nil {
				return math.NaN()
			}
			return float64(*p.Wanted)
		}},
		{"HPA", "#888888", "2 3", func(p Point) float64 {
			if p.HPA == nil {
				return math.NaN()
			}
			return float64(p.HPA.Desired)
		}},
	}
}

// extent is what has to fit: the last moment, the most replicas, the most load.
func (t *Timeline) extent() (end, most, load float64) {
	end, most, load = max(1, t.Ended), 1, 1
	for _, p := range t.Points {
		end = max(end, p.Seconds)
		load = max(load, p.Load)
		for _, l := range lines() {
			if v := l.at(p); !math.IsNaN(v) {
				most = max(most, v)
			}
		}
	}
	if t.Replay != nil {
		for _, m := range t.Replay.Moves {
			end, most = max(end, m.Seconds), max(most, float64(m.To))
		}
	}
	return end, most, load
}

// SVG draws the replicas, those of the simulator over them, and below them in
// grey the requests; under all that, how far the two are apart.
func (t *Timeline) SVG() string {
	end, most, load := t.extent()
	x := func(s float64) float64 { return left + s/end*(width-left-right) }
	y := func(v float64) float64 { return height - bottom - v/most*(height-top-bottom) }
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="11"><title>%s</title><rect width="100%%" height="100%%" fill="white"/>`, width, height, html.EscapeString(t.Name))
	t.area(&b, x, func(v float64) float64 { return height - bottom - v/load*(height-top-bottom) })
	for v := range int(most) + 1 {
		fmt.Fprintf(&b, `<line x1="%d" x2="%d" y1="%.1f" y2="%.1f" stroke="#eee"/><text x="%d" y="%.1f" text-anchor="end">%d</text>`, left, width-right, y(float64(v)), y(float64(v)), left-6, y(float64(v))+4, v)
	}
	for s := 0.0; s <= end; s += step(end) {
		fmt.Fprintf(&b, `<text x="%.1f" y="%d" text-anchor="middle">%.0f s</text>`, x(s), height-bottom+20, s)
	}
	for i, m := range t.Marks {
		fmt.Fprintf(&b, `<line x1="%[1]f" x2="%[1]f" y1="%[2]d" y2="%[3]d" stroke="#b08900" stroke-dasharray="1 2"/><text x="%.1[4]f" y="%[5]d" fill="#7a5f00">%[6]s</text>`, x(m.Seconds), top, height-bottom, x(m.Seconds)+3, 12+12*(i%2), html.EscapeString(m.Text))
	}
	if from, began, ok := t.first(); ok {
		fmt.Fprintf(&b, `<path d="%s" fill="none" stroke="%s" stroke-width="1.8"/>`, steps{began, from, t.Moves, end}.path(x, y), blue)
	}
	fmt.Fprintf(&b, `<text x="%d" y="%d" fill="%s">replicas</text>`, width-right+8, top+10+14*len(lines()), blue)
	for i, l := range lines() {
		fmt.Fprintf(&b, `<path d="%s" fill="none" stroke="%s" stroke-width="1.8" stroke-dasharray="%s"/>`, t.path(l, x, y), l.colour, l.dash)
		fmt.Fprintf(&b, `<text x="%d" y="%d" fill="%s">%s</text>`, width-right+8, top+10+14*i, l.colour, l.label)
	}
	fmt.Fprintf(&b, `<text x="%d" y="%d" fill="#999">requests (to %.0f)</text>`, width-right+8, top+10+14*(len(lines())+1), load)
	t.active(&b, x)
	t.overlay(&b, end, x, y)
	b.WriteString("</svg>")
	return b.String()
}

// first is from when on there was a Deployment, and with how many replicas.
func (t *Timeline) first() (from int32, began float64, ok bool) {
	for _, p := range t.Points {
		if p.Replicas < 0 {
			continue
		}
		if len(t.Moves) > 0 {
			return t.Moves[0].From, min(p.Seconds, t.Moves[0].Seconds), true
		}
		return p.Replicas, p.Seconds, true
	}
	return 0, 0, false
}

// steps are replicas that move.
type steps struct {
	began float64
	from  int32
	moves []Move
	end   float64
}

func (s steps) path(x, y func(float64) float64) string {
	var b strings.Builder
	fmt.Fprintf(&b, "M%.1f %.1f", x(s.began), y(float64(s.from)))
	for _, m := range s.moves {
		fmt.Fprintf(&b, "H%.1fV%.1f", x(m.Seconds), y(float64(m.To)))
	}
	fmt.Fprintf(&b, "H%.1f", x(s.end))
	return b.String()
}

// active draws a bar while KEDA calls the target active, a red one while it falls
// back.
func (t *Timeline) active(b *strings.Builder, x func(float64) float64) {
	colour, from, until := "", 0.0, 0.0
	draw := func() {
		if colour != "" {
			fmt.Fprintf(b, `<rect x="%.1f" y="%d" width="%.1f" height="4" fill="%s"/>`, x(from), height-bottom+2, x(until)-x(from), colour)
		}
	}
	for _, p := range t.Points {
		if next := p.KEDA.colour(); next != colour {
			draw()
			colour, from = next, until
		}
		until = p.Seconds
	}
	draw()
	fmt.Fprintf(b, `<text x="%d" y="%d" fill="%s">KEDA active</text>`, width-right+8, height-bottom+8, teal)
}

// colour is that of KEDA's bar, "" for none.
func (k *KEDA) colour() string {
	switch {
	case k == nil:
		return ""
	case k.Fallback == "True":
		return "#b00020"
	case k.Active == "True":
		return teal
	}
	return ""
}

// overlay draws what the simulator did, or says why it was not asked.
func (t *Timeline) overlay(b *strings.Builder, end float64, x, y func(float64) float64) {
	says := "not replayed: " + t.Apart
	if t.Replay != nil && t.Trace != nil {
		says = "replay: " + t.Replay.Says
		line := steps{t.Trace.Began, t.Trace.Replicas, t.Replay.Moves, end}
		fmt.Fprintf(b, `<path d="%s" fill="none" stroke="%s" stroke-width="1.4" stroke-dasharray="6 3"/>`, line.path(x, y), purple)
		fmt.Fprintf(b, `<text x="%d" y="%d" fill="%s">simulator</text>`, width-right+8, top+10+14*(len(lines())+2), purple)
	}
	fmt.Fprintf(b, `<text x="%d" y="%d" fill="#444">%s</text>`, left, height-8, html.EscapeString(says))
}

// path steps from point to point.
func (t *Timeline) path(l line, x, y func(float64) float64) string {
	var b strings.Builder
	pen := false
	for _, p := range t.Points {
		v := l.at(p)
		switch {
		case math.IsNaN(v):
			pen = false
		case pen:
			fmt.Fprintf(&b, "H%.1fV%.1f", x(p.Seconds), y(v))
		default:
			fmt.Fprintf(&b, "M%.1f %.1f", x(p.Seconds), y(v))
			pen = true
		}
	}
	return b.String()
}

// area fills what waits and runs.
func (t *Timeline) area(b *strings.Builder, x, y func(float64) float64) {
	if len(t.Points) == 0 {
		return
	}
	fmt.Fprintf(b, `<path fill="#ececec" d="M%.1f %.1f`, x(t.Points[0].Seconds), y(0))
	for _, p := range t.Points {
		fmt.Fprintf(b, "H%.1fV%.1f", x(p.Seconds), y(p.Load))
	}
	fmt.Fprintf(b, `V%.1fZ"/>`, y(0))
}

// step is a round number of seconds between marks of the axis.
func step(end float64) float64 {
	for _, s := range []float64{5, 10, 15, 30, 60, 120, 300} {
		if end/s <= 12 {
			return s
		}
	}
	return 600
}
