package simulatecmd

import (
	"image/color"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/pilotlight-dev/pilotlight/scaler/policy"
	"github.com/pilotlight-dev/pilotlight/scaler/simulate"
)

// legendRow is the height of a line of the legend, which has the top of the
// picture to itself.
const legendRow = 0.55 * vg.Centimeter

// A mark is an entry of the legend: a coloured field or line and its name, or
// only words.
type mark struct {
	name string
	fill color.Color
	line bool
}

// A shade colours the strip below a lane.
type shade struct {
	name    string
	fill    color.Color
	reasons []policy.Reason
}

// shades are in the order of the legend. They are the words of our policy;
// others give hardly any reasons.
func shades() []shade {
	return []shade{
		{"backlog", red, []policy.Reason{policy.ReasonBacklog}},
		{"rising load", violet, []policy.Reason{policy.ReasonLookahead}},
		{"load", blue, []policy.Reason{policy.ReasonLoad}},
		{"held", green, []policy.Reason{policy.ReasonHold, policy.ReasonKeepAlive, policy.ReasonWindow}},
		{"start under way", amber, []policy.Reason{policy.ReasonLease}},
		{"settling after a scale-out", grey, []policy.Reason{policy.ReasonSettle}},
		{"at maxReplicaCount", ink, []policy.Reason{policy.ReasonMax}},
	}
}

func shadeOf(reason string) (shade, bool) {
	for _, s := range shades() {
		if slices.Contains(s.reasons, policy.Reason(reason)) {
			return s, true
		}
	}
	return shade{}, false
}

// reasonsOf are the shades in a lane's strip. A lane with fewer than two has no
// strip: one colour would tell nothing.
func reasonsOf(r *simulate.Result) map[string]bool {
	seen := map[string]bool{}
	for _, m := range r.Timeline {
		if s, ok := shadeOf(m.Reason); ok {
			seen[s.name] = true
		}
	}
	if len(seen) < 2 {
		return nil
	}
	return seen
}

// legend explains all lanes: what is drawn in each, and the strips of those
// that have one.
func legend(results []*simulate.Result) [][]mark {
	rows := [][]mark{{
		{name: "Replicas:"},
		{name: "ready", fill: green},
		{name: "starting", fill: amber},
		{name: "leaving", fill: grey},
		{name: "requests waiting, from above; their peak is in each title", fill: red, line: true},
	}}
	var lanes []string
	seen := map[string]bool{}
	for _, r := range results {
		reasons := reasonsOf(r)
		if len(reasons) > 0 {
			lanes = append(lanes, r.Controller)
		}
		for name := range reasons {
			seen[name] = true
		}
	}
	if len(lanes) == 0 {
		return rows
	}
	strip := []mark{{name: "Strip below " + strings.Join(lanes, ", ") + ", why replicas were wanted:"}}
	for _, s := range shades() {
		if seen[s.name] {
			strip = append(strip, mark{name: s.name, fill: s.fill})
		}
	}
	return append(rows, strip)
}

// drawLegend draws the rows from the top of c.
func drawLegend(c draw.Canvas, rows [][]mark) {
	style := plot.New().Legend.TextStyle
	style.Font.Size = font.Points(9)
	style.XAlign, style.YAlign = text.XLeft, text.YCenter
	const width, gap = 0.6 * vg.Centimeter, 0.15 * vg.Centimeter
	for i, row := range rows {
		x, y := c.Min.X+legendRow, c.Max.Y-legendRow*(vg.Length(i)+0.6)
		for _, m := range row {
			if m.fill != nil {
				half := vg.Points(3)
				if m.line {
					half = vg.Points(0.5)
				}
				c.FillPolygon(m.fill, []vg.Point{{X: x, Y: y - half}, {X: x + width, Y: y - half}, {X: x + width, Y: y + half}, {X: x, Y: y + half}})
				x += width + gap
			}
			c.FillText(style, vg.Point{X: x, Y: y}, m.name)
			x += style.Width(m.name) + 3*gap
		}
	}
}
