package trigger

import (
	"errors"
	"maps"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
)

func TestParseDefaults(t *testing.T) {
	got, err := Parse(map[string]string{"targetRequests": "8", "modelName": "llama"})
	require.NoError(t, err)
	want := Trigger{
		TargetRequests: 8, ModelName: "llama",
		ServingPort: 8000, ServingScheme: "http",
		Engine: EngineVLLM, MetricsPort: 8000, MetricsPath: "/metrics", MetricsScheme: "http",
		ColdStart: 2 * time.Minute, StartDeadline: Auto, KeepAlive: Auto, ScaleDownWindow: Auto,
		Lookahead: Auto, DrainWithin: Auto, StaleAfter: time.Minute,
		WaitPrice: 1.8 * 2 / 3600, GPUPrice: 2.0 / 3600,
		DemandFrom: DemandActivator, Mode: ModeEnforce,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestParse(t *testing.T) {
	base := map[string]string{"targetRequests": "8", "modelName": "llama"}
	cases := map[string]struct {
		reason string
		add    map[string]string
		check  func(*testing.T, Trigger)
	}{
		"KEDAKeys": {
			reason: "KEDA forwards its own keys with ours",
			add:    map[string]string{"scalerAddress": "a:1", "enableTLS": "true", "unsafeSsl": "x", "caCertFromEnv": "y"},
			check:  func(t *testing.T, _ Trigger) { t.Helper() },
		},
		"FromEnv": {
			reason: "KEDA replaces the value and keeps the key",
			add:    map[string]string{"engineFromEnv": "sglang"},
			check:  func(t *testing.T, tr Trigger) { t.Helper(); require.Equal(t, "sglang", tr.Engine) },
		},
		"Durations": {
			reason: "a duration in place of auto; lookahead may be off",
			add:    map[string]string{"keepAlive": "0s", "lookahead": "off", "startDeadline": "15m"},
			check: func(t *testing.T, tr Trigger) {
				t.Helper()
				require.Equal(t, time.Duration(0), tr.KeepAlive)
				require.Equal(t, Off, tr.Lookahead)
				require.Equal(t, 15*time.Minute, tr.StartDeadline)
			},
		},
		"Money": {
			reason: "both prices in money: c as it stands, g per second",
			add:    map[string]string{"gpuHourlyCost": "7.2", "waitCost": "0.0001"},
			check: func(t *testing.T, tr Trigger) {
				t.Helper()
				require.InDelta(t, 0.002, tr.GPUPrice, 1e-12)
				require.InDelta(t, 0.0001, tr.WaitPrice, 1e-12)
			},
		},
		"Economy": {
			reason: "a word sets the ratio of the prices",
			add:    map[string]string{"priority": "economy"},
			check: func(t *testing.T, tr Trigger) {
				t.Helper()
				require.InDelta(t, 0.18, tr.WaitPrice/tr.GPUPrice, 1e-9)
			},
		},
		"Aliases": {
			reason: "commas separate, blanks do not count",
			add:    map[string]string{"modelAliases": " a, b ,,c"},
			check: func(t *testing.T, tr Trigger) {
				t.Helper()
				require.Equal(t, []string{"a", "b", "c"}, tr.ModelAliases)
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			m := maps.Clone(base)
			maps.Copy(m, tc.add)
			got, err := Parse(m)
			require.NoError(t, err, tc.reason)
			tc.check(t, got)
		})
	}
}

// Every fault is reported at once, each with the key that the user wrote.
func TestParseNamesEveryFault(t *testing.T) {
	cases := map[string]struct {
		in   map[string]string
		want []string
	}{
		"Empty": {map[string]string{}, []string{"targetRequests", "modelName"}},
		"Many": {
			map[string]string{
				"targetRequests": "-1", "modelName": "m", "engine": "ollama", "metricsPort": "99999",
				"metricsPath": "metrics", "keepAlive": "soon", "priority": "cheap", "mode": "dry", "demandFrom": "http://evil:9/x",
				"targetRequest": "5", "metricsScheme": "gopher", "coldStart": "auto", "staleAfter": "10000h",
			},
			[]string{
				"targetRequest", "targetRequests", "engine", "metricsPort", "metricsPath", "keepAlive", "priority",
				"mode", "demandFrom", "metricsScheme", "coldStart", "staleAfter",
			},
		},
		"PriceTwice":     {map[string]string{"targetRequests": "1", "modelName": "m", "priority": "latency", "waitCost": "1"}, []string{"waitCost"}},
		"BadPrices":      {map[string]string{"targetRequests": "1", "modelName": "m", "gpuHourlyCost": "0", "waitCost": "NaN"}, []string{"gpuHourlyCost", "waitCost"}},
		"EnvAndPlain":    {map[string]string{"targetRequests": "1", "modelName": "m", "modelNameFromEnv": "n"}, []string{"modelNameFromEnv"}},
		"TooFineTarget":  {map[string]string{"targetRequests": "0.0015", "modelName": "m"}, []string{"targetRequests"}},
		"InfiniteTarget": {map[string]string{"targetRequests": "+Inf", "modelName": "m"}, []string{"targetRequests"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := Parse(tc.in)
			var faults *Faults
			require.ErrorAs(t, err, &faults)
			var got []string
			for _, f := range faults.List {
				got = append(got, f.Key)
				require.Contains(t, err.Error(), f.Key+": ")
			}
			require.ElementsMatch(t, tc.want, got, err.Error())
			require.NotContains(t, err.Error(), "\n")
		})
	}
}

// What tenants write is bounded, and harmless in a log, a terminal and a path.
func TestParseBoundsWhatTenantsWrite(t *testing.T) {
	cases := map[string]struct {
		key, value string
		want       string // part of the fault; "" = taken
	}{
		"LongestName":     {"modelName", strings.Repeat("m", MaxName), ""},
		"TooLongName":     {"modelName", strings.Repeat("m", MaxName+1), "at most 512"},
		"HugeName":        {"modelName", strings.Repeat("m", 1<<20), "has 1048576 bytes"},
		"NewlineAround":   {"modelName", "llama\n", ""},
		"Newline":         {"modelName", "llama\nlevel=ERROR", "control character"},
		"Escape":          {"modelName", "llama\x1b[2J", "control character"},
		"Bidi":            {"modelAliases", "a,\u202eb", "control character"},
		"NotUTF8":         {"modelName", "llama\xff", "UTF-8"},
		"Umlaut":          {"modelName", "ëngine 7", ""},
		"HugeNumber":      {"metricsPort", strings.Repeat("9", 1<<20), "at most 256"},
		"ManyAliases":     {"modelAliases", strings.Repeat("a,", 1<<20), "at most 4096"},
		"QueryOfTwoLines": {"demandQuery", "sum(\n\twaiting)", ""},
		"Up":              {"pathPrefix", "/../v1", "without . and .. and empty segments"},
		"EncodedUp":       {"pathPrefix", "/a/%2E%2e/v1", "without . and .. and empty segments"},
		"EncodedSlash":    {"pathPrefix", "/a%2fb", "without . and .. and empty segments"},
		"Empty":           {"pathPrefix", "//host/v1", "without . and .. and empty segments"},
		"Backslash":       {"pathPrefix", "/a\\..\\b", "begins with /"},
		"Slash":           {"pathPrefix", "/llama/", ""},
		"MetricsUp":       {"metricsPath", "/../admin", "without . and .. and empty segments"},
		"Selector":        {"podSelector", "a in (", "label selector"},
		"GoodSelector":    {"podSelector", "app=llama,tier in (gpu,cpu)", ""},
		"UnknownKey":      {strings.Repeat("k", 1<<20), "1", "is not a key"},
		"KeyWithEscape":   {"k\x1b[2J", "1", "is not a key"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			m := map[string]string{"targetRequests": "1", "modelName": "m", "demandFrom": "vector"}
			m[tc.key] = tc.value
			_, err := Parse(m)
			if tc.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tc.want)
			require.ErrorContains(t, err, tc.key[:1])
			require.Less(t, len(err.Error()), 1000, "the message does not grow with the value")
			require.NotContains(t, err.Error(), "\x1b")
			require.NotContains(t, err.Error(), "\n")
		})
	}
	many := map[string]string{}
	for i := range MaxKeys + 1 {
		many[strings.Repeat("x", i+1)] = ""
	}
	_, err := Parse(many)
	require.ErrorContains(t, err, "65 keys: at most 64")
}

