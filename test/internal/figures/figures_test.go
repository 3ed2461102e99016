package figures_test

import (
	"bytes"
	"math"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/test/internal/figures"
)

func TestGoals(t *testing.T) {
	cases := map[string]struct {
		value float64
		goal  figures.Goal
		want  string
	}{
		"Below":        {0.9, figures.Below(1), "< 1 ms: met"},
		"BelowIsNotAt": {1, figures.Below(1), "< 1 ms: MISSED"},
		"At":           {1, figures.AtMost(1), "<= 1 ms: met"},
		"AtZero":       {0, figures.AtMost(0), "<= 0 ms: met"},
		"Above":        {1.1, figures.AtMost(1), "<= 1 ms: MISSED"},
		"Negative":     {-0.1, figures.AtMost(1), "<= 1 ms: met"},
		"NotMeasured":  {math.NaN(), figures.AtMost(1), "<= 1 ms: MISSED"},
		"NoGoal":       {1, figures.Goal{}, "-"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, tc.want, figures.Figure{Value: tc.value, Goal: tc.goal, Unit: "ms"}.Met())
		})
	}
}

func TestFiguresArePrintedAndSavedAsAList(t *testing.T) {
	file := t.TempDir() + "/deep/bench.json"
	list := []figures.Figure{{Name: "edge_ms", Value: 1.5, Unit: "ms", Goal: figures.Below(100), Note: "x"}}
	require.NoError(t, figures.Save(file, list))
	content, err := os.ReadFile(file)
	require.NoError(t, err)
	require.JSONEq(t, `[{"name": "edge_ms", "value": 1.5, "unit": "ms"}]`, string(content))
	var out bytes.Buffer
	require.NoError(t, figures.Print(&out, list))
	require.Contains(t, out.String(), "edge_ms  1.5    ms    < 100 ms: met  x")
	require.NoError(t, figures.Save("", list), "no file, nothing to do")
	require.ErrorContains(t, figures.Save(file+"/below", list), "writing the figures")
}

func TestQuantile(t *testing.T) {
	all := make([]time.Duration, 200)
	for i := range all {
		all[i] = time.Duration(200 - i) // 200, 199, ... 1
	}
	require.Equal(t, time.Duration(198), figures.Quantile(all, 0.99), "198 of 200 do not pass it")
	require.Equal(t, time.Duration(100), figures.Quantile(all, 0.5))
	require.Equal(t, time.Duration(200), figures.Quantile(all, 1))
	require.Equal(t, time.Duration(200), all[0], "the measurements keep their order")
	require.InDelta(t, 3, figures.Quantile([]float64{3, 1, 2}, 0.99), 0)
	require.Zero(t, figures.Quantile([]float64{}, 0.5))
}
