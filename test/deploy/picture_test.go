package deploy

import (
	"encoding/json"
	"math"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/stretchr/testify/require"
)

// A dashPanel is a panel as Grafana's JSON has it.
type dashPanel struct {
	Type    string `json:"type"`
	Title   string `json:"title"`
	GridPos struct{ H, W, X, Y int }
	Targets []struct {
		Expr         string `json:"expr"`
		LegendFormat string `json:"legendFormat"`
	} `json:"targets"`
	FieldConfig struct {
		Defaults struct {
			Unit   string `json:"unit"`
			Custom struct {
				LineInterpolation string `json:"lineInterpolation"`
				Stacking          struct {
					Mode string `json:"mode"`
				} `json:"stacking"`
			} `json:"custom"`
		} `json:"defaults"`
	} `json:"fieldConfig"`
}

const (
	recording = "testdata/run.txt"
	pictured  = root + "/docs/images/dashboard.svg"
)

// TestTheDashboardIsPictured draws docs/images/dashboard.svg: what the dashboard
// shows of the run in testdata/run.txt, by Prometheus' own engine. Most panels
// must show something, or the picture, or the dashboard, is worth little.
func TestTheDashboardIsPictured(t *testing.T) {
	t.Parallel()
	if os.Getenv("PILOTLIGHT_DEPLOY_RECORD") != "" {
		t.Skip("another run is being recorded: -update draws it")
	}
	series, err := os.ReadFile(recording)
	require.NoError(t, err, "PILOTLIGHT_DEPLOY_RECORD=1 make verify-deploy records one")
	data, err := os.ReadFile(files + "/dashboard.json")
	require.NoError(t, err)
	var dashboard struct {
		Panels []dashPanel `json:"panels"`
	}
	require.NoError(t, json.Unmarshal(data, &dashboard))
	storage := promqltest.LoadedStorage(t, string(series))
	defer func() { require.NoError(t, storage.Close()) }()
	engine := promqltest.NewTestEngine(t, false, 0, promqltest.DefaultMaxSamplesPerQuery)
	seconds := recordedSeconds(t, string(series))
	p := Picture{Title: "Pilotlight: one model wakes, serves, moves to another version and back, and sleeps", Length: time.Duration(seconds) * time.Second}
	empty := 0
	for _, one := range dashboard.Panels {
		panel := Panel{
			Title: one.Title, Row: one.Type == "row", X: one.GridPos.X, Y: one.GridPos.Y, W: one.GridPos.W, H: one.GridPos.H,
			Unit: one.FieldConfig.Defaults.Unit, Step: one.FieldConfig.Defaults.Custom.LineInterpolation == "stepAfter", Stack: one.FieldConfig.Defaults.Custom.Stacking.Mode == "normal",
		}
		for _, target := range one.Targets {
			expr := strings.NewReplacer("$namespace", ".*", "$model", ".*").Replace(target.Expr)
			query, err := engine.NewRangeQuery(t.Context(), storage, nil, expr, time.Unix(0, 0), time.Unix(int64(seconds), 0), time.Second)
			require.NoError(t, err, expr)
			matrix, err := query.Exec(t.Context()).Matrix()
			require.NoError(t, err, expr)
			for _, series := range matrix {
				panel.Lines = append(panel.Lines, lineOf(series, target.LegendFormat, seconds))
			}
			query.Close()
		}
		if !panel.Row && len(panel.Lines) == 0 {
			empty++
			t.Log("shows nothing:", panel.Title)
		}
		p.Panels = append(p.Panels, panel)
	}
	require.LessOrEqual(t, empty, 6, "panels that show nothing of a run in which most things happen")
	if *update {
		require.NoError(t, os.WriteFile(pictured, []byte(p.SVG()), 0o600))
	}
	got, err := os.ReadFile(pictured)
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(p.SVG(), string(got)), "go test ./... -update draws it anew; look at it")
}

// recordedSeconds is how long a recording is, by its longest line.
func recordedSeconds(t *testing.T, text string) int {
	t.Helper()
	m := regexp.MustCompile(`(?m)^# (\d+) seconds`).FindStringSubmatch(text)
	require.NotNil(t, m)
	d, err := time.ParseDuration(m[1] + "s")
	require.NoError(t, err)
	return int(d.Seconds())
}

var legendPart = regexp.MustCompile(`{{\s*(\w+)\s*}}`)

func lineOf(series promql.Series, legend string, seconds int) Line {
	line := Line{Values: make([]float64, seconds+1)}
	line.Name = legendPart.ReplaceAllStringFunc(legend, func(part string) string { return series.Metric.Get(legendPart.FindStringSubmatch(part)[1]) })
	for i := range line.Values {
		line.Values[i] = math.NaN()
	}
	for _, point := range series.Floats {
		if i := int(point.T / 1000); i >= 0 && i < len(line.Values) {
			line.Values[i] = point.F
		}
	}
	return line
}

func TestPicture(t *testing.T) {
	t.Parallel()
	svg := Picture{Title: "a <b>", Length: time.Minute, Panels: []Panel{
		{Title: "Row", Row: true, W: 24, H: 1},
		{Title: "Full", W: 12, H: 8, Y: 1, Unit: "s", Step: true, Lines: []Line{{"one", []float64{0, 1, 1, 1, math.NaN(), 2}}}},
		{Title: "Stack", W: 12, H: 8, X: 12, Y: 1, Stack: true, Lines: []Line{{"a", []float64{1, 1}}, {"b", []float64{2, 2}}}},
		{Title: "Empty", W: 24, H: 8, Y: 9},
	}}.SVG()
	require.Contains(t, svg, "a &lt;b&gt;")
	require.Contains(t, svg, ">2 s<", "the top of the axis")
	require.Contains(t, svg, ">3<", "one stands on the other")
	require.Contains(t, svg, "nothing in this run")
	require.Equal(t, 3, strings.Count(svg, "M44.0"), "each line begins at the axis")
}
