package deploy

import (
	"fmt"
	"html"
	"math"
	"strings"
	"time"
)

// A Picture is what a dashboard shows of a run: its panels at their places, each
// with the answers to its expressions. It is a drawing of ours, in the manner of
// Grafana's: the layout, the expressions and the legends are the dashboard's own.
type Picture struct {
	Title  string
	Length time.Duration // of the run
	Panels []Panel
}

// A Panel is one field of a dashboard, or the title of a row of them.
type Panel struct {
	Title      string
	Row        bool
	X, Y, W, H int    // on Grafana's grid: 24 columns, and as many lines as it takes
	Unit       string // short, s, Bps, reqps or percentunit
	Step       bool   // hold each value until the next
	Stack      bool   // each line on top of those before
	Lines      []Line
}

// A Line is one series of a panel. Values are a step apart; NaN is a gap.
type Line struct {
	Name   string
	Values []float64
}

// Measures of the picture in pixels: of a cell of the grid, and within a panel.
const (
	cellW, cellH                              = 46, 21
	padLeft, padRight, padTop, padBottom      = 44, 10, 26, 34
	mostLegend, legendChar, legendGap         = 4, 5.6, 14
	fontSmall, fontTitle, fontRow, fontTitle0 = 9, 11, 12, 15
)

var colours = []string{"#3274d9", "#e0752d", "#56a64b", "#a352cc", "#e02f44", "#1f9e9e", "#b08900", "#8a8a8a"}

// SVG draws the picture.
func (p Picture) SVG() string {
	height := 0
	for _, panel := range p.Panels {
		height = max(height, (panel.Y+panel.H)*cellH)
	}
	var b strings.Builder
	const head = 30
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif"><title>%s</title><rect width="100%%" height="100%%" fill="#f4f5f5"/>`, 24*cellW, height+head, html.EscapeString(p.Title))
	fmt.Fprintf(&b, `<text x="8" y="20" font-size="%d" font-weight="bold">%s</text><g transform="translate(0 %d)">`+"\n", fontTitle0, html.EscapeString(p.Title), head)
	for _, panel := range p.Panels {
		panel.draw(&b, p.Length)
	}
	b.WriteString("</g></svg>\n")
	return b.String()
}

func (p Panel) draw(b *strings.Builder, length time.Duration) {
	x, y, w, h := p.X*cellW, p.Y*cellH, p.W*cellW, p.H*cellH
	if p.Row {
		fmt.Fprintf(b, `<text x="%d" y="%d" font-size="%d" font-weight="bold" fill="#444">%s</text>`+"\n", x+8, y+15, fontRow, html.EscapeString(p.Title))
		return
	}
	fmt.Fprintf(b, `<g transform="translate(%d %d)"><rect x="3" y="2" width="%d" height="%d" fill="white" stroke="#d8d9da" rx="2"/>`, x, y, w-6, h-4)
	fmt.Fprintf(b, `<text x="10" y="17" font-size="%d" font-weight="bold">%s</text>`, fontTitle, html.EscapeString(p.Title))
	p.plot(b, float64(w), float64(h), length)
	p.legend(b, w, h)
	b.WriteString("</g>\n")
}

// stacked are the lines as they are drawn: on top of each other, if they stack.
func (p Panel) stacked() []Line {
	if !p.Stack {
		return p.Lines
	}
	lines := make([]Line, len(p.Lines))
	var sum []float64
	for i, line := range p.Lines {
		if sum == nil {
			sum = make([]float64, len(line.Values))
		}
		lines[i] = Line{Name: line.Name, Values: make([]float64, len(line.Values))}
		for k, v := range line.Values {
			lines[i].Values[k] = math.NaN()
			if !math.IsNaN(v) {
				sum[k] += v
				lines[i].Values[k] = sum[k]
			}
		}
	}
	return lines
}

