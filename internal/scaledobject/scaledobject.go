// Package scaledobject reads a KEDA ScaledObject from YAML: what KEDA, the HPA
// and our trigger make of it, for those who foretell what it will do. Every
// error names file, line and key. Nothing is passed over in silence: a key that
// KEDA does not know is an error, so is a setting that would change the answer
// and that no model of ours obeys, and the rest is in Notes.
package scaledobject

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/pilotlight-dev/pilotlight/internal/trigger"
)

// ScaledObject is what scaling depends on. Intervals hold KEDA's defaults where
// the file has none.
type ScaledObject struct {
	Namespace, Name    string
	MinReplicas        int
	MaxReplicas        int
	PollingInterval    time.Duration
	CooldownPeriod     time.Duration
	InitialCooldown    time.Duration
	Push               bool // external-push
	Triggers           int
	Metadata           map[string]string
	Trigger            trigger.Trigger
	Notes              []string // what is there and passed over, each with its place
	ScaleUp, ScaleDown Behavior
}

// Behavior is one direction of the HPA's behavior. Unset is what the HPA's
// defaults apply to.
type Behavior struct {
	Stabilization *time.Duration
	Tolerance     *float64
	Disabled      bool
	Policies      []Policy
}

// Policy is one scaling policy.
type Policy struct {
	Percent bool // else pods
	Value   int
	Period  time.Duration
}

// ErrNoTrigger is returned for a file without a ScaledObject that has our
// trigger.
var ErrNoTrigger = errors.New("no ScaledObject with a Pilotlight trigger (type external or external-push, metadata.targetRequests)")

// Fault is one thing wrong at one place.
type Fault struct {
	File string
	Line int
	Err  error
}

func (f *Fault) Error() string { return fmt.Sprintf("%s:%d: %v", f.File, f.Line, f.Err) }
func (f *Fault) Unwrap() error { return f.Err }

// Parse returns the first ScaledObject in body that has our trigger. Other
// documents are passed over. What the scaler or KEDA would refuse is an error,
// and so is what nobody models and would change the answer.
func Parse(file string, body []byte) (ScaledObject, error) {
	dec := yaml.NewDecoder(bytes.NewReader(body))
	fault := error(&Fault{file, 1, ErrNoTrigger})
	for missed := false; ; {
		var doc yaml.Node
		err := dec.Decode(&doc)
		if errors.Is(err, io.EOF) {
			return ScaledObject{}, fault
		}
		if err != nil {
			return ScaledObject{}, fmt.Errorf("%s: %s", file, strings.TrimPrefix(err.Error(), "yaml: "))
		}
		root := node{file: file, at: &doc}
		if len(doc.Content) == 1 {
			root.at = doc.Content[0]
		}
		if root.field("kind").text() != "ScaledObject" {
			continue
		}
		own, nearly := ours(root)
		if own.at != nil {
			return read(root, own)
		}
		if nearly != nil && !missed {
			fault, missed = nearly, true
		}
	}
}

// ours is the first trigger with our key. Without one, an external trigger that
// lacks nothing but that key is an error of its own: it is most likely meant.
func ours(root node) (own node, nearly error) {
	for _, t := range root.field("spec").field("triggers").items() {
		kind := t.field("type").text()
		if kind != "external" && kind != "external-push" {
			continue
		}
		metadata := t.field("metadata")
		if metadata.field("targetRequests").at != nil {
			return t, nil
		}
		if metadata.at == nil {
			metadata = t
		}
		if nearly == nil {
			nearly = metadata.fault("trigger %s: metadata.targetRequests is missing", kind)
		}
	}
	return node{}, nearly
}

// read takes one ScaledObject of which own is our trigger.
func read(root, own node) (ScaledObject, error) {
	spec := root.field("spec")
	so := ScaledObject{
		Namespace: root.field("metadata").field("namespace").text(), Name: root.field("metadata").field("name").text(),
		MaxReplicas: 100, PollingInterval: 30 * time.Second, CooldownPeriod: 300 * time.Second,
		Push:     own.field("type").text() == "external-push",
		Triggers: len(spec.field("triggers").items()),
	}
	errs := append(unknown(spec), unmodelled(spec, own)...)
	number := func(key string, dst *int, least int) error {
		err := spec.field(key).number(key, dst, least, math.MaxInt32)
		errs = append(errs, err)
		return err
	}
	seconds := func(key string, dst *time.Duration, least int) {
		n := int(*dst / time.Second)
		_ = number(key, &n, least) // noted in errs
		*dst = time.Duration(n) * time.Second
	}
	bounds := number("minReplicaCount", &so.MinReplicas, 0) == nil
	bounds = number("maxReplicaCount", &so.MaxReplicas, 1) == nil && bounds
	seconds("pollingInterval", &so.PollingInterval, 1)
	seconds("cooldownPeriod", &so.CooldownPeriod, 0)
	seconds("initialCooldownPeriod", &so.InitialCooldown, 0)
	if bounds && so.MaxReplicas < so.MinReplicas {
		errs = append(errs, spec.field("maxReplicaCount").fault("maxReplicaCount %d is below minReplicaCount %d", so.MaxReplicas, so.MinReplicas))
	}
	errs = append(errs, so.readTrigger(own, bounds))
	behavior := spec.field("advanced").field("horizontalPodAutoscalerConfig").field("behavior")
	var err error
	so.ScaleUp, err = readBehavior(behavior.field("scaleUp"))
	errs = append(errs, err)
	so.ScaleDown, err = readBehavior(behavior.field("scaleDown"))
	so.Notes = notes(spec, own, so.Trigger)
	return so, errors.Join(append(errs, err)...)
}

