package trigger

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"
)

// A field is one key of the metadata: its default, how it is read, and what it
// means. The table is the single list of keys: parsing, the error for an
// unknown key and the reference page are made from it.
type field struct {
	key      string
	def      string
	required bool
	emptyOK  bool
	help     string
	set      func(*Trigger, string) error
}

var fields = []field{
	{
		key: "targetRequests", required: true, help: "running + waiting requests that one replica should carry",
		set: func(t *Trigger, v string) error {
			if err := positive(&t.TargetRequests, v); err != nil {
				return err
			}
			// KEDA passes targets and values on with three decimals; a finer
			// target would be divided by another number than it was made with.
			if thousandths := t.TargetRequests * 1000; math.Abs(thousandths-math.Round(thousandths)) > 1e-6*thousandths || thousandths < 1 {
				return fmt.Errorf("%q must not be finer than 0.001", v)
			}
			return nil
		},
	},
	{
		key: "modelName", emptyOK: true, help: "served model name (label model_name)",
		set: func(t *Trigger, v string) error { t.ModelName = v; return nil },
	},
	{
		key: "modelAliases", help: "further names the activator accepts, separated by commas",
		set: func(t *Trigger, v string) error { t.ModelAliases = list(v); return nil },
	},
	{key: "pathPrefix", help: "path prefix by which the activator routes here", set: func(t *Trigger, v string) error {
		t.PathPrefix = v
		return path(v, true)
	}},
	{
		key: "servingPort", def: "8000", help: "port of the inference API",
		set: func(t *Trigger, v string) error { return port(&t.ServingPort, v) },
	},
	{
		key: "servingScheme", def: "http", help: "http or https",
		set: func(t *Trigger, v string) error { return oneOf(&t.ServingScheme, v, "http", "https") },
	},
	{
		key: "engine", def: EngineVLLM, help: "vllm, sglang or tgi",
		set: func(t *Trigger, v string) error { return oneOf(&t.Engine, v, EngineVLLM, EngineSGLang, EngineTGI) },
	},
	{
		key: "metricsPort", def: "8000", help: "port of the engine's metrics",
		set: func(t *Trigger, v string) error { return port(&t.MetricsPort, v) },
	},
	{key: "metricsPath", def: "/metrics", help: "path of the engine's metrics", set: func(t *Trigger, v string) error {
		t.MetricsPath = v
		return path(v, false)
	}},
	{
		key: "metricsScheme", def: "http", help: "http or https",
		set: func(t *Trigger, v string) error { return oneOf(&t.MetricsScheme, v, "http", "https") },
	},
	{
		key: "podSelector", help: "label selector that overrides the scale target's own",
		set: func(t *Trigger, v string) error {
			t.PodSelector = v
			if _, err := labels.Parse(v); err != nil {
				return fmt.Errorf("%q is not a label selector, such as app=llama,tier in (gpu): %w", v, err)
			}
			return nil
		},
	},
	{
		key: "coldStart", def: "2m", help: "time to ready until enough starts were seen",
		set: func(t *Trigger, v string) error { return duration(&t.ColdStart, v, time.Second) },
	},
	{
		key: "startDeadline", def: "auto", help: "when a start has failed: a duration or auto",
		set: func(t *Trigger, v string) error { return autoDuration(&t.StartDeadline, v, time.Second) },
	},
	{
		key: "priority", def: "balanced", help: "economy, balanced or latency",
		set: func(t *Trigger, v string) error {
			var word string
			if err := oneOf(&word, v, "economy", "balanced", "latency"); err != nil {
				return err
			}
			t.WaitPrice = priorities[word]
			return nil
		},
	},
	{key: "gpuHourlyCost", help: "$ per GPU-hour", set: func(t *Trigger, v string) error {
		if v == "" {
			t.GPUPrice = math.NaN()
			return nil
		}
		return positive(&t.GPUPrice, v)
	}},
	{key: "waitCost", help: "$ per request-second of waiting", set: func(t *Trigger, v string) error {
		if v == "" {
			return nil
		}
		var check float64
		return positive(&check, v)
	}},
	{
		key: "keepAlive", def: "auto", help: "how long the last replica stays once idle: a duration or auto",
		set: func(t *Trigger, v string) error { return autoDuration(&t.KeepAlive, v, 0) },
	},
	{
		key: "scaleDownWindow", def: "auto", help: "fixed window before a scale-in: a duration or auto",
		set: func(t *Trigger, v string) error { return autoDuration(&t.ScaleDownWindow, v, 0) },
	},
	{key: "lookahead", def: "auto", help: "auto, off or a duration", set: func(t *Trigger, v string) error {
		if v == "off" {
			t.Lookahead = Off
			return nil
		}
		return autoDuration(&t.Lookahead, v, time.Second)
	}},
	{
		key: "drainWithin", def: "auto", help: "time to work off a backlog once capacity is there: a duration or auto",
		set: func(t *Trigger, v string) error { return autoDuration(&t.DrainWithin, v, time.Second) },
	},
	{
		key: "demandFrom", def: DemandActivator, help: "activator, none, or the name of a demand source",
		set: func(t *Trigger, v string) error {
			t.DemandFrom = v
			if strings.ContainsAny(v, "/:?@ ") {
				return fmt.Errorf("%q is not the name of a demand source; addresses are not taken from metadata", v)
			}
			return nil
		},
	},
	{
		key: "demandQuery", help: "what a demand source is asked: a query (prometheus) or a route (http-addon)",
		set: func(t *Trigger, v string) error { t.DemandQuery = v; return nil },
	},
	{
		key: "staleAfter", def: "60s", help: "how long the last known answer stands in for an unknown one",
		set: func(t *Trigger, v string) error { return duration(&t.StaleAfter, v, time.Second) },
	},
	{
		key: "mode", def: ModeEnforce, help: "enforce or shadow",
		set: func(t *Trigger, v string) error { return oneOf(&t.Mode, v, ModeEnforce, ModeShadow) },
	},
}

