package engine_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/scaler/engine"
)

// page exports the load 1/1 for each model; names are given with their escapes.
func page(raw ...string) []byte {
	var b strings.Builder
	for _, name := range raw {
		fmt.Fprintf(&b, "vllm:num_requests_running{model_name=\"%s\"} 1\nvllm:num_requests_waiting{model_name=\"%s\"} 1\n", name, name)
	}
	return []byte(b.String())
}

func TestModelSelection(t *testing.T) {
	tests := map[string]struct {
		body   []byte
		model  string
		reason string
	}{
		"OneOfTwo":           {page("a", "b"), "b", "only the model asked for counts"},
		"OnlyOne":            {page("a"), "", "no name needed"},
		"Backslash":          {page(`a\\b`, "b"), `a\b`, "escapes compare by meaning"},
		"Quote":              {page(`say \"hi\"`, "b"), `say "hi"`, "escapes compare by meaning"},
		"Newline":            {page(`a\nb`, `a\\nb`), "a\nb", "a newline is not a backslash and an n"},
		"BackslashThenN":     {page(`a\nb`, `a\\nb`), `a\nb`, "and the other way round"},
		"NameIsNotPattern":   {page("a.b", "axb"), "a.b", ""},
		"LongerNameIsOther":  {page("abc", "ab"), "ab", ""},
		"CommaAndBraceInIt":  {page("a,b}", "b"), "a,b}", ""},
		"NoModelLabelAtAll":  {[]byte("vllm:num_requests_running 1\nvllm:num_requests_waiting 1\n"), "", "a missing label is the empty name"},
		"OnlyOneWithEscapes": {page(`a\"b`), "", ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := engine.Parse(engine.VLLM, tc.body, tc.model)
			require.NoError(t, err, tc.reason)
			requireReading(t, only(1, 1), got)
		})
	}
}

func TestModelErrors(t *testing.T) {
	many := make([]string, 40)
	for i := range many {
		many[i] = fmt.Sprintf("m%02d", len(many)-1-i)
	}
	tests := map[string]struct {
		body  []byte
		model string
		want  engine.ModelError
	}{
		"SeveralAndNoneNamed": {page("b", "a", "b"), "", engine.ModelError{Seen: []string{"a", "b"}}},
		"NotExported":         {page("b", `a\"x`), "c", engine.ModelError{Want: "c", Seen: []string{`a"x`, "b"}}},
		"NoModelLabel":        {[]byte("vllm:num_requests_running 1\nvllm:num_requests_waiting 1\n"), "c", engine.ModelError{Want: "c", Seen: []string{""}}},
		"ManyAreBounded": {page(many...), "c", engine.ModelError{Want: "c", Seen: []string{
			"m00", "m01", "m02", "m03", "m04", "m05", "m06", "m07", "m08", "m09", "m10", "m11", "m12", "m13", "m14", "m15",
		}}},
		"LongIsCut": {page(strings.Repeat("é", 100)), "c", engine.ModelError{Want: "c", Seen: []string{strings.Repeat("é", 64)}}},
		"CounterOfAnotherModel": {
			append(page("a"), "vllm:prompt_tokens_total{model_name=\"b\"} 1\n"...), "", engine.ModelError{Seen: []string{"a", "b"}},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := engine.Parse(engine.VLLM, tc.body, tc.model)
			require.ErrorIs(t, err, engine.ErrModel)
			require.ErrorIs(t, err, engine.ErrUnknown)
			var me *engine.ModelError
			require.ErrorAs(t, err, &me)
			require.Equal(t, tc.want, *me)
			require.ErrorContains(t, err, fmt.Sprintf("%q", tc.want.Seen[0]))
			requireReading(t, unknown(), got)
		})
	}
}

func TestTGIDoesNotNameItsModel(t *testing.T) {
	got, err := engine.Parse(engine.TGI, []byte("tgi_queue_size 1\ntgi_batch_current_size 2\n"), "anything")
	require.NoError(t, err)
	requireReading(t, only(2, 1), got)
}
