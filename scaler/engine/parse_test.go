package engine_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/scaler/engine"
)

// load is a minimal vLLM page.
const load = "vllm:num_requests_running{model_name=\"m\"} 3\nvllm:num_requests_waiting{model_name=\"m\"} 2\n"

// readingCase is a page and what it says.
type readingCase struct {
	kind   engine.Kind
	body   string
	want   engine.Reading
	reason string
}

func checkReadings(t *testing.T, tests map[string]readingCase) {
	t.Helper()
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := engine.Parse(tc.kind, []byte(tc.body), "")
			require.NoError(t, err, tc.reason)
			requireReading(t, tc.want, got)
		})
	}
}

func TestParseSumsAndChooses(t *testing.T) {
	checkReadings(t, map[string]readingCase{
		"SumOverEngines": {body: `
vllm:num_requests_running{engine="0"} 3
vllm:num_requests_running{engine="1"} 4
vllm:num_requests_waiting{engine="0"} 1
vllm:num_requests_waiting{engine="1"} 5
`, want: only(7, 6), reason: "each engine has its own queue"},
		"MaximumOverPid": {body: `
vllm:num_requests_running{engine="0",pid="7"} 3
vllm:num_requests_running{pid="8",engine="0"} 9
vllm:num_requests_running{engine="1",pid="7"} 1
vllm:num_requests_running{engine="1",pid="8"} 0
vllm:num_requests_waiting{engine="0",pid="7"} 2
vllm:num_requests_waiting{engine="0",pid="8"} 2
vllm:num_requests_waiting{engine="1",pid="8"} 4
`, want: only(9+1, 2+4), reason: "API servers repeat the engine's value"},
		"SameSeriesTwiceCountsOnce": {
			body: load + "vllm:num_requests_running{model_name=\"m\"} 3\n",
			want: only(3, 2), reason: "two lines with equal labels are one series",
		},
		"OpenMetrics": {body: `# HELP vllm:num_requests_running Requests.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0"} 3.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0"} 2.0
# TYPE vllm:prompt_tokens counter
# UNIT vllm:prompt_tokens tokens
vllm:prompt_tokens_total{engine="0"} 70.0 1520879607.789 # {trace_id="KOO5S4vxi0o"} 4 1520879607.78
vllm:prompt_tokens_created{engine="0"} 1520430000.123
# EOF
`, want: func() engine.Reading { r := only(3, 2); r.PromptTokens = 70; return r }()},
		"NamesAreExact": {body: load + `
vllm:num_requests_waiting_by_reason{model_name="m",reason="capacity"} 100
vllm:num_requests_running_created{model_name="m"} 1.7e9
vllm:num_requests 100
xvllm:num_requests_running{model_name="m"} 100
vllm:prompt_tokens_created{model_name="m"} 1.7e9
vllm:prompt_tokens_by_source_total{model_name="m",source="local"} 8
`, want: only(3, 2), reason: "prefixes and suffixes name other series"},
		"LatestStartTime": {
			body: load + "process_start_time_seconds{a=\"1\"} 1.7e9\nprocess_start_time_seconds{a=\"2\"} 1.8e+09\n",
			want: func() engine.Reading { r := only(3, 2); r.StartTime = 1.8e9; return r }(),
		},
		"OptionalCounterNotFinite": {body: load + `
vllm:prompt_tokens_total{model_name="m",engine="0"} 5
vllm:prompt_tokens_total{model_name="m",engine="1"} NaN
vllm:generation_tokens_total{model_name="m"} -1
vllm:request_success_total{model_name="m"} +Inf
process_start_time_seconds -5
`, want: only(3, 2), reason: "one unusable part makes the counter unknown, not the load"},
		"ManyEnginesOutgrowTheStack": {body: manyEngines(150), want: only(150, 150), reason: "300 series"},
	})
}

