package demo

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"os"
	"strings"
	"time"
)

//go:embed timeline.html.tmpl
var timelineTemplate string

// The drawing's size, in SVG units.
const (
	width   = 1100
	lane    = 130
	gap     = 46
	left    = 60
	right   = 20
	topEdge = 30
	closest = 22 // between two numbers above the lanes
)

// A picture is what the template draws.
type picture struct {
	Width, Height int
	Title         string
	Failed        string
	Lanes         []laneView
	Marks         []markView
	Ticks         []tickView
	Events        []eventView
}

type laneView struct {
	Name         string
	Top, Base    int
	Max          string
	Areas, Lines []shape
}

type shape struct{ Path, Class, Label string }

type markView struct {
	X           float64
	Label       string
	first, last int
}

type tickView struct {
	X     float64
	Label string
}

type eventView struct{ At, Kind, Text string }

// writeTimeline draws everything recorded as one HTML file that needs nothing
// else.
func writeTimeline(path string, r *recorder, failure error) error {
	samples, events := r.timeline()
	p := draw(samples, events)
	if failure != nil {
		p.Failed = failure.Error()
	}
	t, err := template.New("timeline").Parse(timelineTemplate)
	if err != nil {
		return fmt.Errorf("timeline: %w", err)
	}
	var out bytes.Buffer
	if err := t.Execute(&out, p); err != nil {
		return fmt.Errorf("timeline: %w", err)
	}
	if err := os.WriteFile(path, out.Bytes(), 0o644); err != nil { //nolint:gosec // a page to look at
		return fmt.Errorf("writing the timeline: %w", err)
	}
	return nil
}

func draw(samples []sample, events []event) picture {
	end := time.Second
	if n := len(samples); n > 0 {
		end = max(end, samples[n-1].At)
	}
	x := func(at time.Duration) float64 {
		return left + float64(at)/float64(end)*(width-left-right)
	}
	p := picture{Width: width, Height: topEdge + 2*(lane+gap) + 20, Title: "Pilotlight demo"}
	values := func(f func(sample) float64) []float64 {
		out := make([]float64, len(samples))
		for i, s := range samples {
			out[i] = f(s)
		}
		return out
	}
	ready := values(func(s sample) float64 { return float64(s.Ready) })
	up := values(func(s sample) float64 { return float64(s.Ready + s.Starting) })
	wanted := values(func(s sample) float64 { return float64(s.Decision) })
	running := values(func(s sample) float64 { return s.Running })
	all := values(func(s sample) float64 { return s.Running + s.Held })

	pen := func(top int, most float64) func([]float64, bool) string {
		return func(v []float64, area bool) string { return stairs(samples, v, x, top, most, area) }
	}
	replicas := pen(topEdge, peakOf(up, wanted))
	requests := pen(topEdge+lane+gap, peakOf(all, nil))
	p.Lanes = []laneView{
		{
			Name: "replicas", Top: topEdge, Base: topEdge + lane, Max: fmt.Sprint(peakOf(up, wanted)),
			Areas: []shape{{replicas(up, true), "starting", "starting"}, {replicas(ready, true), "ready", "ready"}},
			Lines: []shape{{replicas(wanted, false), "wanted", "wanted by the policy"}},
		},
		{
			Name: "requests", Top: topEdge + lane + gap, Base: topEdge + 2*lane + gap, Max: fmt.Sprint(peakOf(all, nil)),
			Areas: []shape{{requests(all, true), "held", "held"}, {requests(running, true), "running", "on engines"}},
		},
	}
	for at := time.Duration(0); at <= end; at += 10 * time.Second {
		p.Ticks = append(p.Ticks, tickView{x(at), fmt.Sprintf("%.0f s", at.Seconds())})
	}
	number := 0
	for _, e := range events {
		p.Events = append(p.Events, eventView{fmt.Sprintf("%.1f s", e.At.Seconds()), e.Kind, e.Text})
		if e.Kind == "step" || e.Kind == "failed" {
			number++
			p.Marks = append(p.Marks, markView{X: x(e.At), first: number, last: number})
		}
	}
	p.Marks = label(p.Marks)
	return p
}

// label numbers the marks; where several stand too close for a number each,
// the last carries the range.
func label(marks []markView) []markView {
	for i := range marks {
		if i > 0 && marks[i].X-marks[i-1].X < closest {
			marks[i].first, marks[i-1].Label = marks[i-1].first, ""
		}
		marks[i].Label = fmt.Sprint(marks[i].last)
		if marks[i].first != marks[i].last {
			marks[i].Label = fmt.Sprintf("%d-%d", marks[i].first, marks[i].last)
		}
	}
	return marks
}

// peakOf is the top of a scale that holds both, at least one.
func peakOf(a, b []float64) float64 {
	least := 1.0
	for _, v := range append(a[:len(a):len(a)], b...) {
		least = max(least, v)
	}
	return least
}

// stairs is the SVG path of a value that stays until the next sample.
func stairs(samples []sample, v []float64, x func(time.Duration) float64, top int, most float64, area bool) string {
	if len(v) == 0 {
		return ""
	}
	y := func(value float64) float64 { return float64(top) + lane*(1-value/most) }
	var b strings.Builder
	start := y(v[0])
	if area {
		start = y(0)
	}
	fmt.Fprintf(&b, "M%.1f %.1f", x(samples[0].At), start)
	for i, value := range v {
		fmt.Fprintf(&b, "H%.1fV%.1f", x(samples[i].At), y(value))
	}
	if area {
		fmt.Fprintf(&b, "V%.1fZ", y(0))
	}
	return b.String()
}
