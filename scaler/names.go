package scaler

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/pilotlight-dev/pilotlight/internal/trigger"
	"github.com/pilotlight-dev/pilotlight/internal/workload"
)

// Triggers lists what every ScaledObject says in our trigger.
type Triggers interface {
	Triggers(ctx context.Context) ([]workload.Trigger, error)
}

// NameScope says how far a served model name is one name.
type NameScope string

// The scopes.
const (
	NamesCluster   NameScope = "cluster"   // one activator for all namespaces
	NamesNamespace NameScope = "namespace" // an activator for each
)

// Names find out which model names are claimed by several ScaledObjects.
//
// Nobody owns a name: with two claims both are refused, because any rule that
// preferred one (the older, the first by alphabet) would hand its clients'
// prompts to whoever comes to satisfy the rule. It ends when one of them is
// changed. Where tenants are not to be able to stop each other in this way,
// they get an activator each and names are unique by namespace, or an admission
// policy says who may claim what.
type names struct {
	triggers Triggers
	scope    NameScope
	log      *slog.Logger
	current  atomic.Pointer[map[workload.Ref]string]
}

// lookEvery is how often the claims are looked at.
const lookEvery = 5 * time.Second

// run looks until ctx ends.
func (n *names) run(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		n.look(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (n *names) look(ctx context.Context) {
	all, err := n.triggers.Triggers(ctx)
	if err != nil {
		return // not listed yet: the last look stands
	}
	found := conflicts(all, n.scope)
	if before := n.current.Swap(&found); before == nil || !maps.Equal(*before, found) {
		for _, ref := range slices.SortedFunc(maps.Keys(found), func(a, b workload.Ref) int { return strings.Compare(a.String(), b.String()) }) {
			n.log.Warn("model name claimed twice", "namespace", ref.Namespace, "scaledObject", ref.Name, "problem", found[ref])
		}
	}
}

// problem is what is wrong with the name of ref, "" if nothing is.
func (n *names) problem(ref workload.Ref) string {
	if n == nil {
		return ""
	}
	if found := n.current.Load(); found != nil {
		return (*found)[ref]
	}
	return ""
}

// conflicts says of each ScaledObject whose model name, or an alias of it, is
// claimed by another what is claimed by whom.
func conflicts(all []workload.Trigger, scope NameScope) map[workload.Ref]string {
	claims := map[workload.Ref][]workload.Ref{} // by scope and model name
	for _, t := range all {
		for _, name := range claimed(t.Metadata) {
			at := workload.Ref{Name: name}
			if scope == NamesNamespace {
				at.Namespace = t.Namespace
			}
			if !slices.Contains(claims[at], t.Ref) {
				claims[at] = append(claims[at], t.Ref)
			}
		}
	}
	problems := map[workload.Ref][]string{}
	for at, refs := range claims {
		for _, ref := range refs {
			for _, other := range refs {
				if other != ref {
					problems[ref] = append(problems[ref], fmt.Sprintf("%q is claimed by %s too", at.Name, other))
				}
			}
		}
	}
	out := map[workload.Ref]string{}
	for ref, list := range problems {
		slices.Sort(list)
		const most = 3
		if len(list) > most {
			list = append(list[:most], fmt.Sprintf("and %d more", len(list)-most))
		}
		out[ref] = strings.Join(list, ", ") + ": both are refused until one of them is changed"
	}
	return out
}

// claimed are the names under which an activator serves a trigger: none where
// it does not, or where the trigger is refused anyway. A name from the
// environment is not known here.
func claimed(metadata map[string]string) []string {
	for _, key := range []string{"modelNameFromEnv", "modelAliasesFromEnv"} {
		if _, ok := metadata[key]; ok {
			return nil
		}
	}
	t, err := trigger.Parse(metadata)
	if err != nil || t.DemandFrom != trigger.DemandActivator {
		return nil
	}
	return append([]string{t.ModelName}, t.ModelAliases...)
}