func (p Panel) plot(b *strings.Builder, w, h float64, length time.Duration) {
	lines := p.stacked()
	top := 0.0
	points := 2
	for _, line := range lines {
		points = max(points, len(line.Values))
		for _, v := range line.Values {
			if !math.IsNaN(v) && !math.IsInf(v, 0) {
				top = max(top, v)
			}
		}
	}
	if top == 0 {
		top = 1
	}
	x := func(i int) float64 { return padLeft + float64(i)/float64(points-1)*(w-padLeft-padRight) }
	y := func(v float64) float64 { return h - padBottom - v/top*(h-padTop-padBottom) }
	for _, part := range []float64{0, 0.5, 1} {
		fmt.Fprintf(b, `<path d="M%d %.1fH%.1f" stroke="#eee"/><text x="%d" y="%.1f" font-size="%d" text-anchor="end" fill="#666">%s</text>`, padLeft, y(part*top), w-padRight, padLeft-4, y(part*top)+3, fontSmall, amount(part*top, p.Unit))
	}
	for _, part := range []int{0, 1, 2} {
		at := time.Duration(part) * length / 2
		fmt.Fprintf(b, `<text x="%.1f" y="%.1f" font-size="%d" text-anchor="middle" fill="#666">%s</text>`, padLeft+float64(part)/2*(w-padLeft-padRight)-float64(part-1)*8, h-padBottom+11, fontSmall, at.Round(time.Second))
	}
	if len(lines) == 0 {
		fmt.Fprintf(b, `<text x="%.1f" y="%.1f" font-size="%d" text-anchor="middle" fill="#999">nothing in this run</text>`, w/2, h/2, fontTitle)
	}
	for i := len(lines) - 1; i >= 0; i-- { // the lowest of a stack before the others
		fmt.Fprintf(b, `<path d="%s" fill="none" stroke="%s" stroke-width="1.4"/>`, path(lines[i].Values, p.Step, x, y), colours[i%len(colours)])
	}
}

// path goes from value to value, and breaks off at gaps.
func path(values []float64, step bool, x func(int) float64, y func(float64) float64) string {
	var b strings.Builder
	pen := false
	for i, v := range values {
		switch {
		case math.IsNaN(v) || math.IsInf(v, 0):
			pen = false
			continue
		case !pen:
			fmt.Fprintf(&b, "M%.1f %.1f", x(i), y(v))
		case i+1 < len(values) && v == values[i-1] && v == values[i+1]:
			continue // on the way
		case step:
			fmt.Fprintf(&b, "H%.1fV%.1f", x(i), y(v))
		default:
			fmt.Fprintf(&b, "L%.1f %.1f", x(i), y(v))
		}
		pen = true
	}
	return b.String()
}

func (p Panel) legend(b *strings.Builder, w, h int) {
	x := 10.0
	for i, line := range p.Lines {
		name := line.Name
		if i == mostLegend && len(p.Lines) > mostLegend {
			name = fmt.Sprintf("and %d more", len(p.Lines)-i)
		}
		if i > mostLegend || x+float64(len(name))*legendChar > float64(w) {
			return
		}
		fmt.Fprintf(b, `<path d="M%.1f %dh8" stroke="%s" stroke-width="3"/><text x="%.1f" y="%d" font-size="%d">%s</text>`, x, h-11, colours[i%len(colours)], x+11, h-8, fontSmall, html.EscapeString(name))
		x += 11 + float64(len(name))*legendChar + legendGap
	}
}

// amount writes a number with its unit, short.
func amount(v float64, unit string) string {
	switch unit {
	case "percentunit":
		return fmt.Sprintf("%.0f %%", 100*v)
	case "Bps":
		for _, u := range []struct {
			name string
			size float64
		}{{"G", 1e9}, {"M", 1e6}, {"k", 1e3}} {
			if v >= u.size {
				return fmt.Sprintf("%.1f %sB/s", v/u.size, u.name)
			}
		}
		return fmt.Sprintf("%.0f B/s", v)
	case "s":
		if v > 0 && v < 1 {
			return fmt.Sprintf("%.0f ms", 1000*v)
		}
		return fmt.Sprintf("%.3g s", v)
	case "reqps":
		return fmt.Sprintf("%.3g/s", v)
	}
	return fmt.Sprintf("%.3g", v)
}