func TestParseKnowsTheEnginesHabits(t *testing.T) {
	checkReadings(t, map[string]readingCase{
		"SGLangRankZeroOfEveryDPRank": {kind: engine.SGLang, body: `
sglang:num_running_reqs{tp_rank="0",pp_rank="0",dp_rank="0"} 3
sglang:num_running_reqs{tp_rank="1",pp_rank="0",dp_rank="0"} 3
sglang:num_running_reqs{tp_rank="0",pp_rank="1",dp_rank="0"} 3
sglang:num_running_reqs{tp_rank="0",pp_rank="0",dp_rank="1"} 4
sglang:num_queue_reqs{tp_rank="0",pp_rank="0",dp_rank="0"} 1
sglang:num_queue_reqs{tp_rank="0",pp_rank="0",dp_rank="1"} 0
sglang:num_queue_reqs{tp_rank="1",pp_rank="0",dp_rank="1"} 0
`, want: only(7, 1), reason: "tensor- and pipeline-parallel ranks repeat the value"},
		"VLLMKnowsNoRanks": {body: `
vllm:num_requests_running{tp_rank="1"} 3
vllm:num_requests_waiting{tp_rank="1"} 2
`, want: only(3, 2), reason: "the rank rule is SGLang's"},
		"TGIAbsentGaugesAreZero": {
			kind: engine.TGI, body: "tgi_request_count 0\n", want: only(0, 0),
			reason: "registered on first use, and the page is otherwise TGI's",
		},
		"TGIOneGaugeAbsent": {kind: engine.TGI, body: "tgi_queue_size 4\n", want: only(0, 4)},
	})
}

func manyEngines(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "vllm:num_requests_running{engine=\"%d\"} 1\nvllm:num_requests_waiting{engine=\"%d\"} 1\n", i, i)
	}
	return b.String()
}

func TestParseAcceptsEveryWayToWriteALine(t *testing.T) {
	const waiting = "vllm:num_requests_waiting{model_name=\"m\"} 2\n"
	tests := map[string]struct{ line, reason string }{
		"Plain":              {line: `vllm:num_requests_running{model_name="m"} 3`},
		"OtherLabelOrder":    {line: `vllm:num_requests_running{z="1",model_name="m",a="2"} 3`},
		"TrailingComma":      {line: `vllm:num_requests_running{model_name="m",} 3`},
		"Spaces":             {line: " \tvllm:num_requests_running \t{ model_name = \"m\" , z=\"1\" }\t 3 \t"},
		"NoSpaceBeforeValue": {line: `vllm:num_requests_running{model_name="m"}3`},
		"Exponent":           {line: `vllm:num_requests_running{model_name="m"} 3.0e+000`},
		"TimestampInMillis":  {line: `vllm:num_requests_running{model_name="m"} 3 1395066363000`},
		"TimestampInSeconds": {line: `vllm:num_requests_running{model_name="m"} 3 1520879607.789`, reason: "OpenMetrics"},
		"Exemplar":           {line: `vllm:num_requests_running{model_name="m"} 3 # {trace_id="a}b"} 0.67 1520879607.789`},
		"TimestampExemplar":  {line: `vllm:num_requests_running{model_name="m"} 3 1.5 # {} 0.67`},
		"EscapedNeighbour":   {line: `vllm:num_requests_running{x="a\\b\"c}, \n",model_name="m"} 3`},
		"QuotedLabelName":    {line: `vllm:num_requests_running{"model_name"="m","a.b"="c"} 3`},
		"QuotedMetricName":   {line: `{"vllm:num_requests_running",model_name="m"} 3`, reason: "UTF-8 names"},
		"QuotedNameLast":     {line: `{model_name="m", "vllm:num_requests_running"} 3`},
		"CarriageReturn":     {line: "vllm:num_requests_running{model_name=\"m\"} 3\r"},
		"HelpAndTypeTwice": {line: "# HELP vllm:num_requests_running a\n# TYPE vllm:num_requests_running gauge\n" +
			"# HELP vllm:num_requests_running b\n# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{model_name=\"m\"} 3"},
		"OddCommentsAndBlankLines": {line: "#\n\n  \t\n#EOF\n# EOF here\nvllm:num_requests_running{model_name=\"m\"} 3"},
		"OtherSeriesUnread":        {line: "foo{bar} baz\nvllm:num_requests_running{model_name=\"m\"} 3", reason: "not ours, so not checked"},
		"OtherQuotedSeries":        {line: "{\"a b\",c=\"d\"} 1\nvllm:num_requests_running{model_name=\"m\"} 3"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			for _, body := range []string{
				tc.line + "\n" + waiting,
				waiting + tc.line,                // no final newline
				waiting + tc.line + "\n# EOF",    // OpenMetrics
				waiting + tc.line + "\n# EOF\n",  // OpenMetrics, as the specification has it
				waiting + tc.line + "\n# EOF \n", // a comment that only looks like it
			} {
				got, err := engine.Parse(engine.VLLM, []byte(body), "m")
				require.NoError(t, err, "%q", body)
				requireReading(t, only(3, 2), got)
			}
		})
	}
}

