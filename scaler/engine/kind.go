package engine

import (
	"fmt"
	"strings"
)

// Kind names an inference engine. The zero value means VLLM.
type Kind string

// The engines whose metrics this package reads.
const (
	VLLM   Kind = "vllm"   // vLLM, V0 and V1
	SGLang Kind = "sglang" // SGLang started with --enable-metrics
	TGI    Kind = "tgi"    // Hugging Face text-generation-inference
)

// ParseKind accepts the exact, lower-case name of an engine. The error of any
// other text lists the known names.
func ParseKind(s string) (Kind, error) {
	known := []string{string(VLLM), string(SGLang), string(TGI)}
	for _, k := range known {
		if s == k {
			return Kind(k), nil
		}
	}
	return "", fmt.Errorf("unknown engine %q: known are %s", s, strings.Join(known, ", "))
}

// field is one number of a Reading.
type field uint8

const (
	running field = iota
	waiting
	promptTokens
	generationTokens
	finished
	inferenceSeconds
	inferenceCount
	queueSeconds
	queueCount
	startTime
	numFields
	unwanted = numFields
)

// prefix is what every series of the engine's own begins with.
func (k Kind) prefix() string {
	switch k {
	case SGLang:
		return "sglang:"
	case TGI:
		return "tgi_"
	default:
		return "vllm:"
	}
}

// owns says whether a series of that name is the engine's own.
func (k Kind) owns(name []byte) bool {
	p := k.prefix()
	return len(name) >= len(p) && string(name[:len(p)]) == p
}

// field says which number of a Reading the series of that exact name feeds.
func (k Kind) field(name []byte) field {
	if !k.owns(name) {
		if string(name) == "process_start_time_seconds" {
			return startTime
		}
		return unwanted
	}
	switch k {
	case SGLang:
		return sglangField(name)
	case TGI:
		return tgiField(name)
	default:
		return vllmField(name)
	}
}

// vllmField: names of V1; V0 (up to v0.8) used the same for these.
func vllmField(name []byte) field {
	switch string(name) {
	case "vllm:num_requests_running":
		return running
	case "vllm:num_requests_waiting":
		return waiting
	case "vllm:prompt_tokens_total":
		return promptTokens
	case "vllm:generation_tokens_total":
		return generationTokens
	case "vllm:request_success_total":
		return finished
	case "vllm:request_inference_time_seconds_sum":
		return inferenceSeconds
	case "vllm:request_inference_time_seconds_count":
		return inferenceCount
	case "vllm:request_queue_time_seconds_sum":
		return queueSeconds
	case "vllm:request_queue_time_seconds_count":
		return queueCount
	}
	return unwanted
}

// sglangField: num_requests_total counts requests when they finish. SGLang has
// no series for the time between queue and last token, so the inference time
// stays unknown.
func sglangField(name []byte) field {
	switch string(name) {
	case "sglang:num_running_reqs":
		return running
	case "sglang:num_queue_reqs":
		return waiting
	case "sglang:prompt_tokens_total":
		return promptTokens
	case "sglang:generation_tokens_total":
		return generationTokens
	case "sglang:num_requests_total":
		return finished
	case "sglang:queue_time_seconds_sum":
		return queueSeconds
	case "sglang:queue_time_seconds_count":
		return queueCount
	}
	return unwanted
}

// tgiField: TGI keeps tokens as histograms over requests; their sums are the
// counters. The running batch is the number of running requests.
func tgiField(name []byte) field {
	switch string(name) {
	case "tgi_batch_current_size":
		return running
	case "tgi_queue_size":
		return waiting
	case "tgi_request_input_length_sum":
		return promptTokens
	case "tgi_request_generated_tokens_sum":
		return generationTokens
	case "tgi_request_success":
		return finished
	case "tgi_request_inference_duration_sum":
		return inferenceSeconds
	case "tgi_request_inference_duration_count":
		return inferenceCount
	case "tgi_request_queue_duration_sum":
		return queueSeconds
	case "tgi_request_queue_duration_count":
		return queueCount
	}
	return unwanted
}
