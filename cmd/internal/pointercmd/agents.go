package pointercmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/pilotlight-dev/pilotlight/cmd/internal/agentwatch"
	"github.com/pilotlight-dev/pilotlight/cmd/internal/cli"
	"github.com/pilotlight-dev/pilotlight/registry"
	"github.com/pilotlight-dev/pilotlight/scaler/moves"
	"github.com/pilotlight-dev/pilotlight/warmup/coldstart/configmap"
)

// source returns where agents of ref are found (of every model for the zero
// Ref), and the cluster if it is there.
func (a *app) source(ref registry.Ref) (nudgedSource, *Cluster, error) {
	if len(a.agents) > 0 {
		addrs, err := agentwatch.ParseAddresses(a.agents)
		if err != nil {
			return nil, nil, cli.Usage("--agents: %w", err)
		}
		return agentwatch.Addresses{Addrs: addrs, Client: a.HTTP, Ref: ref}, nil, nil
	}
	cluster, err := a.Cluster(a.cluster)
	if err != nil {
		return nil, nil, err
	}
	return agentwatch.Cluster{Client: cluster.Client, Namespace: a.cluster.Namespace, Ref: ref, Port: a.agentPort, Proxy: cluster.Proxy}, cluster, nil
}

type nudgedSource interface {
	agentwatch.Source
	agentwatch.Nudger
}

// nudge tells the agents of a pointer that it has moved, which they would notice
// at their next poll. Where it fails that is a note, and without a cluster there
// is nobody to tell.
func (a *app) nudge(ctx context.Context, ref registry.Ref) {
	source, _, err := a.source(ref)
	if errors.Is(err, errNoCluster) {
		return
	}
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, glanceTimeout)
		defer cancel()
		_, err = source.Nudge(ctx)
	}
	if err != nil {
		a.note("%s has moved; agents that could not be told of it notice at their next poll: %v", ref, err)
	}
}

// glance asks the agents where that is good to have, but not needed. What goes
// wrong is a note, and no cluster at all not even that.
func (a *app) glance(ctx context.Context, ref registry.Ref) []agentwatch.Pod {
	if a.noAgents {
		return nil
	}
	source, _, err := a.source(ref)
	if errors.Is(err, errNoCluster) {
		return nil
	}
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, glanceTimeout)
		defer cancel()
		var pods []agentwatch.Pod
		pods, err = source.Pods(ctx)
		if silent := count(pods, agentwatch.Pod.Silent); silent > 0 {
			first := pods[slices.IndexFunc(pods, agentwatch.Pod.Silent)]
			a.note("%d of %d agents could not be asked what they have seen (%s: %s)", silent, silent+count(pods, func(p agentwatch.Pod) bool { return p.Status != nil }), first.ID(), first.Unknown)
		}
		if err == nil || len(pods) > 0 {
			return pods
		}
	}
	a.note("the agents could not be asked what they have seen: %v", err)
	return nil
}

// defaultScalerNamespace is where the installation guide puts the scaler.
const defaultScalerNamespace = "keda"

// scalersNamespace is where the scaler keeps what it remembers.
func (a *app) scalersNamespace() string {
	return cmp.Or(a.scalerNamespace, a.Getenv("PILOTLIGHT_SCALER_NAMESPACE"), defaultScalerNamespace)
}

// kept returns what the scaler remembers of a pointer. What goes wrong is a
// note, as in glance. With --agents the cluster is left alone, unless it is said
// where in it the scaler is.
func (a *app) kept(ctx context.Context, ref registry.Ref) sights {
	if a.noAgents || len(a.agents) > 0 && a.scalerNamespace == "" {
		return nil
	}
	cluster, err := a.Cluster(a.cluster)
	if errors.Is(err, errNoCluster) && a.scalerNamespace == "" {
		return nil
	}
	if err != nil {
		a.note("what the scaler has seen could not be read: %v", err)
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, glanceTimeout)
	defer cancel()
	entries, unread, err := configmap.Store{Client: cluster.Client, Namespace: a.scalersNamespace()}.Load(ctx)
	lists, damaged := moves.Read(entries, ref.String(), a.cluster.Namespace)
	if err = errors.Join(append(damaged, inShort(unread), err)...); err != nil {
		a.note("what the scaler has seen could not be read in full: %v", err)
	}
	var out sights
	for _, list := range lists {
		var entries []registry.Entry
		for _, m := range list.Moves {
			entries = append(entries, registry.Entry{
				ID: moveID(m.From, m.To, m.At), At: m.At, By: "seen by " + m.By, Action: registry.ActionSeen,
				From: m.From, To: m.To, Digest: m.Digest, State: registry.StateDone,
			})
		}
		out = append(out, sight{list.Namespace, entries})
	}
	return out
}

// inShort is what is said of entries of the scaler's memory that nobody can read:
// any of them may be the one that is looked for. Nil if there are none.
func inShort(unread []error) error {
	switch len(unread) {
	case 0:
		return nil
	case 1:
		return fmt.Errorf("an entry is damaged: %w", unread[0])
	}
	return fmt.Errorf("%d entries are damaged, the first: %w", len(unread), unread[0])
}

func count(pods []agentwatch.Pod, is func(agentwatch.Pod) bool) (n int) {
	for _, p := range pods {
		if is(p) {
			n++
		}
	}
	return n
}
