package deploy

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// workloadOf finds what a ScaledObject scales.
func workloadOf(t *testing.T, docs []Document, scaled Document) unstructured.Unstructured {
	t.Helper()
	ref, _, err := unstructured.NestedStringMap(scaled.Object.Object, "spec", "scaleTargetRef")
	require.NoError(t, err)
	for _, d := range docs {
		if d.Object.GetKind() == ref["kind"] && d.Object.GetName() == ref["name"] && d.Object.GetAPIVersion() == ref["apiVersion"] {
			return d.Object
		}
	}
	t.Fatalf("%s scales %v, which is not there", scaled, ref)
	return unstructured.Unstructured{}
}

// podTemplates finds the pod templates of an object.
func podTemplates(obj map[string]any) []map[string]any {
	var found []map[string]any
	if obj["kind"] == "NodePool" { // whose template is one of nodes
		return nil
	}
	for _, path := range [][]string{
		{"spec", "template"},
		{"spec", "leaderWorkerTemplate", "leaderTemplate"},
		{"spec", "leaderWorkerTemplate", "workerTemplate"},
		{"spec", "jobTargetRef", "template"},
		{"spec", "jobTemplate", "spec", "template"},
	} {
		if template, ok, _ := unstructured.NestedMap(obj, path...); ok {
			found = append(found, template)
		}
	}
	jobs, _, _ := unstructured.NestedSlice(obj, "spec", "replicatedJobs")
	for _, job := range jobs {
		if template, ok, _ := unstructured.NestedMap(job.(map[string]any), "template", "spec", "template"); ok {
			found = append(found, template)
		}
	}
	return found
}

// podProblems says what no pod of ours may be like: containers without a
// memory request and limit (a quota would reject them), with rights of root
// that they do not need, or with an API token that they do not use.
func podProblems(d Document) []string {
	var problems []string
	for _, template := range podTemplates(d.Object.Object) {
		spec, _, _ := unstructured.NestedMap(template, "spec")
		if spec["enableServiceLinks"] != false {
			problems = append(problems, "enableServiceLinks is not false")
		}
		for _, list := range []string{"initContainers", "containers"} {
			containers, _, _ := unstructured.NestedSlice(spec, list)
			for _, one := range containers {
				problems = append(problems, containerProblems(one.(map[string]any))...)
			}
		}
	}
	return problems
}

func containerProblems(c map[string]any) []string {
	var problems []string
	fault := func(text string) { problems = append(problems, fmt.Sprint(c["name"], ": ", text)) }
	for _, path := range [][]string{{"resources", "requests", "cpu"}, {"resources", "requests", "memory"}, {"resources", "limits", "memory"}} {
		if _, ok, _ := unstructured.NestedFieldNoCopy(c, path...); !ok {
			fault(fmt.Sprint("no ", path))
		}
	}
	if escalation, _, _ := unstructured.NestedBool(c, "securityContext", "allowPrivilegeEscalation"); escalation {
		fault("may escalate")
	}
	if drop, _, _ := unstructured.NestedStringSlice(c, "securityContext", "capabilities", "drop"); len(drop) != 1 || drop[0] != "ALL" {
		fault("keeps capabilities")
	}
	return problems
}