func TestParseReadsBigExponents(t *testing.T) {
	got, err := engine.Parse("", []byte(load+"vllm:prompt_tokens_total{model_name=\"m\"} 2.7e+010\n"), "m")
	require.NoError(t, err)
	require.Equal(t, 2.7e10, got.PromptTokens)
}

func TestUnknownPages(t *testing.T) {
	tests := map[string]struct {
		kind   engine.Kind
		body   string
		want   error
		reason string
	}{
		"Empty":                 {body: "", want: engine.ErrEmpty},
		"EmptyTGI":              {kind: engine.TGI, body: "", want: engine.ErrEmpty, reason: "lazy registration does not make an empty page healthy"},
		"WhiteSpace":            {body: "\n \t\r\n", want: engine.ErrEmpty},
		"CommentsOnly":          {body: "# HELP a b\n", want: engine.ErrNoSeries},
		"CommentsOnlyTGI":       {kind: engine.TGI, body: "# TYPE tgi_queue_size gauge\n", want: engine.ErrNoSeries},
		"StatisticsOff":         {body: "process_start_time_seconds 1.7e9\npython_info 1\n", want: engine.ErrNoSeries},
		"OneGaugeMissing":       {body: "vllm:num_requests_running 3\n", want: engine.ErrNoSeries, reason: "waiting is unknown, not 0"},
		"OnlyCounters":          {body: "vllm:prompt_tokens_total 3\n", want: engine.ErrNoSeries},
		"GaugeOfOneEngineOnly":  {body: "vllm:num_requests_running{engine=\"0\"} 3\nvllm:num_requests_running{engine=\"1\"} 3\nvllm:num_requests_waiting{engine=\"0\"} 1\n", want: engine.ErrNoSeries},
		"SGLangOtherRanksOnly":  {kind: engine.SGLang, body: "sglang:num_running_reqs{tp_rank=\"1\"} 1\nsglang:num_queue_reqs{tp_rank=\"1\"} 1\n", want: engine.ErrNoSeries},
		"NaNGauge":              {body: "vllm:num_requests_running NaN\nvllm:num_requests_waiting 1\n", want: engine.ErrNotFinite},
		"InfiniteGauge":         {body: "vllm:num_requests_running 1\nvllm:num_requests_waiting +Inf\n", want: engine.ErrNotFinite},
		"NegativeGauge":         {body: "vllm:num_requests_running -1\nvllm:num_requests_waiting 1\n", want: engine.ErrNotFinite},
		"AbsurdGauge":           {body: "vllm:num_requests_running 3\nvllm:num_requests_waiting 1e6\n", want: engine.ErrAbsurd},
		"NaNInOneOfTwoPids":     {body: "vllm:num_requests_running{pid=\"1\"} NaN\nvllm:num_requests_running{pid=\"2\"} 4\nvllm:num_requests_waiting 1\n", want: engine.ErrNotFinite},
		"SumOverflows":          {body: "vllm:num_requests_running{engine=\"0\"} 1e308\nvllm:num_requests_running{engine=\"1\"} 1e308\nvllm:num_requests_waiting{engine=\"0\"} 1\nvllm:num_requests_waiting{engine=\"1\"} 1\n", want: engine.ErrNotFinite},
		"HTML":                  {body: "<!doctype html>\n<html></html>\n", want: engine.ErrMalformed},
		"JSON":                  {body: `{"detail":"Not Found"}`, want: engine.ErrMalformed},
		"Binary":                {body: "\x1f\x8b\x08\x00", want: engine.ErrMalformed},
		"TextAfterEOF":          {body: load + "# EOF\n" + load, want: engine.ErrMalformed},
		"CutInAnUnrelatedLine":  {body: load + `vllm:e2e_request_latency_seconds_bucket{le="0.`, want: engine.ErrMalformed},
		"CutBeforeTheValue":     {body: load + `vllm:e2e_request_latency_seconds_sum{a="b"} `, want: engine.ErrMalformed},
		"CutInAComment":         {body: load + `# HELP vllm:e2e_request_lat`, want: engine.ErrMalformed},
		"CutInTheEOF":           {body: load + `# EO`, want: engine.ErrMalformed},
		"MoreEnginesThanBounds": {body: manyEngines(3000), want: engine.ErrMalformed},
		"OverTheCap":            {body: load + strings.Repeat("#\n", engine.DefaultMaxBody/2), want: engine.ErrTooLarge},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := engine.Parse(tc.kind, []byte(tc.body), "")
			require.ErrorIs(t, err, tc.want)
			require.ErrorIs(t, err, engine.ErrUnknown)
			requireReading(t, unknown(), got)
		})
	}
}

