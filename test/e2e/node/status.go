package node

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// status is what the API is told.
func (p *pod) status() corev1.PodStatus {
	s := corev1.PodStatus{
		Phase: corev1.PodPending, HostIP: "127.0.0.1", PodIP: p.ip, PodIPs: []corev1.PodIP{{IP: p.ip}}, StartTime: &p.object.CreationTimestamp,
	}
	initialised, ready, started := true, true, false
	for _, c := range p.containers {
		one := c.status()
		switch {
		case c.init && !c.sidecar:
			initialised = initialised && one.State.Terminated != nil && one.State.Terminated.ExitCode == 0
			s.InitContainerStatuses = append(s.InitContainerStatuses, one)
		case c.sidecar:
			initialised = initialised && one.Started != nil && *one.Started
			ready = ready && one.Ready
			s.InitContainerStatuses = append(s.InitContainerStatuses, one)
		default:
			ready = ready && one.Ready
			started = started || one.State.Running != nil || one.RestartCount > 0
			s.ContainerStatuses = append(s.ContainerStatuses, one)
		}
	}
	if started {
		s.Phase = corev1.PodRunning
	}
	s.Conditions = []corev1.PodCondition{
		p.condition(corev1.PodScheduled, true), p.condition(corev1.PodInitialized, initialised),
		p.condition(corev1.ContainersReady, ready), p.condition(corev1.PodReady, ready),
	}
	return s
}

// condition remembers when a condition last changed.
func (p *pod) condition(kind corev1.PodConditionType, is bool) corev1.PodCondition {
	p.mu.Lock()
	defer p.mu.Unlock()
	status, key := corev1.ConditionFalse, kind+"=False"
	other := kind + "=True"
	if is {
		status, key, other = corev1.ConditionTrue, other, key
	}
	if _, known := p.conditions[key]; !known {
		p.conditions[key] = metav1.Now()
		delete(p.conditions, other)
	}
	return corev1.PodCondition{Type: kind, Status: status, LastTransitionTime: p.conditions[key]}
}