func TestUnknownKeyListsTheKnownOnes(t *testing.T) {
	_, err := Parse(map[string]string{"targetRequests": "1", "modelName": "m", "threshold": "5"})
	require.ErrorContains(t, err, "threshold")
	for _, k := range Keys() {
		require.ErrorContains(t, err, k.Name)
	}
}

func TestCheckBounds(t *testing.T) {
	none, err := Parse(map[string]string{"targetRequests": "1", "demandFrom": "none"})
	require.NoError(t, err)
	require.ErrorContains(t, none.CheckBounds(Bounds{MinReplicas: 0}), "demandFrom")
	require.NoError(t, none.CheckBounds(Bounds{MinReplicas: 1}))

	shadow, err := Parse(map[string]string{"targetRequests": "1", "modelName": "m", "mode": "shadow"})
	require.NoError(t, err)
	require.ErrorContains(t, shadow.CheckBounds(Bounds{SoleTrigger: true}), "mode")
	require.NoError(t, shadow.CheckBounds(Bounds{}))
}

func TestHash(t *testing.T) {
	a := Hash(map[string]string{"a": "1", "b": "2"})
	require.Len(t, a, 16)
	require.Equal(t, a, Hash(map[string]string{"b": "2", "a": "1"}))
	require.NotEqual(t, a, Hash(map[string]string{"a": "1b", "": "2"}), "boundaries between keys and values count")
	require.NotEqual(t, a, Hash(map[string]string{"a": "2", "b": "1"}))
}

// Whatever the map holds, Parse answers with a usable Trigger or with faults.
func FuzzParse(f *testing.F) {
	f.Add("targetRequests", "8", "modelName", "llama")
	f.Add("targetRequests", "1e-300", "keepAlive", "-5m")
	f.Fuzz(func(t *testing.T, k1, v1, k2, v2 string) {
		tr, err := Parse(map[string]string{k1: v1, k2: v2, "demandFrom": "none"})
		if err != nil {
			var faults *Faults
			if !errors.As(err, &faults) || len(faults.List) == 0 {
				t.Fatalf("error without faults: %v", err)
			}
			return
		}
		if !(tr.TargetRequests > 0) || math.IsInf(tr.TargetRequests, 0) || !(tr.WaitPrice > 0) || !(tr.GPUPrice > 0) {
			t.Fatalf("accepted an unusable trigger: %+v", tr)
		}
		if tr.StaleAfter <= 0 || tr.ColdStart <= 0 || tr.KeepAlive < Auto || strings.TrimSpace(tr.MetricsPath) == "" {
			t.Fatalf("accepted an unusable trigger: %+v", tr)
		}
	})
}
