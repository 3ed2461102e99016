package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// DeletionCosts writes pods' deletion costs. Right needed: patch on pods.
type DeletionCosts struct{ Client kubernetes.Interface }

// SetDeletionCost sets the deletion cost of a pod, or removes it when cost is
// nil. Errors wrap workload.ErrForbidden and workload.ErrNotFound.
func (d DeletionCosts) SetDeletionCost(ctx context.Context, namespace, pod string, cost *int) error {
	var value any // null removes
	if cost != nil {
		value = strconv.Itoa(*cost)
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{CostAnnotation: value}}})
	if err != nil {
		return err
	}
	if _, err = d.Client.CoreV1().Pods(namespace).Patch(ctx, pod, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return classify(fmt.Errorf("setting the deletion cost of pod %s in %s: %w", pod, namespace, err))
	}
	return nil
}
