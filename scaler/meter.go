package scaler

import (
	"math"

	"github.com/pilotlight-dev/pilotlight/internal/workload"
	"github.com/pilotlight-dev/pilotlight/scaler/engine"
	"github.com/pilotlight-dev/pilotlight/scaler/policy"
)

// A meter counts a target's traffic from the counters of its engines, which
// begin at zero with every pod. Only what happens between two readings of the
// same engine counts, so that a pod that comes, goes or restarts adds nothing
// that it did elsewhere.
type meter struct {
	total policy.Traffic
	last  map[string]engine.Reading // by pod
}

// count adds what has happened since the last readings. Pods that are gone are
// forgotten.
func (m *meter) count(w workload.Workload, in policy.Sample, readings []engine.Reading) {
	last := make(map[string]engine.Reading, len(w.Pods))
	for i, p := range w.Pods {
		before, seen := m.last[p.Name]
		if !in.Pods[i].Load.Known {
			if seen {
				last[p.Name] = before
			}
			continue
		}
		now := readings[i]
		last[p.Name] = now
		m.total.Known = m.total.Known || !math.IsNaN(now.Finished)
		m.total.TokensKnown = m.total.TokensKnown || !math.IsNaN(now.PromptTokens+now.GenerationTokens)
		if seen && !restarted(before, now) {
			m.add(before, now)
		}
	}
	m.last = last
}

// restarted reports whether the counters of now began after those of before.
func restarted(before, now engine.Reading) bool {
	return now.StartTime > before.StartTime || now.Finished < before.Finished || now.GenerationTokens < before.GenerationTokens
}

// add counts the arrivals as what finished and what there is more of; requests
// that were aborted by their client finish nowhere, so the difference may be
// negative and is then none. A counter that an engine does not have is NaN and
// leaves what rests on it unknown.
func (m *meter) add(before, now engine.Reading) {
	finished := now.Finished - before.Finished
	if !math.IsNaN(finished) {
		m.total.Arrivals += max(finished+now.Running+now.Waiting-before.Running-before.Waiting, 0)
	}
	count := now.InferenceCount - before.InferenceCount
	seconds := now.InferenceSeconds - before.InferenceSeconds + now.QueueSeconds - before.QueueSeconds
	if count > 0 && seconds >= 0 {
		m.total.Completions += count
		m.total.ServiceSeconds += seconds
	}
	if tokens := now.PromptTokens - before.PromptTokens + now.GenerationTokens - before.GenerationTokens; !math.IsNaN(tokens) {
		m.total.Tokens += max(tokens, 0)
	}
}
