package e2e

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// explain prints what shows why a scenario has failed: what there was at the end,
// and what everybody said last. The whole logs stay in build/e2e/logs.
func (s *scenario) explain() {
	ctx, cancel := s.now()
	defer cancel()
	wanted, ready := s.replicas()
	s.t.Logf("at the end: %d replicas wanted, %d ready; the scaler says %s; the ScaledObject is %v", wanted, ready, s.says(), s.conditions())
	if list, err := s.Client.AutoscalingV2().HorizontalPodAutoscalers(s.ns).List(ctx, metav1.ListOptions{}); err == nil {
		for _, h := range list.Items {
			s.t.Logf("HPA %s: %d now, %d desired", h.Name, h.Status.CurrentReplicas, h.Status.DesiredReplicas)
			for _, c := range h.Status.Conditions {
				s.t.Logf("  %s=%s %s: %s", c.Type, c.Status, c.Reason, c.Message)
			}
		}
	}
	if list, err := s.Client.CoreV1().Pods(s.ns).List(ctx, metav1.ListOptions{}); err == nil {
		for _, p := range list.Items {
			s.t.Logf("pod %s: %s, ready %v, ending %v", p.Name, p.Status.Phase, isReady(p), p.DeletionTimestamp != nil)
		}
	}
	s.t.Logf("events:\n%s", s.events())
	s.t.Logf("whole logs are in %s", s.kept)
	logs, _ := filepath.Glob(filepath.Join(s.logs(), "*.log")) // the pattern is good
	for _, name := range logs {
		s.t.Logf("%s:\n%s", filepath.Base(name), lastLines(name, "", 15))
	}
	for _, name := range []string{"keda-operator.log", "keda-adapter.log", "kube-controller-manager.log"} {
		s.t.Logf("%s, about this namespace:\n%s", name, lastLines(filepath.Join(s.kept, "plane", name), s.ns, 12))
	}
}

// lastLines are the last n lines of a file that contain a text, each cut to what
// fits a screen.
func lastLines(name, text string, n int) string {
	data, err := os.ReadFile(name) //nolint:gosec // a file of the run
	if err != nil {
		return err.Error()
	}
	const longest = 600
	var lines []string
	for line := range bytes.Lines(data) {
		if bytes.Contains(line, []byte(text)) {
			lines = append(lines, "  "+strings.TrimSpace(strings.ToValidUTF8(string(line[:min(len(line), longest)]), "?")))
		}
	}
	if len(lines) == 0 {
		return "  nothing"
	}
	if left := len(lines) - n; left > 0 {
		lines = append([]string{fmt.Sprintf("  (%d lines before)", left)}, lines[left:]...)
	}
	return strings.Join(lines, "\n")
}
