package source

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	newQueue = `# HELP llm_d_epp_flow_control_queue_size Current size.
# TYPE llm_d_epp_flow_control_queue_size gauge
llm_d_epp_flow_control_queue_size{fairness_id="a",inference_pool="p",model_name="llama",priority="0",target_model_name="llama"} 3
llm_d_epp_flow_control_queue_size{fairness_id="b",inference_pool="p",model_name="chat",priority="1",target_model_name="llama"} 2
llm_d_epp_flow_control_queue_size{fairness_id="a",inference_pool="p",model_name="other",priority="0",target_model_name="other"} 7
`
	oldQueue = `# TYPE inference_extension_flow_control_queue_size gauge
inference_extension_flow_control_queue_size{fairness_id="a",inference_pool="p",model_name="llama",priority="0",target_model_name="llama"} 5
`
	router = `# HELP vllm:num_incoming_requests_total Number of valid incoming requests
# TYPE vllm:num_incoming_requests_total counter
vllm:num_incoming_requests_total{model="llama"} 12.0
vllm:num_incoming_requests_total{model="other"} 40.0
process_start_time_seconds 1.76e+09
`
)

func TestNumbers(t *testing.T) {
	ask := question{ref: llama, model: "llama", query: "llama"}
	cases := map[string]struct {
		kind Type
		body string
		want float64
		word string // of the error, "" = none
	}{
		"EPPNewName":      {EPP, newQueue, 5, ""},
		"EPPOldName":      {EPP, oldQueue, 5, ""},
		"EPPNeverTheSum":  {EPP, newQueue + oldQueue, 5, ""},
		"EPPNoneQueued":   {EPP, "inference_extension_flow_control_pool_saturation{inference_pool=\"p\"} 0\n", 0, ""},
		"EPPOtherModel":   {EPP, `llm_d_epp_flow_control_queue_size{model_name="other"} 3` + "\n", 0, ""},
		"EPPGateOff":      {EPP, "llm_d_epp_ready_endpoints{name=\"p\"} 0\nprocess_start_time_seconds 1\n", 0, "no_series"},
		"EPPNaN":          {EPP, `llm_d_epp_flow_control_queue_size{model_name="llama"} NaN` + "\n", 0, "not_finite"},
		"EPPNegative":     {EPP, `llm_d_epp_flow_control_queue_size{model_name="llama"} -1` + "\n", 0, "not_finite"},
		"EPPHTML":         {EPP, "<html>sign in</html>", 0, "malformed"},
		"EPPEmpty":        {EPP, "", 0, "no_series"},
		"Router":          {Router, router, 12, ""},
		"RouterNoRequest": {Router, "# HELP vllm:num_incoming_requests_total n\n# TYPE vllm:num_incoming_requests_total counter\n", 0, ""},
		"RouterNotOne":    {Router, "vllm:num_requests_running{model_name=\"llama\"} 1\n", 0, "no_series"},
		"AddOn":           {HTTPAddon, `{"ai/llama":{"Concurrency":4,"RequestCount":9},"ai/x":{"Concurrency":1}}`, 4, ""},
		"AddOnIdle":       {HTTPAddon, `{"ai/llama":{"Concurrency":0,"RequestCount":0}}`, 0, ""},
		"AddOnNoRoute":    {HTTPAddon, `{"other/llama":{"Concurrency":4}}`, 0, "no_series"},
		"AddOnNoNumber":   {HTTPAddon, `{"ai/llama":{"RequestCount":4}}`, 0, "no_series"},
		"AddOnNull":       {HTTPAddon, `null`, 0, "malformed"},
		"AddOnNoJSON":     {HTTPAddon, `error getting queue size`, 0, "malformed"},
		"Vector":          {Prometheus, `{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1,"2.5"]}]}}`, 2.5, ""},
		"Scalar":          {Prometheus, `{"status":"success","data":{"resultType":"scalar","result":[1,"3"]}}`, 3, ""},
		"EmptyVector":     {Prometheus, `{"status":"success","data":{"resultType":"vector","result":[]}}`, 0, "empty"},
		"Several":         {Prometheus, `{"status":"success","data":{"resultType":"vector","result":[{"value":[1,"2"]},{"value":[1,"3"]}]}}`, 0, "several"},
		"NaN":             {Prometheus, `{"status":"success","data":{"resultType":"scalar","result":[1,"NaN"]}}`, 0, "not_finite"},
		"Inf":             {Prometheus, `{"status":"success","data":{"resultType":"scalar","result":[1,"+Inf"]}}`, 0, "not_finite"},
		"Matrix":          {Prometheus, `{"status":"success","data":{"resultType":"matrix","result":[]}}`, 0, "query"},
		"Refused":         {Prometheus, `{"status":"error","errorType":"bad_data","error":"parse error"}`, 0, "query"},
		"NoPair":          {Prometheus, `{"status":"success","data":{"resultType":"vector","result":[{"metric":{}}]}}`, 0, "malformed"},
		"NumberNotText":   {Prometheus, `{"status":"success","data":{"resultType":"scalar","result":[1,3]}}`, 0, "malformed"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p, err := decode(tc.kind, []byte(tc.body))
			var n float64
			if err == nil {
				n, _, err = p.number(ask)
			}
			require.Equal(t, tc.word, reasonOf(err), "%v", err)
			require.InDelta(t, tc.want, n, 0)
			if err != nil {
				require.ErrorIs(t, err, ErrUnknown)
			}
		})
	}
	p, err := decode(Router, []byte(router))
	require.NoError(t, err)
	_, process, err := p.number(ask)
	require.NoError(t, err)
	require.InDelta(t, 1.76e9, process, 0)
}

func reasonOf(err error) string {
	if err == nil {
		return ""
	}
	return reason(err)
}

// Whatever a source answers, the number is a count of requests or unknown.
func FuzzDecode(f *testing.F) {
	for _, body := range []string{newQueue, oldQueue, router, `{"ai/llama":{"Concurrency":1e400}}`, `{"status":"success","data":{"resultType":"scalar","result":[1,"1e999"]}}`} {
		for kind := range uint8(4) {
			f.Add(kind, []byte(body))
		}
	}
	types := []Type{EPP, Router, HTTPAddon, Prometheus}
	f.Fuzz(func(t *testing.T, kind uint8, body []byte) {
		p, err := decode(types[int(kind)%len(types)], body)
		if err == nil {
			var n float64
			if n, _, err = p.number(question{ref: llama, model: "llama", query: "llama"}); err == nil {
				if math.IsNaN(n) || math.IsInf(n, 0) || n < 0 {
					t.Fatalf("%v is no count", n)
				}
				return
			}
		}
		if reason(err) == "other" {
			t.Fatalf("an error without a word: %v", err)
		}
	})
}
