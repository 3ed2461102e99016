package pointercmd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/pilotlight-dev/pilotlight/cmd/internal/agentwatch"
	"github.com/pilotlight-dev/pilotlight/cmd/internal/cli"
	"github.com/pilotlight-dev/pilotlight/cmd/internal/rollout"
	"github.com/pilotlight-dev/pilotlight/fetcher/agent"
	"github.com/pilotlight-dev/pilotlight/registry"
)

// engines is what is known about what serves a pointer.
type engines struct {
	source    agentwatch.Source // nil when nobody is watched
	cluster   *Cluster          // nil when agents are given by address
	workloads []rollout.Workload
	restart   bool
}

// toRestart returns the workloads whose pods a restart on this version changes.
func (e engines) toRestart(pin string) []rollout.Workload {
	if !e.restart {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(e.workloads), func(w rollout.Workload) bool { return w.Writer || w.Pinned == pin })
}

// engines looks at what serves the pointer, and refuses a --restart that finds
// nothing and a --wait that could not end well. Without either it is a glance,
// for the notes.
func (a *app) engines(ctx context.Context, ref registry.Ref, target proven, doc *moveDoc) (engines, error) {
	e := engines{restart: a.restart}
	if !a.restart && !a.wait {
		a.glanceWorkloads(ctx, ref, target, doc)
		return e, nil
	}
	var err error
	if e.source, e.cluster, err = a.source(ref); err != nil {
		return engines{}, err
	}
	if a.restart && e.cluster == nil { // --agents says whom to ask, not what to restart
		if e.cluster, err = a.Cluster(a.cluster); err != nil {
			return engines{}, err
		}
	}
	if e.cluster != nil {
		var notes []string
		if e.workloads, notes, err = rollout.Find(ctx, e.cluster.Dynamic, a.cluster.Namespace, ref); err != nil {
			return engines{}, cli.Usage("looking for what runs %s: %w", ref, err)
		}
		doc.Notes = append(doc.Notes, notes...)
	}
	if a.restart && !slices.ContainsFunc(e.workloads, func(w rollout.Workload) bool { return !w.Writer }) {
		return engines{}, cli.Usage("--restart: no pod template of a Deployment, StatefulSet or LeaderWorkerSet has the annotation %s: %s%s", agentwatch.RefAnnotation, ref, in(a.cluster.Namespace))
	}
	for _, w := range e.workloads {
		if w.Paused != "" {
			doc.Notes = append(doc.Notes, fmt.Sprintf("the ScaledObject of %s is paused by somebody: %s; it was left so", w.ID(), w.Paused))
		}
		if a.restart && w.OnDelete {
			doc.Notes = append(doc.Notes, w.ID()+" replaces a pod only when it is deleted (updateStrategy OnDelete)")
		}
	}
	if a.wait && !a.restart {
		return e, a.somethingRestarts(ctx, ref, e, target)
	}
	return e, nil
}

func in(namespace string) string {
	if namespace == "" {
		return ""
	}
	return " in the namespace " + namespace
}

// glanceWorkloads warns that a move does not reach pods that a rollout pinned.
func (a *app) glanceWorkloads(ctx context.Context, ref registry.Ref, target proven, doc *moveDoc) {
	if len(a.agents) > 0 {
		return
	}
	cluster, err := a.Cluster(a.cluster)
	if err != nil {
		return // nobody asked for it
	}
	ctx, cancel := context.WithTimeout(ctx, glanceTimeout)
	defer cancel()
	found, _, err := rollout.Find(ctx, cluster.Dynamic, a.cluster.Namespace, ref)
	if err != nil {
		return // as above
	}
	for _, w := range found {
		if w.Pinned != "" && w.Pinned != target.pin(ref) {
			doc.Notes = append(doc.Notes, pinnedText(w))
		}
	}
}

func pinnedText(w rollout.Workload) string {
	return fmt.Sprintf("the pods of %s are pinned to %s by %s in its template: the pointer does not reach them without --restart", w.ID(), w.Pinned, rollout.VersionAnnotation)
}

// somethingRestarts refuses to wait for engines that nothing restarts.
func (a *app) somethingRestarts(ctx context.Context, ref registry.Ref, e engines, target proven) error {
	for _, w := range e.workloads {
		if !w.Writer && w.Pinned != "" && w.Pinned != target.pin(ref) {
			return cli.Usage("--wait: %s", pinnedText(w))
		}
	}
	pods, err := e.source.Pods(ctx)
	if err != nil {
		return cli.Usage("--wait: the agents cannot be asked: %w", err)
	}
	var idle []string
	for _, p := range pods {
		if p.Counts() && p.Status != nil && p.Status.OnChange == agent.None && !p.Serves(target.digest) {
			idle = append(idle, p.ID())
		}
	}
	if len(idle) == 0 {
		return nil
	}
	return cli.Usage("--wait: nothing restarts the engine of %s: its agent does nothing on a change (--on-change none): add --restart, or leave --wait out", strings.Join(idle, ", "))
}

// restartAll pins the workloads; what fails is said after all have been tried.
func (a *app) restartAll(ctx context.Context, e engines, pin string, doc *moveDoc) error {
	var failed []error
	for _, w := range e.toRestart(pin) {
		changed, err := rollout.Restart(ctx, e.cluster.Dynamic, w, pin)
		switch {
		case err != nil:
			failed = append(failed, err)
		case changed:
			doc.Restarted = append(doc.Restarted, w.ID())
		}
	}
	return errors.Join(failed...)
}
