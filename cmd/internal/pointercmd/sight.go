package pointercmd

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pilotlight-dev/pilotlight/cmd/internal/agentwatch"
	"github.com/pilotlight-dev/pilotlight/cmd/internal/cli"
	"github.com/pilotlight-dev/pilotlight/registry"
)

// sight is what one agent, or the scaler for the pods of one namespace, has seen
// of a pointer. Pods speak for their namespace alone: another one's may ask
// another registry, or lie.
type sight struct {
	namespace string           // "" for agents at --agents
	moves     []registry.Entry // newest first, at least one
}

// sights are those of everybody who saw.
type sights []sight

// observed returns the moves that nobody recorded but that were seen: by the
// agents that run now, and by those that the scaler has heard before they went.
func (a *app) observed(ctx context.Context, ref registry.Ref) sights {
	kept := a.kept(ctx, ref)
	return append(kept.without(seen(a.glance(ctx, ref), ref)), kept...)
}

// without leaves out of what agents saw the moves that the scaler remembers of
// their namespace. It tells times by its own clock, and agents by those of their
// nodes: one that is minutes ahead would have the move happen again later.
func (s sights) without(agents sights) sights {
	var out sights
	for _, one := range agents {
		var left []registry.Entry
		for _, m := range one.moves {
			if !s.has(one.namespace, m) {
				left = append(left, m)
			}
		}
		if len(left) > 0 {
			out = append(out, sight{one.namespace, left})
		}
	}
	return out
}

// has reports whether a move was seen in a namespace; agents at --agents, which
// are in none, may be in any.
func (s sights) has(namespace string, move registry.Entry) bool {
	return slices.ContainsFunc(s, func(one sight) bool {
		return (namespace == "" || one.namespace == namespace) &&
			slices.ContainsFunc(one.moves, func(m registry.Entry) bool { return m.From == move.From && m.To == move.To })
	})
}

// lists are the moves of each, as Merge takes them.
func (s sights) lists() [][]registry.Entry {
	var out [][]registry.Entry
	for _, one := range s {
		out = append(out, one.moves)
	}
	return out
}

// namespaces are those that have seen something, sorted.
func (s sights) namespaces() []string {
	var out []string
	for _, one := range s {
		out = append(out, one.namespace)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// of returns what one namespace has seen.
func (s sights) of(namespace string) sights {
	return slices.DeleteFunc(slices.Clone(s), func(one sight) bool { return one.namespace != namespace })
}

// about leaves out what is not about a pointer with this record that stands at
// current: whoever saw it come to rest elsewhere looks at another one, or has
// stopped looking. The latter tells what was before, and counts while there is
// nobody to contradict: one namespace only, and no later entry of the record.
func (s sights) about(record []registry.Entry, current string) sights {
	arrived, known := settled(record, current)
	single := len(s.namespaces()) == 1
	rests := func(one sight) bool { return one.moves[0].To == current }
	if !known && !slices.ContainsFunc(s, rests) {
		return s
	}
	return slices.DeleteFunc(slices.Clone(s), func(one sight) bool {
		before := !known || one.moves[0].At.Before(arrived)
		counts := rests(one) || single && before
		return !counts
	})
}

// settled is when a record has the pointer come to where it stands; false if it
// ends elsewhere.
func settled(record []registry.Entry, current string) (at time.Time, ok bool) {
	for _, e := range registry.Settle(record, current) {
		if e.State == registry.StateDone {
			return e.At, e.To == current
		}
	}
	return time.Time{}, false
}

// agree refuses to choose between a record and namespaces that tell different
// things about what served before current.
func (a *app) agree(ref registry.Ref, pos registry.Position, s sights) error {
	if a.cluster.Namespace != "" {
		return nil // that one is believed
	}
	told := map[string]bool{}
	var texts []string
	if _, ok := settled(pos.History, pos.Version); ok {
		if v, ok := a.Previous(pos.History, pos.Version); ok {
			told[v], texts = true, append(texts, v+" by the record")
		}
	}
	for _, namespace := range s.namespaces() {
		lists := s.of(namespace).lists()
		if _, ok := a.Previous(a.Merge(nil, lists...), pos.Version); !ok {
			continue // they know only where it stands
		}
		if v, ok := a.Previous(a.Merge(pos.History, lists...), pos.Version); ok {
			by := "the pods in namespace " + namespace
			if namespace == "" {
				by = "the agents at --agents"
			}
			told[v], texts = true, append(texts, v+" by "+by)
		}
	}
	if len(told) < 2 {
		return nil
	}
	return cli.Usage("%s stands at %s, and what served before it is told differently: %s: choose with pilotlight rollback %s --to VERSION, or say whose pods are believed with -n NAMESPACE",
		ref, pos.Version, strings.Join(texts, ", "), ref)
}

// seen returns the moves that agents saw, a list for each. Only a publication
// that followed another one in the same root counts: the first says which
// version the pod was started with, which may have been pinned, and tells
// nothing about the pointer.
func seen(pods []agentwatch.Pod, ref registry.Ref) sights {
	var out sights
	for _, p := range pods {
		if p.Status == nil || !agentwatch.Names(p.Status.Ref, ref) {
			continue
		}
		var moves []registry.Entry
		for i, h := range p.Status.History[:max(0, len(p.Status.History)-1)] {
			before := p.Status.History[i+1]
			if h.Version == "" || before.Version == h.Version {
				continue
			}
			moves = append(moves, registry.Entry{
				ID: moveID(before.Version, h.Version, h.At), At: h.At, By: "seen by " + p.ID(), Action: registry.ActionSeen,
				From: before.Version, To: h.Version, Digest: h.Digest, State: registry.StateDone,
			})
		}
		if len(moves) > 0 {
			out = append(out, sight{p.Namespace, moves})
		}
	}
	return out
}

// moveID names a move that nobody gave an ID.
func moveID(from, to string, at time.Time) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%d", from, to, at.UnixNano()))
	return hex.EncodeToString(sum[:8])
}
