package simulatecmd

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"image/color"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/pilotlight-dev/pilotlight/scaler/simulate"
)

//go:embed report.html.tmpl
var reportTemplate string

// Sizes of the picture.
const (
	chartWidth = 28 * vg.Centimeter
	laneHeight = 4.2 * vg.Centimeter
)

var (
	green  = color.RGBA{0x2f, 0x9e, 0x6e, 0xff}
	amber  = color.RGBA{0xf0, 0xb4, 0x29, 0xff}
	blue   = color.RGBA{0x3b, 0x7d, 0xd8, 0xff}
	red    = color.RGBA{0xd9, 0x53, 0x4f, 0xff}
	grey   = color.RGBA{0x8a, 0x94, 0xa3, 0xff}
	ink    = color.RGBA{0x1c, 0x24, 0x30, 0xff}
	violet = color.RGBA{0x8e, 0x5b, 0xc8, 0xff}
)

// draw writes the page and the picture that were asked for.
func (w *world) draw(results []*simulate.Result, html, png *output) error {
	if png != nil {
		c := vgimg.NewWith(vgimg.UseWH(chartWidth, w.height(results)), vgimg.UseDPI(110))
		if err := w.figure(draw.New(c), results); err != nil {
			return err
		}
		var body bytes.Buffer
		if _, err := (vgimg.PngCanvas{Canvas: c}).WriteTo(&body); err != nil {
			return fmt.Errorf("drawing the picture: %w", err)
		}
		if err := png.write(body.Bytes()); err != nil {
			return err
		}
	}
	if html != nil {
		body, err := w.page(results)
		if err != nil {
			return err
		}
		return html.write(body)
	}
	return nil
}

func (w *world) height(results []*simulate.Result) vg.Length {
	return legendRow*vg.Length(len(legend(results))) + laneHeight*vg.Length(1+len(results))
}

// figure draws the legend, the arrivals, and below them a lane for each policy:
// replicas by state with what waits above them.
func (w *world) figure(c draw.Canvas, results []*simulate.Result) error {
	rows := legend(results)
	drawLegend(c, rows)
	c = draw.Crop(c, 0, 0, 0, -legendRow*vg.Length(len(rows)))
	top, err := w.arrivals(results[0])
	if err != nil {
		return err
	}
	grid := [][]*plot.Plot{{top}}
	most := 1.0
	for _, r := range results {
		most = max(most, float64(r.PeakReplicas))
	}
	for _, r := range results {
		lane, err := w.lane(r, most)
		if err != nil {
			return err
		}
		grid = append(grid, []*plot.Plot{lane})
	}
	tiles := draw.Tiles{Rows: len(grid), Cols: 1, PadTop: vg.Millimeter, PadBottom: vg.Millimeter, PadLeft: vg.Millimeter, PadRight: 3 * vg.Millimeter, PadY: vg.Millimeter}
	for i, row := range plot.Align(grid, tiles, c) {
		grid[i][0].Draw(row[0])
	}
	return nil
}

func newLane(title, y string) *plot.Plot {
	p := plot.New()
	p.Title.Text, p.Y.Label.Text = title, y
	p.Title.TextStyle.Font.Size, p.Y.Label.TextStyle.Font.Size = font.Points(10), font.Points(9)
	p.X.Tick.Label.Font.Size, p.Y.Tick.Label.Font.Size = font.Points(8), font.Points(8)
	p.X.Min = 0
	p.Y.Min = 0
	return p
}

// unit is how the time axis counts: minutes for hours of trace, hours for days.
func (w *world) unit() (divide float64, name string) {
	if reqs := w.scenario.Requests; reqs[len(reqs)-1].At.Hours() > 4 {
		return 3600, "h"
	}
	return 60, "min"
}

func (w *world) arrivals(r *simulate.Result) (*plot.Plot, error) {
	p := newLane(w.headline(), "requests/s")
	line, err := plotter.NewLine(w.steps(r, func(m simulate.Moment) float64 { return m.Arrivals }))
	if err != nil {
		return nil, err
	}
	line.Color = ink
	p.Add(line)
	return p, nil
}

// replicaTicks marks only replicas that there can be: neither the room below
// for the strip nor the one above for what waits.
type replicaTicks struct{ most float64 }

func (t replicaTicks) Ticks(_, _ float64) []plot.Tick {
	return plot.DefaultTicks{}.Ticks(0, t.most)
}

