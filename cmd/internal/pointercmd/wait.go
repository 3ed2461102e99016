package pointercmd

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/pilotlight-dev/pilotlight/cmd/internal/agentwatch"
	"github.com/pilotlight-dev/pilotlight/cmd/internal/rollout"
	"github.com/pilotlight-dev/pilotlight/registry"
)

// errAtZero: there is no pod, and nothing is going to start one.
var errAtZero = errors.New("there is no pod to verify it with (zero replicas): the next start serves it; --wake starts one now")

// verify waits until every engine serves the version, and says so in doc. Its
// error completes the sentence "the pointer is at 6, but ...".
func (a *app) verify(ctx context.Context, ref registry.Ref, e engines, target proven, doc *moveDoc) error {
	verified := false
	doc.Verified = &verified
	view := a.newView(target)
	woken, stop := a.newWaker(ctx, ref)
	defer stop()
	last, err := agentwatch.Watch(ctx, agentwatch.WatchOptions{
		Source: e.source, Digest: target.digest, Every: a.Every,
		Seen: func(r agentwatch.Round) error {
			view.show(r)
			if r.Err != nil || r.Verdict.Total > 0 || e.cluster == nil {
				return nil
			}
			zero, err := a.atZero(ctx, ref, e.cluster)
			switch {
			case err != nil || !zero: // pods are on their way, or nobody knows
				return nil
			case !a.wake:
				return errAtZero
			}
			return woken()
		},
	})
	view.end()
	doc.Pods = podDocs(last.Pods)
	switch {
	case err == nil:
		verified = true
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("%s when waiting ended%s: %w", last.Verdict, laggards(last.Pods, target), context.Cause(ctx))
	}
	return err
}

// atZero reports whether the workloads of ref ask for no replica at all.
func (a *app) atZero(ctx context.Context, ref registry.Ref, cluster *Cluster) (bool, error) {
	found, _, err := rollout.Find(ctx, cluster.Dynamic, a.cluster.Namespace, ref)
	if err != nil {
		return false, err
	}
	for _, w := range found {
		if !w.Writer && w.Replicas > 0 {
			return false, nil
		}
	}
	return true, nil
}

// laggards names the pods that are not there yet, and why.
func laggards(pods []agentwatch.Pod, target proven) string {
	var out []string
	for _, p := range pods {
		if !p.Counts() || p.Serves(target.digest) {
			continue
		}
		text := p.ID() + " " + p.Describe()
		if p.Status != nil {
			switch s := p.Status.Serving; {
			case s.Digest == "":
				text += ", with a version that its agent does not know"
			case s.Digest == target.digest:
			case s.Version == target.version:
				text += fmt.Sprintf(", with version %s but another digest (does its fetcher have another --sub-path, --include or --exclude?)", s.Version)
			default:
				text += ", still with version " + s.Version
			}
			if ptr := p.Status.Pointer; ptr != nil && !ptr.OK && ptr.Reason != "" {
				text += " (" + ptr.Reason + ")"
			}
		}
		out = append(out, clip(text))
	}
	if len(out) == 0 {
		return ""
	}
	return " (" + strings.Join(out, "; ") + ")"
}
