package engine

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// Reading is what one page says. Gauges are requests, counters run since the
// engine started; NaN means the page does not say.
type Reading struct {
	Running float64 // requests being computed, summed over engines; finite, >= 0
	Waiting float64 // requests queued in the engine, summed over engines; finite, >= 0

	PromptTokens     float64 // prompt tokens processed (counter)
	GenerationTokens float64 // tokens generated (counter)
	Finished         float64 // requests finished, whatever the reason (counter)

	InferenceSeconds float64 // time of finished requests from schedule to last token, seconds (sum)
	InferenceCount   float64 // requests behind InferenceSeconds
	QueueSeconds     float64 // time of finished requests in the engine's queue, seconds (sum)
	QueueCount       float64 // requests behind QueueSeconds

	StartTime float64 // start of the engine's process, Unix seconds; the latest if several are exported
}

// MaxLoad is how many requests one page can account for: each has a connection,
// and a server has 65,536 file descriptors (the limit that vLLM raises itself to);
// four to a connection for prompts that come as a list. A page with more is
// broken, and believing it would order every replica there may be.
const MaxLoad = 4 * 65536

// unknownReading goes with every error, so that a caller who forgets the error
// computes with NaN and not with 0.
func unknownReading() Reading {
	n := math.NaN()
	return Reading{n, n, n, n, n, n, n, n, n, n}
}

// sample is one series of interest. Samples of one field with one key differ
// only in the label pid.
type sample struct {
	key   uint64  // hash of all labels but pid
	value float64 // NaN when the exported value was not finite or negative
	field field
}

// totals folds samples into one number per field (the maximum within a key, the
// sum over keys; NaN without samples or with an unusable one) and says how many
// keys each field had. It sorts samples in place.
func totals(samples []sample) (sum [numFields]float64, keys [numFields]int) {
	for f := range sum {
		sum[f] = math.NaN()
	}
	slices.SortFunc(samples, func(a, b sample) int {
		if c := cmp.Compare(a.field, b.field); c != 0 {
			return c
		}
		return cmp.Compare(a.key, b.key)
	})
	for i := 0; i < len(samples); {
		f, key, highest := samples[i].field, samples[i].key, samples[i].value
		for i++; i < len(samples) && samples[i].field == f && samples[i].key == key; i++ {
			highest = max(highest, samples[i].value) // NaN wins
		}
		keys[f]++
		switch {
		case keys[f] == 1:
			sum[f] = highest
		case f == startTime:
			sum[f] = max(sum[f], highest)
		default:
			sum[f] += highest
		}
	}
	for f := range sum {
		if math.IsInf(sum[f], 0) { // finite parts, infinite sum
			sum[f] = math.NaN()
		}
	}
	return sum, keys
}

// reading turns what the scan collected into the answer, or says why it is
// unknown.
func (s *scan) reading() (Reading, error) {
	own := s.kind.prefix()
	switch {
	case !s.ours && s.kind == TGI:
		return unknownReading(), fmt.Errorf("no %s series: no request was served yet, or another engine answers: %w", own, ErrNoSeries)
	case !s.ours:
		return unknownReading(), fmt.Errorf("no %s series: are statistics switched off (vLLM: --disable-log-stats, SGLang: no --enable-metrics), or does another engine answer? %w", own, ErrNoSeries)
	case s.several || s.otherModel && !s.matched:
		return unknownReading(), s.modelError()
	}
	sum, keys := totals(s.samples())
	if s.kind == TGI {
		for _, f := range [...]field{running, waiting} {
			if keys[f] == 0 {
				sum[f] = 0 // registered on first use
			}
		}
	} else if keys[running] != keys[waiting] || keys[running] == 0 {
		return unknownReading(), fmt.Errorf("requests running exported for %d engines, waiting for %d: %w", keys[running], keys[waiting], ErrNoSeries)
	}
	if math.IsNaN(sum[running]) || math.IsNaN(sum[waiting]) {
		return unknownReading(), fmt.Errorf("requests running or waiting: %w", ErrNotFinite)
	}
	if load := sum[running] + sum[waiting]; load > MaxLoad {
		return unknownReading(), fmt.Errorf("%.3g requests running or waiting: %w", load, ErrAbsurd)
	}
	return Reading{
		Running: sum[running], Waiting: sum[waiting],
		PromptTokens: sum[promptTokens], GenerationTokens: sum[generationTokens],
		Finished:         sum[finished],
		InferenceSeconds: sum[inferenceSeconds], InferenceCount: sum[inferenceCount],
		QueueSeconds: sum[queueSeconds], QueueCount: sum[queueCount],
		StartTime: sum[startTime],
	}, nil
}
