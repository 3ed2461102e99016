package scaledobject

import (
	"fmt"

	"github.com/pilotlight-dev/pilotlight/internal/trigger"
)

// unknown lists the keys that KEDA 2.21 and the HPA (autoscaling/v2) do not
// have: a misspelt one would leave its default in force.
func unknown(spec node) []error {
	errs := spec.only("spec", "scaleTargetRef", "pollingInterval", "initialCooldownPeriod", "cooldownPeriod", "idleReplicaCount",
		"minReplicaCount", "maxReplicaCount", "advanced", "triggers", "fallback")
	advanced := spec.field("advanced")
	errs = append(errs, advanced.only("advanced", "horizontalPodAutoscalerConfig", "restoreToOriginalReplicaCount", "scalingModifiers")...)
	hpa := advanced.field("horizontalPodAutoscalerConfig")
	errs = append(errs, hpa.only("horizontalPodAutoscalerConfig", "behavior", "name")...)
	errs = append(errs, hpa.field("behavior").only("behavior", "scaleUp", "scaleDown")...)
	for _, direction := range []string{"scaleUp", "scaleDown"} {
		rules := hpa.field("behavior").field(direction)
		errs = append(errs, rules.only(direction, "stabilizationWindowSeconds", "selectPolicy", "policies", "tolerance")...)
		for _, p := range rules.field("policies").items() {
			errs = append(errs, p.only("policies", "type", "value", "periodSeconds")...)
		}
	}
	return errs
}

// unmodelled lists what KEDA knows, what would change the answer, and what our
// model of it does not obey.
func unmodelled(spec, own node) (errs []error) {
	if n := spec.field("idleReplicaCount"); n.at != nil {
		errs = append(errs, n.fault("idleReplicaCount: is not simulated, and the policy decides itself how many idle replicas stay: leave it out"))
	}
	if n := spec.field("fallback"); n.at != nil {
		errs = append(errs, n.fault("fallback: is not simulated, and an active fallback wakes a model at zero whenever the scaler cannot be reached: leave it out"))
	}
	if n := spec.field("advanced").field("scalingModifiers"); n.at != nil && len(n.at.Content) > 0 {
		errs = append(errs, n.fault("scalingModifiers: are not simulated: the formula would replace the scaler's answer"))
	}
	if n := own.field("metricType"); n.at != nil && n.text() != "AverageValue" {
		errs = append(errs, n.fault("metricType: %q is not simulated: the scaler's answer is made to be shared among replicas, use AverageValue", n.text()))
	}
	return errs
}

// unmodelledTrigger is the same for the metadata.
func unmodelledTrigger(t trigger.Trigger) error {
	var list []trigger.Fault
	if t.DemandFrom != trigger.DemandActivator && t.DemandFrom != trigger.DemandNone {
		list = append(list, trigger.Fault{Key: "demandFrom", Problem: fmt.Sprintf("%q is not simulated: a trace says nothing about other sources, use activator or none", t.DemandFrom)})
	}
	if t.TargetRequests < 1 {
		list = append(list, trigger.Fault{Key: "targetRequests", Problem: fmt.Sprintf("%g is not simulated: a replica carries at least one request at a time", t.TargetRequests)})
	}
	if len(list) == 0 {
		return nil
	}
	return &trigger.Faults{List: list}
}

// notes says what is passed over without being refused.
func notes(spec, own node, t trigger.Trigger) (out []string) {
	note := func(n node, format string, args ...any) {
		out = append(out, n.fault(format, args...).Error())
	}
	for _, other := range spec.field("triggers").items() {
		if other.at != own.at {
			note(other, "the trigger of type %s is not simulated", other.field("type").text())
		}
	}
	if n := own.field("useCachedMetrics"); n.text() == "true" {
		note(n, "useCachedMetrics is not simulated: the HPA reads fresh values")
	}
	metadata := own.field("metadata")
	if t.Mode == trigger.ModeShadow {
		note(metadata.field("mode"), "mode shadow is simulated as enforce")
	}
	if t.DemandFrom == trigger.DemandNone {
		note(metadata.field("demandFrom"), "demandFrom none is simulated as activator: requests are held and counted")
	}
	return out
}
