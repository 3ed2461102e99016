package source

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
	"strings"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// A page is one answer, decoded once for every question about it.
type page interface {
	// number is the answer to q. For counters, process tells which of several
	// processes counted: when it started, in Unix seconds, 0 if it does not say.
	number(q question) (n, process float64, err error)
}

// decode reads an answer of a source of type t.
func decode(t Type, body []byte) (page, error) {
	switch t {
	case HTTPAddon:
		return decodeQueue(body)
	case Prometheus:
		return decodeResult(body)
	}
	families, err := metrics(body)
	switch {
	case err != nil:
		return nil, err
	case t == Router:
		return routerPage{families, bytes.Contains(body, []byte(" "+incomingRequests))}, nil
	}
	return eppPage(families), nil
}

// A series is one line of a metrics page.
type series struct {
	labels map[string]string
	value  float64
}

// metrics reads the families of a metrics page that any question is about.
func metrics(body []byte) (map[string][]series, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	all, err := parser.TextToMetricFamilies(bytes.NewReader(body))
	if err != nil {
		return nil, fail("malformed", "is no metrics page: %.200v", err)
	}
	out := map[string][]series{}
	for name, family := range all {
		if name != incomingRequests && name != processStart && !strings.Contains(name, flowControl) {
			continue
		}
		for _, m := range family.GetMetric() {
			one := series{labels: map[string]string{}, value: math.NaN()}
			for _, l := range m.GetLabel() {
				one.labels[l.GetName()] = l.GetValue()
			}
			switch {
			case m.GetGauge() != nil:
				one.value = m.GetGauge().GetValue()
			case m.GetCounter() != nil:
				one.value = m.GetCounter().GetValue()
			case m.GetUntyped() != nil:
				one.value = m.GetUntyped().GetValue()
			}
			out[name] = append(out[name], one)
		}
	}
	return out, nil
}

const (
	flowControl      = "_flow_control_"
	incomingRequests = "vllm:num_incoming_requests_total"
	processStart     = "process_start_time_seconds"
)

// usable refuses what is no count of requests.
func usable(n float64, what string) (float64, error) {
	if math.IsNaN(n) || math.IsInf(n, 0) || n < 0 {
		return 0, fail("not_finite", "%s reads %v", what, n)
	}
	return n, nil
}

// The queue gauge of the endpoint picker. It moved from the Gateway API
// inference extension to the llm-d router and is written under both names
// meanwhile: the newer one is taken where it has series, and never the sum.
var queueSizes = []string{"llm_d_epp_flow_control_queue_size", "inference_extension_flow_control_queue_size"}

type eppPage map[string][]series

// number adds the queues of one model up, over priorities, fairness ids and
// pools. A model without a series has no queue, provided that the page shows
// flow control to be at work at all.
func (p eppPage) number(q question) (float64, float64, error) {
	for _, name := range queueSizes {
		if len(p[name]) == 0 {
			continue
		}
		sum := 0.0
		for _, s := range p[name] {
			if s.labels["model_name"] == q.model || s.labels["target_model_name"] == q.model {
				sum += s.value
			}
		}
		n, err := usable(sum, name)
		return n, 0, err
	}
	if len(p) > 0 { // only flow control's families were kept, and the start time
		if _, start := p[processStart]; !start || len(p) > 1 {
			return 0, 0, nil
		}
	}
	return 0, 0, fail("no_series", "has no flow control series: is the flowControl gate on?")
}

type routerPage struct {
	families map[string][]series
	declared bool // the page names the counter, be it without a series
}

func (p routerPage) number(q question) (n, process float64, err error) {
	if start := p.families[processStart]; len(start) == 1 {
		process = start[0].value
	}
	if len(p.families[incomingRequests]) == 0 && !p.declared {
		return 0, 0, fail("no_series", "has no %s: is this the router's metrics page?", incomingRequests)
	}
	for _, s := range p.families[incomingRequests] {
		if s.labels["model"] == q.model {
			n += s.value
		}
	}
	n, err = usable(n, incomingRequests)
	return n, process, err
}

// A queuePage is the answer of an interceptor's /queue: by namespace/route.
type queuePage map[string]struct {
	Concurrency *float64
}

func decodeQueue(body []byte) (page, error) {
	var p queuePage
	if err := json.Unmarshal(body, &p); err != nil || p == nil {
		return nil, fail("malformed", "is no queue of the HTTP add-on")
	}
	return p, nil
}

// number refuses a route that the interceptor does not know: it lists every
// route it serves, idle ones too.
func (p queuePage) number(q question) (float64, float64, error) {
	key := q.ref.Namespace + "/" + q.query
	route, ok := p[key]
	if !ok || route.Concurrency == nil {
		return 0, 0, fail("no_series", "knows no route %s (demandQuery names it where it is not the ScaledObject's name)", key)
	}
	n, err := usable(*route.Concurrency, key)
	return n, 0, err
}

// A resultPage is the answer to one Prometheus query.
type resultPage struct{ value float64 }

func decodeResult(body []byte) (page, error) {
	var answer struct {
		Status    string `json:"status"`
		ErrorType string `json:"errorType"`
		Data      struct {
			Type   string          `json:"resultType"`
			Result json.RawMessage `json:"result"`
		} `json:"data"`
	}
	if json.Unmarshal(body, &answer) != nil {
		return nil, fail("malformed", "is no answer of a Prometheus server")
	}
	if answer.Status != "success" {
		return nil, fail("query", "refused the query: %.60q", answer.ErrorType)
	}
	var pair []any
	switch answer.Data.Type {
	case "scalar":
		_ = json.Unmarshal(answer.Data.Result, &pair) // an empty pair is refused below
	case "vector":
		var samples []struct {
			Value []any `json:"value"`
		}
		if json.Unmarshal(answer.Data.Result, &samples) != nil {
			return nil, fail("malformed", "answered a vector that is none")
		}
		switch len(samples) {
		case 0:
			return nil, fail("empty", "found nothing, which is not zero: end the query with \"or vector(0)\" if it is to be")
		case 1:
			pair = samples[0].Value
		default:
			return nil, fail("several", "found %d series: aggregate them in the query", len(samples))
		}
	default:
		return nil, fail("query", "answered a %.20q: the query must give an instant vector or a scalar", answer.Data.Type)
	}
	return readPair(pair)
}

// readPair reads [time, "value"].
func readPair(pair []any) (page, error) {
	if len(pair) != 2 {
		return nil, fail("malformed", "answered a sample that is none")
	}
	text, _ := pair[1].(string)
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return nil, fail("malformed", "answered %.40q where a number should be", text)
	}
	n, err = usable(n, "the query")
	if err != nil {
		return nil, err
	}
	return resultPage{n}, nil
}

func (p resultPage) number(question) (float64, float64, error) { return p.value, 0, nil }
