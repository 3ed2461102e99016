package engine_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/scaler/engine"
)

// TestParseAgreesWithReference compares the two on pages written at random in
// the format, where the fuzzer's bytes seldom get: many series of ours with the
// labels that matter, near-misses of their names, and now and then a value that
// makes the page unknown.
func TestParseAgreesWithReference(t *testing.T) {
	g := generator{rand.New(rand.NewPCG(1, 2))} //nolint:gosec // repeatable on purpose
	kinds := []engine.Kind{engine.VLLM, engine.SGLang, engine.TGI}
	compared, read := 0, 0
	const rounds = 2000
	var page string
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("last page:\n%s", page)
		}
	})
	for range rounds {
		kind := kinds[g.IntN(3)]
		page = g.page(kind)
		c, r := compare(t, kind, []byte(page), g.pick("", "", "m", `n\"`))
		if c {
			compared++
		}
		if r {
			read++
		}
	}
	require.Equal(t, rounds, compared, "pages that Prometheus accepts")
	require.Greater(t, read, rounds/4, "pages with a Reading")
}

type generator struct{ *rand.Rand }

func (g generator) pick(of ...string) string { return of[g.IntN(len(of))] }

func (g generator) page(kind engine.Kind) string {
	prefix, names := refNames(kind)
	var b strings.Builder
	odd := g.IntN(4) == 0 // may hold values that make the page unknown
	spread := 1 + g.IntN(3)
	for range g.IntN(30) {
		name := prefix + names[g.IntN(len(names))]
		switch g.IntN(12) {
		case 0:
			name += g.pick("_by_reason", "_created", "x", "_total")
		case 1:
			name = "process_start_time_seconds"
		case 2:
			b.WriteString(g.pick("# HELP x y\n", "\n", " \t\n", "#\n"))
		}
		b.WriteString(g.line(name, odd, spread))
	}
	// Both gauges most of the time, or hardly any page would have a Reading.
	if g.IntN(5) > 0 {
		b.WriteString(prefix + names[0] + "{model_name=\"m\"} 1\n" + prefix + names[1] + "{model_name=\"m\"} 2\n")
	}
	return b.String()
}

func (g generator) line(name string, odd bool, spread int) string {
	values := []string{"0", "1", "2.5", "3e+01", "7.0 1395066363000", "+4"}
	if odd {
		values = append(values, "NaN", "+Inf", "-1", "1e308", "-0")
	}
	labels := []string{}
	if g.IntN(20) > 0 {
		labels = append(labels, `model_name="`+g.pick([]string{"m", "m", `n\\\"`, `n\n`}[:spread+1]...)+`"`)
	}
	if strings.HasSuffix(name, "num_requests_running") || strings.HasSuffix(name, "num_requests_waiting") {
		spread = 1 // the same engines for both, mostly
	}
	for _, l := range []string{"engine", "pid", "tp_rank", "pp_rank", "dp_rank", "finished_reason"} {
		if g.IntN(4) == 0 {
			labels = append(labels, fmt.Sprintf("%s=\"%d\"", l, g.IntN(spread)))
		}
	}
	g.Shuffle(len(labels), func(i, j int) { labels[i], labels[j] = labels[j], labels[i] })
	sep := g.pick(",", ", ", " ,\t")
	value := g.pick(values...) + "\n"
	switch g.IntN(4) {
	case 0:
		return g.pick("", " ") + "{" + strings.Join(append([]string{`"` + name + `"`}, labels...), sep) + g.pick("", ",") + "} " + value
	case 1:
		if len(labels) == 0 {
			return name + g.pick(" ", "\t", "{} ") + value
		}
	}
	return name + g.pick("", " ") + "{" + strings.Join(labels, sep) + "}" + g.pick("", " ") + value
}
