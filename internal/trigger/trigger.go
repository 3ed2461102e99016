// Package trigger reads the metadata of Pilotlight's trigger in a KEDA
// ScaledObject. Parsing is pure: a map of strings in, a Trigger or the list of
// every fault out, each fault naming its key. The scaler (which gets the map
// over gRPC) and the activator (which reads it from the ScaledObject) share it,
// so that both understand a ScaledObject in the same way.
package trigger

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Auto stands in a duration field for "computed by the policy".
const Auto = time.Duration(-1)

// Off stands in a duration field for "switched off".
const Off = time.Duration(0)

// Engines whose metrics the scaler reads.
const (
	EngineVLLM   = "vllm"
	EngineSGLang = "sglang"
	EngineTGI    = "tgi"
)

// Built-in demand sources; any other name is an entry of the scaler's
// demand-sources file.
const (
	DemandActivator = "activator"
	DemandNone      = "none"
)

// Modes.
const (
	ModeEnforce = "enforce" // the decision is served to KEDA
	ModeShadow  = "shadow"  // 0 and inactive are served, the decision is only published
)

// Trigger is the parsed metadata of one trigger. Durations may be Auto where
// the field says so.
type Trigger struct {
	TargetRequests float64 // running + waiting requests that one replica should carry, > 0

	ModelName     string   // served name, label model_name; "" = the only one exported
	ModelAliases  []string // further names under which the activator accepts requests
	PathPrefix    string   // path prefix by which the activator routes here, "" = none
	ServingPort   int      // port of the inference API, 1..65535
	ServingScheme string   // http or https

	Engine        string // vllm, sglang or tgi
	MetricsPort   int    // 1..65535
	MetricsPath   string // begins with /
	MetricsScheme string // http or https
	PodSelector   string // label selector that overrides the scale target's own, "" = the target's

	ColdStart       time.Duration // time to ready until enough starts were seen
	StartDeadline   time.Duration // Auto: 3 x P95, at least 10 minutes
	KeepAlive       time.Duration // how long the last replica stays once idle; Auto: priced hold
	ScaleDownWindow time.Duration // fixed window before a scale-in; Auto: priced hold
	Lookahead       time.Duration // Auto: P50/2; Off
	DrainWithin     time.Duration // time to work off a backlog; Auto
	StaleAfter      time.Duration // how long the last answer stands in for an unknown one

	WaitPrice float64 // c: $ per request-second of waiting, > 0
	GPUPrice  float64 // g: $ per GPU-second, > 0

	DemandFrom  string // DemandActivator, DemandNone, or the name of a demand source
	DemandQuery string // query of that source, "" = its own
	Mode        string // ModeEnforce or ModeShadow
}

// The prices behind the three words of `priority`: what a waiting
// request-second is worth against a GPU-second (c/g). Source: the policy
// study, in which 1.8 ($0.001 per request-second at $2 per GPU-hour) was the
// middle of three price levels a factor of ten apart.
var priorities = map[string]float64{"economy": 0.18, "balanced": 1.8, "latency": 18}

// DefaultGPUHourlyCost is the price of a GPU-hour, in $, assumed when only a
// priority is given. Only the ratio of the two prices steers the policy.
const DefaultGPUHourlyCost = 2.0

// kedaKeys are the keys that KEDA itself reads from trigger metadata and
// forwards to the scaler untouched.
var kedaKeys = []string{"scalerAddress", "enableTLS", "unsafeSsl", "caCert", "tlsClientCert", "tlsClientKey"}

// fromEnv is KEDA's suffix for a value taken from the target's environment.
const fromEnv = "FromEnv"

// Parse reads metadata. Its error is a *Faults with every fault found; the
// Trigger is then not usable. Keys that KEDA owns are ignored; a key with the
// suffix FromEnv stands for the key without it (KEDA has put the value in). Values
// are bounded: see MaxKeys, MaxValue, MaxName and MaxText.
func Parse(metadata map[string]string) (Trigger, error) {
	if len(metadata) > MaxKeys {
		return Trigger{}, &Faults{List: []Fault{{Key: "metadata", Problem: fmt.Sprintf("has %d keys: at most %d are taken", len(metadata), MaxKeys)}}}
	}
	r := reader{values: map[string]string{}, bad: map[string]bool{}}
	for _, key := range sortedKeys(metadata) {
		r.take(key, metadata[key], metadata)
	}
	for i, key := range r.unknown {
		problem := "is not a key of this trigger"
		if i == 0 {
			problem += "; known keys: " + strings.Join(knownKeys(), ", ")
		}
		r.fault(key, problem)
	}
	var t Trigger
	for _, f := range fields {
		if r.bad[f.key] {
			continue
		}
		value, given := r.values[f.key]
		if !given || (value == "" && !f.emptyOK) {
			if f.required {
				r.fault(f.key, "is required: "+f.help)
				continue
			}
			value = f.def
		}
		if err := f.set(&t, value); err != nil {
			r.fault(f.key, err.Error())
		}
	}
	r.prices(&t)
	if t.DemandFrom == DemandActivator && t.ModelName == "" && !r.bad["modelName"] {
		r.fault("modelName", "is required when demandFrom is activator: the activator routes by it")
	}
	if t.DemandQuery != "" && (t.DemandFrom == DemandActivator || t.DemandFrom == DemandNone) {
		r.fault("demandQuery", "goes with a demand source: demandFrom "+t.DemandFrom+" is asked nothing")
	}
	if len(r.faults) > 0 {
		return Trigger{}, &Faults{List: r.faults}
	}
	return t, nil
}

// Bounds is what the ScaledObject around the trigger says.
type Bounds struct {
	MinReplicas int
	SoleTrigger bool // no other trigger in the ScaledObject
}

// CheckBounds refuses what cannot work in the ScaledObject that holds t: a
// trigger that can scale to zero but sees no demand there, and a shadow that
// has nobody to decide in its place. Its error is a *Faults.
func (t Trigger) CheckBounds(b Bounds) error {
	r := reader{}
	if t.DemandFrom == DemandNone && b.MinReplicas == 0 {
		r.fault("demandFrom", "none cannot wake a target at zero: set minReplicaCount >= 1, or name a demand source")
	}
	if t.Mode == ModeShadow && b.SoleTrigger {
		r.fault("mode", "shadow needs another trigger in the ScaledObject that decides meanwhile")
	}
	if len(r.faults) > 0 {
		return &Faults{List: r.faults}
	}
	return nil
}

// Hash names a metadata map: the first 16 hex digits of the SHA-256 of its
// sorted keys and values. Two triggers of one ScaledObject differ only by it.
func Hash(metadata map[string]string) string {
	h := sha256.New()
	for _, key := range sortedKeys(metadata) {
		for _, s := range []string{key, metadata[key]} {
			h.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(s))))
			h.Write([]byte(s))
		}
	}
	return hex.EncodeToString(h.Sum(nil))[:16]
}

// Fault is one thing wrong with one key.
type Fault struct{ Key, Problem string }

// Faults is every fault of one metadata map, sorted by key.
type Faults struct{ List []Fault }

// Error names each key with its problem, on one line.
func (f *Faults) Error() string {
	parts := make([]string, len(f.List))
	for i, fault := range f.List {
		parts[i] = fault.Key + ": " + fault.Problem
	}
	return "trigger metadata: " + strings.Join(parts, "; ")
}

func sortedKeys(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
