package timeline_test

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/test/e2e/timeline"
)

func burst() *timeline.Timeline {
	three, two, metric := 3, int32(2), 6.0
	active := &timeline.KEDA{Ready: "True", Active: "True", Fallback: "False", Paused: "Unknown"}
	return &timeline.Timeline{
		Name: "burst & <calm>", Ended: 2.5,
		Points: []timeline.Point{
			{Seconds: 0, Replicas: -1},
			{Seconds: 1, Wanted: &three, Reason: "load", Replicas: 2, HPA: &timeline.HPA{Desired: two, Current: 1, Metric: &metric}, KEDA: active, Load: 12, Waiting: 4},
			{Seconds: 1.5, Wanted: &three, Reason: "load", Replicas: 2, HPA: &timeline.HPA{Desired: two, Current: 1, Metric: &metric}, KEDA: active, Load: 8, Waiting: 2},
			{Seconds: 2, Ready: 2, Replicas: 3, Load: 4, KEDA: active},
		},
		Marks: []timeline.Mark{{Seconds: 1, Text: `12 "clients" & more`}},
		Moves: []timeline.Move{{Seconds: 0.4, From: 0, To: 1, By: timeline.ByKEDA}, {Seconds: 0.9, From: 1, To: 2, By: timeline.ByHPA}, {Seconds: 2.5, From: 3, To: 0, By: timeline.ByKEDA}},
		Trace: &timeline.Trace{Began: 0.5},
		Replay: &timeline.Replay{
			Moves: []timeline.Move{{Seconds: 1.1, To: 5}}, Says: "other steps: 0 & 1",
		},
	}
}

func wellFormed(t *testing.T, svg string) {
	t.Helper()
	for d := xml.NewDecoder(strings.NewReader(svg)); ; {
		_, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err, svg)
	}
	require.NotContains(t, svg, "NaN")
	require.NotContains(t, svg, "%!")
}

func TestThePictureIsWellFormed(t *testing.T) {
	line := burst()
	svg := line.SVG()
	wellFormed(t, svg)
	require.Contains(t, svg, "replay: other steps: 0 &amp; 1")
	require.Contains(t, svg, ">simulator<", "its line has a label")
	require.Contains(t, svg, ">5</text>", "and fits")
	require.EqualValues(t, 3, line.Most())

	dir := t.TempDir()
	require.NoError(t, line.Save(dir+"/"))
	all, err := timeline.Load(dir)
	require.NoError(t, err)
	require.Equal(t, []*timeline.Timeline{line}, all, "nothing is lost in the file")

	line.Replay, line.Apart = nil, "the scaler <is> killed"
	svg = line.SVG()
	wellFormed(t, svg)
	require.Contains(t, svg, "not replayed: the scaler &lt;is&gt; killed")
	require.NotContains(t, svg, "simulator")

	wellFormed(t, (&timeline.Timeline{}).SVG())
}

func TestChanges(t *testing.T) {
	require.Equal(t, []timeline.Change{
		{Seconds: 0, Wanted: "unknown", Ready: "0", Waiting: "0"},
		{Seconds: 1, Wanted: "3", Reason: "load", Replicas: "2", Ready: "0", Waiting: "4", KEDA: "ready, active", HPA: "1 of 2, metric 6", Patched: "KEDA 0 to 1, HPA 1 to 2"},
		{Seconds: 2, Wanted: "unknown", Replicas: "3", Ready: "2", Waiting: "0", KEDA: "ready, active"},
		{Seconds: 2.5, Wanted: "unknown", Replicas: "0", Ready: "2", Waiting: "0", KEDA: "ready, active", Patched: "KEDA 3 to 0"},
	}, burst().Changes(), "but not that the load is another at 1.5 s")
}
