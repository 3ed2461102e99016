package scaler

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/internal/workload"
	"github.com/pilotlight-dev/pilotlight/scaler/engine"
	"github.com/pilotlight-dev/pilotlight/scaler/policy"
)

func TestMeter(t *testing.T) {
	m := meter{last: map[string]engine.Reading{}}
	look := func(known bool, r engine.Reading, pods ...string) policy.Traffic {
		var w workload.Workload
		var in policy.Sample
		var readings []engine.Reading
		for _, name := range pods {
			w.Pods = append(w.Pods, workload.Pod{Name: name})
			in.Pods = append(in.Pods, policy.Pod{Load: policy.Load{Known: known}})
			readings = append(readings, r)
		}
		m.count(w, in, readings)
		return m.total
	}
	first := engine.Reading{Running: 2, Finished: 100, InferenceSeconds: 650, InferenceCount: 100, QueueSeconds: 0, PromptTokens: 5, GenerationTokens: 10, StartTime: 1}
	require.Equal(t, policy.Traffic{Known: true, TokensKnown: true}, look(true, first, "a"), "what a pod did before we knew it is not traffic now")

	second := first
	second.Running, second.Waiting, second.Finished = 3, 1, 104
	second.InferenceSeconds, second.InferenceCount, second.QueueSeconds, second.GenerationTokens = 676, 104, 4, 60
	want := policy.Traffic{Known: true, Arrivals: 6, Completions: 4, ServiceSeconds: 30, TokensKnown: true, Tokens: 50}
	require.Equal(t, want, look(true, second, "a"), "4 finished and 2 more are inside")
	require.Equal(t, want, look(false, engine.Reading{}, "a"), "an unreadable look changes nothing")
	require.Equal(t, want, look(true, second, "a", "b"), "a pod that comes adds nothing that it did elsewhere")

	restart := engine.Reading{Running: 1, Finished: 1, GenerationTokens: 1, StartTime: 2}
	require.Equal(t, want, look(true, restart, "a"), "a restarted engine counts from where it is")
	third := restart
	third.Finished, third.Running = 3, 0
	want.Arrivals++
	require.Equal(t, want, look(true, third, "a"))

	aborted := third
	aborted.Running = 0
	require.Equal(t, want, look(true, aborted, "a"))
}

// An engine without a counter leaves the traffic unknown, not zero.
func TestMeterWithoutCounters(t *testing.T) {
	m := meter{last: map[string]engine.Reading{}}
	nan := math.NaN()
	bare := engine.Reading{Running: 1, PromptTokens: nan, GenerationTokens: nan, Finished: nan, InferenceSeconds: nan, InferenceCount: nan, QueueSeconds: nan, QueueCount: nan, StartTime: nan}
	w := workload.Workload{Pods: []workload.Pod{{Name: "a"}}}
	in := policy.Sample{Pods: []policy.Pod{{Load: policy.Load{Known: true}}}}
	m.count(w, in, []engine.Reading{bare})
	m.count(w, in, []engine.Reading{bare})
	require.Equal(t, policy.Traffic{}, m.total)
}
