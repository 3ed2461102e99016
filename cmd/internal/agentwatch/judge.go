package agentwatch

import (
	"fmt"

	"github.com/pilotlight-dev/pilotlight/fetcher/agent"
	"github.com/pilotlight-dev/pilotlight/internal/workload"
)

// Pod is one pod, or one address, and what its agent says.
type Pod struct {
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// Ref is the reference that the pod says it serves; "" if it does not say.
	Ref string `json:"ref,omitempty"`
	// Terminating: it is being deleted, or has ended.
	Terminating bool `json:"terminating,omitempty"`
	// Writer: it has no engine, it fills a volume that others share.
	Writer bool `json:"writer,omitempty"`
	// Failure says why it does not start, where the cluster shows it.
	Failure workload.Failure `json:"failure,omitempty"`
	// Status is the agent's answer; nil while it cannot be had, for the reason
	// in Unknown.
	Status  *agent.Status `json:"status,omitempty"`
	Unknown string        `json:"unknown,omitempty"`
}

// ID names the pod among the others.
func (p Pod) ID() string {
	if p.Namespace == "" {
		return p.Name
	}
	return p.Namespace + "/" + p.Name
}

// Counts reports whether the pod has to serve the version.
func (p Pod) Counts() bool { return !p.Terminating && !p.Writer }

// Silent reports whether the pod's agent should have answered, and did not.
func (p Pod) Silent() bool { return !p.Terminating && p.Status == nil && p.Unknown != notStarted }

// Serves reports whether the pod's engine is ready on exactly this digest.
func (p Pod) Serves(digest string) bool {
	return p.Status != nil && p.Status.Serving.State == agent.EngineReady && p.Status.Serving.Digest == digest && digest != ""
}

// State is where the pod is in one word: terminating, failing, unknown, writer,
// or the engine's state: ready, loading, unknown.
func (p Pod) State() string {
	switch {
	case p.Terminating:
		return "terminating"
	case p.Failure != workload.FailureNone:
		return "failing"
	case p.Status == nil:
		return "unknown"
	case p.Writer:
		return "writer"
	}
	return string(p.Status.Serving.State)
}

// Reason explains the state where it needs it; else it is empty.
func (p Pod) Reason() string {
	switch {
	case p.Terminating:
		return ""
	case p.Failure != workload.FailureNone:
		return string(p.Failure)
	case p.Status == nil:
		return p.Unknown
	}
	return ""
}

// Describe joins State and Reason for people.
func (p Pod) Describe() string {
	if r := p.Reason(); r != "" {
		return p.State() + ": " + r
	}
	return p.State()
}

// Verdict is what all pods together come to.
type Verdict struct {
	Ready int `json:"ready"` // pods that count and serve the digest
	Total int `json:"total"` // pods that count
}

// Done reports whether the version is served.
func (v Verdict) Done() bool { return v.Total > 0 && v.Ready == v.Total }

// String says how far it is: "2 of 3 pods ready".
func (v Verdict) String() string { return fmt.Sprintf("%d of %d pods ready", v.Ready, v.Total) }

// Judge applies the rule.
func Judge(pods []Pod, digest string) Verdict {
	var v Verdict
	for _, p := range pods {
		if !p.Counts() {
			continue
		}
		v.Total++
		if p.Serves(digest) {
			v.Ready++
		}
	}
	return v
}
