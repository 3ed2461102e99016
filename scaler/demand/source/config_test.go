package source

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/internal/trigger"
	"github.com/pilotlight-dev/pilotlight/internal/workload"
)

var llama = workload.Ref{Namespace: "ai", Name: "llama"}

// one parses a single entry given as the lines after its name.
func one(t *testing.T, lines string) Entry {
	t.Helper()
	entries, err := Parse([]byte("sources:\n- name: it\n  namespaces: [ai]\n  " + strings.ReplaceAll(lines, "\n", "\n  ")))
	require.NoError(t, err)
	return entries[0]
}

func TestParseFillsInDefaults(t *testing.T) {
	got := one(t, "type: epp\nurl: https://epp:9090/metrics\nbearerTokenFile: /token\ninterval: 500ms")
	want := Entry{
		Name: "it", Type: EPP, URL: "https://epp:9090/metrics", BearerTokenFile: "/token", Namespaces: []string{"ai"},
		Interval: Duration(5e8), Timeout: Duration(DefaultTimeout),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	require.Equal(t, SeesHeld, one(t, "type: prometheus\nurl: http://p\nquery: up").Counts)
}

func TestParseNamesEveryFault(t *testing.T) {
	cases := map[string]struct {
		file string
		says []string
	}{
		"Empty":      {"sources: []", []string{"1 to 100 entries"}},
		"UnknownKey": {"sources: [{name: a, kind: epp}]", []string{"kind"}},
		"ManyFaults": {
			"sources: [{name: A, type: nats, url: 'ftp://x', interval: 1h, timeout: 1ms}]",
			[]string{"sources[0].name", "sources[0].type", "sources[0].url", "sources[0].namespaces", "sources[0].interval", "sources[0].timeout"},
		},
		"Twice":      {"sources: [{name: a, type: epp, url: 'http://x', namespaces: ['*']}, {name: a, type: epp, url: 'http://x', namespaces: ['*']}]", []string{"sources[1].name", "twice"}},
		"BuiltIn":    {"sources: [{name: activator, type: epp, url: 'http://x', namespaces: ['*']}]", []string{"built in"}},
		"Password":   {"sources: [{name: a, type: epp, url: 'http://u:hunter2@x', namespaces: ['*']}]", []string{"bearerTokenFile"}},
		"QueryInURL": {"sources: [{name: a, type: epp, url: 'http://x?a=b', namespaces: ['*']}]", []string{"sources[0].url"}},
		"CAForHTTP":  {"sources: [{name: a, type: epp, url: 'http://x', caFile: /ca, namespaces: ['*']}]", []string{"sources[0].caFile"}},
		"NoQuery":    {"sources: [{name: a, type: prometheus, url: 'http://x', namespaces: ['*']}]", []string{"sources[0].query"}},
		"QueryOfEPP": {"sources: [{name: a, type: epp, url: 'http://x', query: up, namespaces: ['*']}]", []string{"prometheus only"}},
		"Counts":     {"sources: [{name: a, type: prometheus, url: 'http://x', query: up, counts: arrivals, namespaces: ['*']}]", []string{"sources[0].counts"}},
		"Duration":   {"sources: [{name: a, type: epp, url: 'http://x', interval: 5, namespaces: ['*']}]", []string{"duration"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := Parse([]byte(tc.file))
			require.ErrorIs(t, err, ErrConfig)
			for _, s := range tc.says {
				require.ErrorContains(t, err, s)
			}
			require.NotContains(t, err.Error(), "hunter2")
		})
	}
}

// What comes from a tenant stays a value: it can neither end a string nor
// match what is not its own.
func TestTemplates(t *testing.T) {
	bad := map[string]string{
		"Regex":        `q{model=~"{{modelName}}"}`,
		"PartOfString": `q{model="x-{{modelName}}"}`,
		"Bare":         `q{} * {{modelName}}`,
		"SingleQuotes": `q{model='{{modelName}}'}`,
		"Unknown":      `q{model="{{password}}"}`,
		"Function":     `q{model="{{modelName | lower}}"}`,
		"Unpaired":     `q{{model="x"}`,
		"TooLong":      strings.Repeat("x", maxQuery+1),
	}
	for name, query := range bad {
		t.Run(name, func(t *testing.T) { require.Error(t, checkTemplate(query)) })
	}
	template := `sum(q{namespace="{{namespace}}",so!="{{scaledObject}}",model="{{modelName}}"})`
	require.NoError(t, checkTemplate(template))
	got, err := fill(template, question{ref: llama, model: "meta-llama/Llama-3.1-8B:x@y"})
	require.NoError(t, err)
	require.Equal(t, `sum(q{namespace="ai",so!="llama",model="meta-llama/Llama-3.1-8B:x@y"})`, got)
	for _, model := range []string{`a"} or vector(1e9) #`, `a\`, "a b", "", "a\nb", "{{namespace}}", "ä"} {
		_, err := fill(template, question{ref: llama, model: model})
		require.ErrorContains(t, err, "modelName", model)
	}
}

func TestWhoMayAskWhat(t *testing.T) {
	entries, err := Parse([]byte(`sources:
- {name: epp, type: epp, url: "http://x", namespaces: [ai]}
- {name: addon, type: http-addon, url: "http://x", namespaces: ["*"]}
- {name: prom, type: prometheus, url: "http://x", namespaces: ["*"], query: 'q{model="{{modelName}}"}'}
- {name: open, type: prometheus, url: "http://x", namespaces: ["*"], allowDemandQuery: true}
`))
	require.NoError(t, err)
	set, err := New(entries, Options{})
	require.NoError(t, err)
	elsewhere := workload.Ref{Namespace: "other", Name: "llama"}
	cases := map[string]struct {
		ref     workload.Ref
		trigger trigger.Trigger
		key     string // "" = may
		says    string
	}{
		"EPP":             {ref: llama, trigger: trigger.Trigger{DemandFrom: "epp", ModelName: "m"}},
		"Namespace":       {elsewhere, trigger.Trigger{DemandFrom: "epp", ModelName: "m"}, "demandFrom", "namespace other"},
		"Unknown":         {llama, trigger.Trigger{DemandFrom: "nats"}, "demandFrom", "activator, none, addon, epp, open, prom"},
		"NoModel":         {llama, trigger.Trigger{DemandFrom: "epp"}, "modelName", "required"},
		"QueryOfEPP":      {llama, trigger.Trigger{DemandFrom: "epp", ModelName: "m", DemandQuery: "up"}, "demandQuery", "none"},
		"Route":           {ref: elsewhere, trigger: trigger.Trigger{DemandFrom: "addon"}},
		"ForeignRoute":    {elsewhere, trigger.Trigger{DemandFrom: "addon", DemandQuery: "../ai/llama"}, "demandQuery", "in this namespace"},
		"OwnQuery":        {ref: llama, trigger: trigger.Trigger{DemandFrom: "prom", ModelName: "m"}},
		"Injection":       {llama, trigger.Trigger{DemandFrom: "prom", ModelName: `m"} or up{x="`}, "demandQuery", "cannot be put"},
		"QueryNotAllowed": {llama, trigger.Trigger{DemandFrom: "prom", ModelName: "m", DemandQuery: "up"}, "demandQuery", "takes no other"},
		"QueryAllowed":    {ref: llama, trigger: trigger.Trigger{DemandFrom: "open", DemandQuery: "up"}},
		"QueryMissing":    {llama, trigger.Trigger{DemandFrom: "open"}, "demandQuery", "required"},
		"BadTemplate":     {llama, trigger.Trigger{DemandFrom: "open", DemandQuery: "{{x}}"}, "demandQuery", "not known"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			faults := set.Check(tc.ref, tc.trigger)
			if tc.key == "" {
				require.Empty(t, faults)
				return
			}
			require.Len(t, faults, 1)
			require.Equal(t, tc.key, faults[0].Key)
			require.Contains(t, faults[0].Problem, tc.says)
		})
	}
}