// Key describes one metadata key, for reference pages.
type Key struct {
	Name, Default, Help string
	Required            bool
}

// Keys lists every metadata key in the order of the reference.
func Keys() []Key {
	keys := make([]Key, len(fields))
	for i, f := range fields {
		keys[i] = Key{Name: f.key, Default: f.def, Help: f.help, Required: f.required}
	}
	return keys
}

func knownKeys() []string {
	keys := make([]string, len(fields))
	for i, f := range fields {
		keys[i] = f.key
	}
	return keys
}

// A reader gathers the values by key, and every fault.
type reader struct {
	values  map[string]string
	bad     map[string]bool // keys whose value is a fault already
	unknown []string
	faults  []Fault
}

func (r *reader) has(key string) bool { _, ok := r.values[key]; return ok }

func (r *reader) fault(key, problem string) { r.faults = append(r.faults, Fault{key, problem}) }

func (r *reader) take(key, value string, all map[string]string) {
	if slices.Contains(kedaKeys, key) {
		return
	}
	name := key
	if base, ok := strings.CutSuffix(key, fromEnv); ok {
		name = base
		if slices.Contains(kedaKeys, base) {
			return
		}
		if _, both := all[base]; both {
			r.fault(key, "is given together with "+base+": keep one")
			return
		}
	}
	known := knownKeys()
	if !slices.Contains(known, name) {
		r.unknown = append(r.unknown, short(key))
		return
	}
	value = strings.TrimSpace(value)
	if problem := text(name, value); problem != "" {
		r.fault(key, problem)
		r.bad[name] = true
	}
	r.values[name] = value
}

// prices settles g and c: money where it was given, else the ratio of the
// priority. c = ratio x g.
func (r *reader) prices(t *Trigger) {
	ratio := t.WaitPrice
	hourly := DefaultGPUHourlyCost
	if !math.IsNaN(t.GPUPrice) {
		hourly = t.GPUPrice
	}
	t.GPUPrice = hourly / 3600
	t.WaitPrice = ratio * t.GPUPrice
	if v := r.values["waitCost"]; v != "" {
		if r.has("priority") && r.values["priority"] != "" {
			r.fault("waitCost", "is given together with priority: keep one")
			return
		}
		if c, err := strconv.ParseFloat(v, 64); err == nil {
			t.WaitPrice = c
		}
	}
}

func positive(dst *float64, v string) error {
	f, err := strconv.ParseFloat(v, 64)
	if err != nil || math.IsNaN(f) || math.IsInf(f, 0) || f <= 0 || f > 1e9 {
		return fmt.Errorf("%q must be a number above 0 (at most 1e9)", v)
	}
	*dst = f
	return nil
}

func port(dst *int, v string) error {
	n, err := strconv.Atoi(v)
	if err != nil || n < 1 || n > 65535 {
		return fmt.Errorf("%q must be a port from 1 to 65535", v)
	}
	*dst = n
	return nil
}

func oneOf(dst *string, v string, allowed ...string) error {
	if !slices.Contains(allowed, v) {
		return fmt.Errorf("%q must be one of %s", v, strings.Join(allowed, ", "))
	}
	*dst = v
	return nil
}

// maxDuration bounds every duration: a week is longer than any sensible hold.
const maxDuration = 7 * 24 * time.Hour

func duration(dst *time.Duration, v string, least time.Duration) error {
	d, err := time.ParseDuration(v)
	if err != nil || d < least || d > maxDuration {
		return fmt.Errorf("%q must be a duration such as 90s or 5m, from %v to %v", v, least, maxDuration)
	}
	*dst = d
	return nil
}

func autoDuration(dst *time.Duration, v string, least time.Duration) error {
	if v == "auto" {
		*dst = Auto
		return nil
	}
	return duration(dst, v, least)
}

func list(v string) []string {
	var out []string
	for s := range strings.SplitSeq(v, ",") {
		if s = strings.TrimSpace(s); s != "" {
			out = append(out, s)
		}
	}
	return out
}
