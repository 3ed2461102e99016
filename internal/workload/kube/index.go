package kube

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/client-go/tools/cache"
)

// byLabel is the index of a namespace's pods by each of their labels. Without it
// every look at a target would go through all pods of its namespace, so that the
// work would grow with the square of the models in it.
const byLabel = "label"

func labelKey(name, value string) string { return name + "=" + value }

// labelKeys are a pod's keys in the index.
func labelKeys(obj any) ([]string, error) {
	p, ok := obj.(*corev1.Pod)
	if !ok {
		return nil, nil
	}
	keys := make([]string, 0, len(p.Labels))
	for name, value := range p.Labels {
		keys = append(keys, labelKey(name, value))
	}
	return keys, nil
}

// few is how many pods are gone through without looking for a shorter way.
const few = 32

// selected returns the pods of a namespace's cache that sel selects, by way of
// the label of sel that the fewest of them have. A selector that asks for no
// label's value goes through all.
func selected(pods cache.Indexer, sel labels.Selector) ([]*corev1.Pod, error) {
	var candidates []any
	indexed := false
	requirements, _ := sel.Requirements() // none for one that selects nothing: its Matches knows
	for _, r := range requirements {
		value, ok := single(r)
		if !ok {
			continue
		}
		list, err := pods.ByIndex(byLabel, labelKey(r.Key(), value))
		if err != nil {
			return nil, err // there is no such index: a mistake of ours
		}
		if !indexed || len(list) < len(candidates) {
			candidates, indexed = list, true
		}
		if len(candidates) <= few {
			break
		}
	}
	if !indexed {
		candidates = pods.List()
	}
	var out []*corev1.Pod
	for _, obj := range candidates {
		if p, ok := obj.(*corev1.Pod); ok && sel.Matches(labels.Set(p.Labels)) {
			out = append(out, p)
		}
	}
	return out, nil
}

// single is the one value that a requirement asks a label for; false where it
// asks for something else.
func single(r labels.Requirement) (string, bool) {
	switch r.Operator() {
	case selection.Equals, selection.DoubleEquals, selection.In:
		if values := r.ValuesUnsorted(); len(values) == 1 {
			return values[0], true
		}
	}
	return "", false
}