// lane draws one policy. What waits is drawn to its own scale, from the top.
func (w *world) lane(r *simulate.Result, most float64) (*plot.Plot, error) {
	cost := r.Cost(w.prices)
	p := newLane(fmt.Sprintf("%s: p95 %.1f s, %.2f GPU-h, %d starts, $%.2f", r.Controller, r.FirstToken.P95, r.GPUHours(), r.Starts, cost), "replicas")
	p.Y.Min, p.Y.Max = -0.15*most, most*1.6
	p.Y.Tick.Marker = replicaTicks{most}
	terminating := func(m simulate.Moment) float64 { return float64(m.Ready + m.Starting + m.Terminating) }
	starting := func(m simulate.Moment) float64 { return float64(m.Ready + m.Starting) }
	ready := func(m simulate.Moment) float64 { return float64(m.Ready) }
	for _, area := range []struct {
		value func(simulate.Moment) float64
		fill  color.Color
	}{{terminating, grey}, {starting, amber}, {ready, green}} {
		poly, err := plotter.NewPolygon(closed(w.steps(r, area.value)))
		if err != nil {
			return nil, err
		}
		poly.Color, poly.Width = area.fill, 0
		p.Add(poly)
	}
	pile := 1.0
	waits := func(m simulate.Moment) float64 { return float64(m.Held + m.Queued) }
	for _, m := range r.Timeline {
		pile = max(pile, waits(m))
	}
	waiting, err := plotter.NewLine(w.steps(r, func(m simulate.Moment) float64 { return p.Y.Max - waits(m)/pile*most*0.55 }))
	if err != nil {
		return nil, err
	}
	waiting.Color = red
	p.Add(waiting)
	p.Title.Text += fmt.Sprintf(", up to %.0f waiting", pile)
	if err := w.reasons(p, r, most); err != nil {
		return nil, err
	}
	_, name := w.unit()
	p.X.Label.Text = name
	p.X.Label.TextStyle.Font.Size = font.Points(8)
	return p, nil
}

// reasons puts a strip below the replicas, coloured by why they were wanted.
func (w *world) reasons(p *plot.Plot, r *simulate.Result, most float64) error {
	if len(reasonsOf(r)) == 0 {
		return nil
	}
	divide, _ := w.unit()
	y := -0.09 * most
	line := r.Timeline
	for i := 0; i < len(line); {
		j := i
		for j < len(line) && line[j].Reason == line[i].Reason {
			j++
		}
		if s, ok := shadeOf(line[i].Reason); ok {
			end := line[min(j, len(line)-1)].At
			strip, err := plotter.NewLine(plotter.XYs{{X: line[i].At.Seconds() / divide, Y: y}, {X: end.Seconds() / divide, Y: y}})
			if err != nil {
				return err
			}
			strip.Color, strip.Width = s.fill, vg.Points(4)
			p.Add(strip)
		}
		i = j
	}
	return nil
}

// steps turns a timeline into stairs.
func (w *world) steps(r *simulate.Result, value func(simulate.Moment) float64) plotter.XYs {
	divide, _ := w.unit()
	var out plotter.XYs
	for i, m := range r.Timeline {
		x, y := m.At.Seconds()/divide, value(m)
		if i > 0 {
			if last := out[len(out)-1]; last.Y == y && i < len(r.Timeline)-1 {
				continue
			} else if last.Y != y {
				out = append(out, plotter.XY{X: x, Y: last.Y})
			}
		}
		out = append(out, plotter.XY{X: x, Y: y})
	}
	if len(out) == 0 {
		out = plotter.XYs{{}, {}}
	}
	return out
}

// closed brings stairs down to the axis at both ends.
func closed(line plotter.XYs) plotter.XYs {
	out := plotter.XYs{{X: line[0].X}}
	out = append(out, line...)
	return append(out, plotter.XY{X: line[len(line)-1].X})
}

// page is the figure with the table as one HTML file that needs nothing else.
func (w *world) page(results []*simulate.Result) ([]byte, error) {
	c := vgsvg.New(chartWidth, w.height(results))
	if err := w.figure(draw.New(c), results); err != nil {
		return nil, err
	}
	var svg bytes.Buffer
	if _, err := c.WriteTo(&svg); err != nil {
		return nil, fmt.Errorf("drawing the page: %w", err)
	}
	at := bytes.Index(svg.Bytes(), []byte("<svg"))
	rows := [][]string{}
	for _, r := range w.rows(results) {
		rows = append(rows, r.cells())
	}
	t, err := template.New("report").Parse(reportTemplate)
	if err != nil {
		return nil, err
	}
	note := ""
	if anyLost(results) {
		note = lostNote
	}
	var out bytes.Buffer
	err = t.Execute(&out, map[string]any{
		"Title": w.headline(), "Columns": columns, "Rows": rows, "Note": note,
		"Figure": template.HTML(svg.Bytes()[max(at, 0):]), //nolint:gosec // drawn above; its texts are escaped by the canvas
		"GPU":    w.prices.GPUHour, "Wait": w.prices.WaitSeconds, "Seed": w.seed,
	})
	if err != nil {
		return nil, fmt.Errorf("writing the page: %w", err)
	}
	return out.Bytes(), nil
}