func TestBrokenLinesMakeThePageUnknown(t *testing.T) {
	tests := map[string]string{
		"NoName":               `{a="b"} 1`,
		"EmptyLabelSetNoName":  `{} 1`,
		"TwoNames":             `{"a","b"} 1`,
		"NoValue":              `vllm:num_requests_running{model_name="m"}`,
		"NotANumber":           `vllm:num_requests_running{model_name="m"} many`,
		"Hexadecimal":          `vllm:num_requests_running{model_name="m"} 0x1p4`,
		"Underscore":           `vllm:num_requests_running{model_name="m"} 1_000`,
		"OutOfRange":           `vllm:num_requests_running{model_name="m"} 1e999`,
		"TextAfterTimestamp":   `vllm:num_requests_running{model_name="m"} 1 2 3`,
		"BadTimestamp":         `vllm:num_requests_running{model_name="m"} 1 noon`,
		"BadExemplar":          `vllm:num_requests_running{model_name="m"} 1 # {a="b"`,
		"ExemplarWithoutValue": `vllm:num_requests_running{model_name="m"} 1 # {a="b"}`,
		"CommentAfterValue":    `vllm:num_requests_running{model_name="m"} 1 # why`,
		"OpenQuote":            `vllm:num_requests_running{model_name="m} 1`,
		"OpenBrace":            `vllm:num_requests_running{model_name="m" 1`,
		"OpenEscape":           `vllm:num_requests_running{model_name="m\`,
		"UnknownEscape":        `vllm:num_requests_running{model_name="\t"} 1`,
		"NoComma":              `vllm:num_requests_running{a="b" c="d"} 1`,
		"UnquotedValue":        `vllm:num_requests_running{a=b} 1`,
		"LabelWithoutValue":    `vllm:num_requests_running{a} 1`,
		"LabelStartsWithDigit": `vllm:num_requests_running{0a="b"} 1`,
		"ModelTwice":           `vllm:num_requests_running{model_name="m",model_name="m"} 1`,
	}
	for name, line := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := engine.Parse(engine.VLLM, []byte(load+line+"\n"), "")
			require.ErrorIs(t, err, engine.ErrMalformed)
			require.ErrorContains(t, err, "line 3:")
			requireReading(t, unknown(), got)
		})
	}
}

func TestUnknownKindIsNotReadAsVLLM(t *testing.T) {
	got, err := engine.Parse("triton", []byte(load), "")
	require.ErrorIs(t, err, engine.ErrUnknown)
	require.Equal(t, "other", engine.Reason(err))
	requireReading(t, unknown(), got)
}

func TestMalformedNamesTheLine(t *testing.T) {
	_, err := engine.Parse(engine.VLLM, []byte(load+"\n!\n"), "")
	require.ErrorContains(t, err, "line 4:")
	_, err = engine.Parse(engine.VLLM, []byte(load+"# EOF\n\nx 1\n"), "")
	require.ErrorContains(t, err, "line 4:")
}

func TestCapIsInclusive(t *testing.T) {
	body := load + strings.Repeat("#", engine.DefaultMaxBody-len(load)-1) + "\n"
	got, err := engine.Parse(engine.VLLM, []byte(body), "")
	require.NoError(t, err)
	requireReading(t, only(3, 2), got)
	_, err = engine.Parse(engine.VLLM, []byte(body+"\n"), "")
	require.ErrorIs(t, err, engine.ErrTooLarge)
}

func TestParseKind(t *testing.T) {
	for _, k := range []engine.Kind{engine.VLLM, engine.SGLang, engine.TGI} {
		got, err := engine.ParseKind(string(k))
		require.NoError(t, err)
		require.Equal(t, k, got)
	}
	for _, s := range []string{"", "VLLM", "triton"} {
		_, err := engine.ParseKind(s)
		require.ErrorContains(t, err, "vllm, sglang, tgi", "%q", s)
	}
}