// readTrigger gives each fault of the metadata the line of its key. Whether the
// trigger can work in this ScaledObject is asked once the replicas are known.
func (so *ScaledObject) readTrigger(own node, bounds bool) error {
	m := own.field("metadata")
	so.Metadata = map[string]string{}
	lines := map[string]int{}
	for i := 0; i+1 < len(m.at.Content); i += 2 {
		key, value := m.at.Content[i], resolve(m.at.Content[i+1])
		if value.Kind != yaml.ScalarNode || value.Tag != "!!str" {
			return &Fault{m.file, key.Line, fmt.Errorf("trigger metadata: %s: must be a string: put it in quotes", key.Value)}
		}
		so.Metadata[key.Value], lines[key.Value] = value.Value, key.Line
	}
	var err error
	if so.Trigger, err = trigger.Parse(so.Metadata); err == nil {
		err = unmodelledTrigger(so.Trigger)
	}
	if err == nil && bounds {
		err = so.Trigger.CheckBounds(trigger.Bounds{MinReplicas: so.MinReplicas, SoleTrigger: so.Triggers <= 1})
	}
	var faults *trigger.Faults
	if !errors.As(err, &faults) {
		return err
	}
	var errs []error
	for _, f := range faults.List {
		line, ok := lines[f.Key]
		if !ok {
			line = m.at.Line
		}
		errs = append(errs, &Fault{m.file, line, fmt.Errorf("trigger metadata: %s: %s", f.Key, f.Problem)})
	}
	return errors.Join(errs...)
}

// The HPA's own limits of its behavior, in seconds (autoscaling/v2).
const (
	maxStabilization = 3600
	maxPeriod        = 1800
)

func readBehavior(b node) (out Behavior, err error) {
	if b.at == nil {
		return out, nil
	}
	var errs []error
	switch p := b.field("selectPolicy"); p.text() {
	case "", "Max":
	case "Disabled":
		out.Disabled = true
	case "Min":
		errs = append(errs, p.fault("selectPolicy: Min is not simulated: use Max or Disabled"))
	default:
		errs = append(errs, p.fault("selectPolicy: %q must be Max, Min or Disabled", p.text()))
	}
	if s := b.field("stabilizationWindowSeconds"); s.at != nil {
		n := 0
		errs = append(errs, s.number("stabilizationWindowSeconds", &n, 0, maxStabilization))
		d := time.Duration(n) * time.Second
		out.Stabilization = &d
	}
	if s := b.field("tolerance"); s.at != nil {
		q, err := resource.ParseQuantity(s.at.Value)
		if err != nil || q.Sign() < 0 {
			errs = append(errs, s.fault("tolerance: %q must be a quantity such as 0 or 50m", s.at.Value))
		}
		v := q.AsApproximateFloat64()
		out.Tolerance = &v
	}
	for _, p := range b.field("policies").items() {
		policy, err := readPolicy(p)
		errs = append(errs, err)
		out.Policies = append(out.Policies, policy)
	}
	return out, errors.Join(errs...)
}

func readPolicy(p node) (Policy, error) {
	var policy Policy
	var errs []error
	switch kind := p.field("type").text(); kind {
	case "Percent", "Pods":
		policy.Percent = kind == "Percent"
	default:
		errs = append(errs, p.fault("policies: type %q must be Percent or Pods", kind))
	}
	period := 0
	number := func(key string, dst *int, most int) {
		n := p.field(key)
		if n.at == nil {
			errs = append(errs, p.fault("policies: %s is missing", key))
		}
		errs = append(errs, n.number(key, dst, 1, most))
	}
	number("value", &policy.Value, math.MaxInt32)
	number("periodSeconds", &period, maxPeriod)
	policy.Period = time.Duration(period) * time.Second
	return policy, errors.Join(errs...)
}
