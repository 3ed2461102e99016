package node

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// probe asks a running container by its probes until ctx ends: the startup probe
// first, and then the others.
func (c *container) probe(ctx context.Context) {
	if p := c.spec.StartupProbe; p != nil {
		if !c.judge(ctx, p, func(ok bool) bool {
			if ok {
				c.mark(true, c.spec.ReadinessProbe == nil)
			}
			return ok
		}) {
			return
		}
	}
	if p := c.spec.LivenessProbe; p != nil {
		go c.judge(ctx, p, func(bool) bool { return false })
	}
	if p := c.spec.ReadinessProbe; p != nil {
		c.judgeReadiness(ctx, p)
	}
}

func (c *container) mark(started, ready bool) {
	c.mu.Lock()
	changed := c.state.Running != nil && (c.started != started || c.ready != ready)
	if changed {
		c.started, c.ready = started, ready
	}
	c.mu.Unlock()
	if changed {
		c.pod.change()
	}
}

// judge asks until done says so (true) or ctx ends (false). After too many
// failures in a row the process is ended, as the kubelet does.
func (c *container) judge(ctx context.Context, p *corev1.Probe, done func(ok bool) bool) bool {
	failures := int32(0)
	for wait(ctx, p) {
		ok := c.ask(ctx, p)
		if ok {
			failures = 0
		} else {
			failures++
		}
		if done(ok) {
			return true
		}
		if failures >= orElse(p.FailureThreshold, 3) && ctx.Err() == nil {
			c.pod.log.Info("a probe has failed", "container", c.spec.Name, "failures", failures)
			c.mu.Lock()
			cmd := c.cmd
			c.mu.Unlock()
			_ = cmd.Process.Kill() // it may have ended
			return false
		}
	}
	return false
}

func (c *container) judgeReadiness(ctx context.Context, p *corev1.Probe) {
	failures := int32(0)
	for wait(ctx, p) {
		if c.ask(ctx, p) {
			failures = 0
			c.mark(true, true)
			continue
		}
		if failures++; failures >= orElse(p.FailureThreshold, 3) {
			c.mark(true, false)
		}
	}
}

// wait sleeps a period; false when ctx has ended.
func wait(ctx context.Context, p *corev1.Probe) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(time.Duration(orElse(p.PeriodSeconds, 10)) * time.Second):
		return true
	}
}

func orElse(v, def int32) int32 {
	if v > 0 {
		return v
	}
	return def
}

// ask does one HTTP probe; a container without one is well.
func (c *container) ask(ctx context.Context, p *corev1.Probe) bool {
	if p.HTTPGet == nil {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(orElse(p.TimeoutSeconds, 1))*time.Second)
	defer cancel()
	url := fmt.Sprintf("http://%s%s", net.JoinHostPort(c.pod.ip, strconv.Itoa(c.port(p.HTTPGet.Port))), p.HTTPGet.Path)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return false
	}
	_ = resp.Body.Close() // only its status is looked at
	return resp.StatusCode >= 200 && resp.StatusCode < 400
}

func (c *container) port(p intstr.IntOrString) int {
	if p.Type == intstr.Int {
		return p.IntValue()
	}
	for _, one := range c.spec.Ports {
		if one.Name == p.StrVal {
			return int(one.ContainerPort)
		}
	}
	return 0
}
