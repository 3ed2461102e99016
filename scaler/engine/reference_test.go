package engine_test

import (
	"bytes"
	"math"
	"regexp"
	"slices"
	"strings"

	"github.com/prometheus/common/expfmt"
	promodel "github.com/prometheus/common/model"

	"github.com/pilotlight-dev/pilotlight/scaler/engine"
)

// This file is the slow, obvious reader that FuzzParse compares with Parse. The
// format is left to Prometheus's own text parser; only the choice and the
// adding up are written here, from the package's doc comment.

var (
	refComment = regexp.MustCompile(`(?m)^[ \t]*#[^\n]*\n`)
	refEOF     = regexp.MustCompile(`(?m)^[ \t]*# EOF\r?$`)
)

// refSample is one series, with its labels in the order sent.
type refSample struct {
	labels map[string]string
	value  float64
}

// refSamples reads the body with expfmt. Comments are removed first, because a
// TYPE would fold _sum and _count into a histogram whose count is an integer.
func refSamples(body []byte) (map[string][]refSample, error) {
	p := expfmt.NewTextParser(promodel.UTF8Validation)
	families, err := p.TextToMetricFamilies(bytes.NewReader(refComment.ReplaceAll(body, nil)))
	if err != nil {
		return nil, err
	}
	all := map[string][]refSample{}
	for name, family := range families {
		for _, m := range family.GetMetric() {
			s := refSample{labels: map[string]string{}, value: m.GetUntyped().GetValue()}
			for _, l := range m.GetLabel() {
				s.labels[l.GetName()] = l.GetValue()
			}
			all[name] = append(all[name], s)
		}
	}
	return all, nil
}

// refNames are the series behind the fields of a Reading, in its order.
func refNames(kind engine.Kind) (prefix string, names [9]string) {
	switch kind {
	case engine.SGLang:
		return "sglang:", [9]string{
			"num_running_reqs", "num_queue_reqs", "prompt_tokens_total", "generation_tokens_total", "num_requests_total",
			"", "", "queue_time_seconds_sum", "queue_time_seconds_count",
		}
	case engine.TGI:
		return "tgi_", [9]string{
			"batch_current_size", "queue_size", "request_input_length_sum", "request_generated_tokens_sum", "request_success",
			"request_inference_duration_sum", "request_inference_duration_count", "request_queue_duration_sum", "request_queue_duration_count",
		}
	default:
		return "vllm:", [9]string{
			"num_requests_running", "num_requests_waiting", "prompt_tokens_total", "generation_tokens_total", "request_success_total",
			"request_inference_time_seconds_sum", "request_inference_time_seconds_count", "request_queue_time_seconds_sum", "request_queue_time_seconds_count",
		}
	}
}

// refParse gives the Reading, or the sentinel that Parse's error must match.
func refParse(kind engine.Kind, body []byte, model string, all map[string][]refSample) (engine.Reading, error) {
	if len(strings.Trim(string(body), " \t\r\n")) == 0 {
		return engine.Reading{}, engine.ErrEmpty
	}
	if at := refEOF.FindIndex(body); at != nil && len(strings.Trim(string(body[at[1]:]), " \t\r\n")) > 0 {
		return engine.Reading{}, engine.ErrMalformed
	}
	prefix, names := refNames(kind)
	ours := false
	for name := range all {
		ours = ours || strings.HasPrefix(name, prefix)
	}
	if !ours {
		return engine.Reading{}, engine.ErrNoSeries
	}
	var groups [9][]float64
	models := map[string]bool{}
	for i, name := range names {
		if name == "" {
			continue
		}
		groups[i] = refGroups(kind, all[prefix+name], model, models)
	}
	if kind != engine.TGI && (model == "" && len(models) > 1 || model != "" && len(models) > 0 && !models[model]) {
		return engine.Reading{}, engine.ErrModel
	}
	if kind == engine.TGI {
		for i := range 2 {
			if groups[i] == nil {
				groups[i] = []float64{0}
			}
		}
	} else if len(groups[0]) != len(groups[1]) || len(groups[0]) == 0 {
		return engine.Reading{}, engine.ErrNoSeries
	}
	var sums [9]float64
	for i, g := range groups {
		sums[i] = refSum(g)
	}
	if math.IsNaN(sums[0]) || math.IsNaN(sums[1]) {
		return engine.Reading{}, engine.ErrNotFinite
	}
	if sums[0]+sums[1] > 4*65536 {
		return engine.Reading{}, engine.ErrAbsurd
	}
	return engine.Reading{
		Running: sums[0], Waiting: sums[1], PromptTokens: sums[2], GenerationTokens: sums[3], Finished: sums[4],
		InferenceSeconds: sums[5], InferenceCount: sums[6], QueueSeconds: sums[7], QueueCount: sums[8],
		StartTime: refStart(all["process_start_time_seconds"]),
	}, nil
}

// refGroups picks the series that count and folds those that differ only in
// pid into their maximum.
func refGroups(kind engine.Kind, samples []refSample, model string, models map[string]bool) []float64 {
	byLabels := map[string]float64{}
	var order []string
	for _, s := range samples {
		tp, hasTP := s.labels["tp_rank"]
		pp, hasPP := s.labels["pp_rank"]
		if kind == engine.SGLang && (hasTP && tp != "0" || hasPP && pp != "0") {
			continue
		}
		name := s.labels["model_name"]
		models[name] = true
		if kind != engine.TGI && model != "" && name != model {
			continue
		}
		key := refKey(s.labels)
		old, seen := byLabels[key]
		if !seen {
			order = append(order, key)
			old = 0
		}
		byLabels[key] = max(old, refUsable(s.value))
	}
	var folded []float64
	for _, key := range order {
		folded = append(folded, byLabels[key])
	}
	return folded
}

func refKey(labels map[string]string) string {
	var pairs []string
	for name, value := range labels {
		if name != "pid" {
			pairs = append(pairs, name+"\x00"+value+"\x00")
		}
	}
	slices.Sort(pairs)
	return strings.Join(pairs, "\x01")
}

func refUsable(v float64) float64 {
	if v < 0 || math.IsInf(v, 0) {
		return math.NaN()
	}
	return v
}

// refSum is NaN for nothing, for any NaN and for an infinite sum.
func refSum(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return refUsable(sum)
}

func refStart(samples []refSample) float64 {
	if len(samples) == 0 {
		return math.NaN()
	}
	latest := 0.0
	for _, s := range samples {
		latest = max(latest, refUsable(s.value))
	}
	return latest
}
