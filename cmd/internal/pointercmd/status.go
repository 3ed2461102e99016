package pointercmd

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/pilotlight-dev/pilotlight/cmd/internal/agentwatch"
	"github.com/pilotlight-dev/pilotlight/cmd/internal/cli"
	"github.com/pilotlight-dev/pilotlight/fetcher/agent"
	"github.com/pilotlight-dev/pilotlight/registry"
)

// podDoc is what is known about one pod.
type podDoc struct {
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// State is ready, loading, unknown, failing, terminating or writer, and Reason
	// says why it is unknown, or the class of a failed start: image, crash,
	// pointer, integrity, no-space or unschedulable.
	State     string     `json:"state"`
	Reason    string     `json:"reason,omitempty"`
	Published versionDoc `json:"published"`
	Serving   versionDoc `json:"serving"`
	// PointerOK is null when the pod does not follow the pointer itself, or was
	// not asked.
	PointerOK     *bool  `json:"pointerOk"`
	PointerReason string `json:"pointerReason,omitempty"`
}

type versionDoc struct {
	Version string     `json:"version,omitempty"`
	Digest  string     `json:"digest,omitempty"`
	Since   *time.Time `json:"since,omitempty"`
}

func podDocs(pods []agentwatch.Pod) []podDoc {
	out := make([]podDoc, 0, len(pods))
	for _, p := range pods {
		out = append(out, describePod(p))
	}
	return out
}

func describePod(p agentwatch.Pod) podDoc {
	d := podDoc{Namespace: p.Namespace, Name: p.Name, State: p.State(), Reason: p.Reason()}
	if p.Status == nil {
		return d
	}
	if pub := p.Status.Published; pub != nil {
		d.Published = versionDoc{pub.Version, pub.Digest, &pub.At}
	}
	s := p.Status.Serving
	d.Serving = versionDoc{s.Version, s.Digest, s.Since}
	if ptr := p.Status.Pointer; ptr != nil {
		d.PointerOK, d.PointerReason = &ptr.OK, ptr.Reason
	}
	return d
}

// modelDoc is one model of status.
type modelDoc struct {
	Ref      string `json:"ref"`
	Version  string `json:"version,omitempty"` // where the pointer stands
	Location string `json:"location,omitempty"`
	Digest   string `json:"digest,omitempty"`
	// Problem says why the pointer could not be read.
	Problem string `json:"problem,omitempty"`
	// Pods are null while nobody could be asked which there are, for the reason
	// in PodsUnknown; empty says that there are none.
	Pods        []podDoc `json:"pods"`
	PodsUnknown string   `json:"podsUnknown,omitempty"`
}

// statusDoc is the result of status.
type statusDoc struct {
	V      int        `json:"v"`
	Models []modelDoc `json:"models"`
}

func (d statusDoc) table(p *page) {
	if len(d.Models) == 0 {
		p.line("no pod has the label %s", agentwatch.RefLabel)
	}
	for i, m := range d.Models {
		if i > 0 {
			p.line("")
		}
		p.fields("model", m.Ref, "version", m.Version, "location", m.Location, "digest", m.Digest, "problem", m.Problem)
		switch {
		case m.Pods == nil:
			p.line("which pods there are is not known")
			continue
		case len(m.Pods) == 0:
			p.line("no pods")
			continue
		}
		var rows [][]cell
		for _, pod := range m.Pods {
			rows = append(rows, podRow(pod))
		}
		p.table([]string{"POD", "STATE", "SERVING", "PUBLISHED", "POINTER"}, rows)
	}
}

func podRow(pod podDoc) []cell {
	name := pod.Name
	if pod.Namespace != "" {
		name = pod.Namespace + "/" + name
	}
	state := cell{pod.State, yellow}
	switch pod.State {
	case string(agent.EngineReady):
		state.color = green
	case "failing":
		state.color = red
	case "terminating", "writer":
		state.color = dim
	}
	if pod.Reason != "" {
		state.text += ": " + pod.Reason
	}
	pointer := cell{}
	if pod.PointerOK != nil {
		pointer = cell{"ok", green}
		if !*pod.PointerOK {
			pointer = cell{cmp.Or(pod.PointerReason, "not ok"), red}
		}
	}
	return []cell{{name, plain}, state, versionCell(pod.Serving), versionCell(pod.Published), pointer}
}

func versionCell(v versionDoc) cell {
	if v.Digest == "" {
		return cell{v.Version, plain}
	}
	return cell{strings.TrimSpace(v.Version + " " + short(v.Digest)), plain}
}

func statusCommand(deps Deps) *cobra.Command {
	a := &app{Deps: deps}
	cmd := a.command(&cobra.Command{
		Use:   "status [REF]",
		Short: "Show where a pointer stands and what each pod serves",
		Long: `Show where a pointer stands and, of each pod, the version that is published in it,
the version that its engine serves, how following the pointer goes, and why a
start failed. Without REF, every model that a pod in the cluster is labelled with.
Which pods there are and what they serve is not guessed: where nobody can be asked,
the pointer is shown, "pods" is null, and the exit code is 2.

Agents are asked at --agents, else through the cluster (pods with the label
pilotlight.dev/ref-hash, by the API server's pod proxy).

` + refHelp + `

Exit codes: 0 shown, whatever the pods do; 2 usage, no cluster and no --agents, the
pods cannot be listed, or none of --agents answers; 3 no such pointer; 6 registry,
7 store unreachable or denied.`,
		Example: `  pilotlight status
  pilotlight status llama@champion
  pilotlight status llama@champion --agents 10.0.0.7:9400,10.0.0.8:9400 -o json`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return cli.Usage("want at most one REF, got %d arguments (see %s --help)", len(args), cmd.CommandPath())
			}
			return nil
		},
		ValidArgsFunction: a.completeRef,
	}, a.status)
	a.storeEndpoint(cmd)
	a.agentFlags(cmd)
	return cmd
}

func (a *app) status(ctx context.Context, args []string) error {
	ctx, cancel := a.bounded(ctx)
	defer cancel()
	if len(args) == 0 {
		return a.statusOfAll(ctx)
	}
	ref, err := parseRef(args[0])
	if err != nil {
		return err
	}
	// Side by side: whoever hangs until the time is up takes none of it from the
	// other, who would be blamed.
	var pods []agentwatch.Pod
	var perr error
	var listing sync.WaitGroup
	listing.Go(func() { pods, perr = a.pods(ctx, ref) })
	m, err := a.describeModel(ctx, ref)
	listing.Wait()
	if perr == nil || len(pods) > 0 {
		m.Pods = podDocs(pods)
	} else {
		m.Pods, m.PodsUnknown = nil, clean(perr.Error())
	}
	if err == nil { // the pointer's trouble is the more telling one
		err = perr
	} else if a.output == "table" {
		m.Problem = "see below" // the error is the last line
	}
	doc := statusDoc{V: documentVersion, Models: []modelDoc{m}}
	if printed := a.print(doc); err == nil {
		return printed
	}
	return err
}

// pods asks for the pods of ref. What is unknown about all of them is an error:
// nothing at all would look like a model that nobody serves.
func (a *app) pods(ctx context.Context, ref registry.Ref) ([]agentwatch.Pod, error) {
	source, cluster, err := a.source(ref)
	if err != nil {
		return nil, err
	}
	pods, err := source.Pods(ctx)
	answers := slices.ContainsFunc(pods, func(p agentwatch.Pod) bool { return p.Status != nil })
	if err != nil && !answers { // else the time was up for some
		return pods, cli.Usage("the pods cannot be listed: %w", timely(ctx, err))
	}
	if cluster == nil && !answers {
		return pods, cli.Usage("none of --agents can be asked what it serves: %s", clip(pods[0].ID()+": "+pods[0].Unknown))
	}
	return pods, nil
}

// modelsAtOnce bounds the questions to registries.
const modelsAtOnce = 16

// statusOfAll shows every model that has a pod. A pointer that cannot be read
// is part of the picture, not a failure of the command.
func (a *app) statusOfAll(ctx context.Context) error {
	// Half the time, so that agents that hang take none of it from the registries.
	half, cancel := within(ctx, a.timeout/2)
	pods, perr := a.pods(half, registry.Ref{})
	cancel()
	if perr != nil && len(pods) == 0 {
		return perr
	}
	byRef := map[string][]agentwatch.Pod{}
	for _, p := range pods {
		name := p.Ref
		if ref, err := registry.ParseModel(name); err == nil {
			name = ref.String()
		}
		byRef[name] = append(byRef[name], p)
	}
	names := slices.Sorted(maps.Keys(byRef))
	doc := statusDoc{V: documentVersion, Models: make([]modelDoc, len(names))}
	var asking errgroup.Group // a registry that hangs keeps none from the others
	asking.SetLimit(modelsAtOnce)
	for i, name := range names {
		asking.Go(func() error {
			m := modelDoc{Ref: name, Problem: "the pods do not say which model they serve (annotation " + agentwatch.RefAnnotation + ")"}
			if ref, err := registry.ParseModel(name); err == nil {
				m, _ = a.describeModel(ctx, ref) // the reason is in it
			} else if name != "" {
				m.Problem = err.Error()
			}
			m.Pods = podDocs(byRef[name])
			doc.Models[i] = m
			return nil
		})
	}
	_ = asking.Wait() // what went wrong is in the document
	if err := a.print(doc); err != nil {
		return err
	}
	return perr
}

// describeModel reads the pointer; the error is also in the document.
func (a *app) describeModel(ctx context.Context, ref registry.Ref) (modelDoc, error) {
	m := modelDoc{Ref: ref.String(), Pods: []podDoc{}}
	resolver, _, err := a.reach(ref)
	if err == nil {
		if backend, berr := asBackend(ref, resolver); berr == nil && movable(ref) == nil {
			var pos registry.Position
			pos, err = backend.Read(ctx, ref)
			m.Version, m.Location, m.Digest = pos.Version, pos.Location.String(), pos.Digest
		} else {
			var res registry.Resolution
			res, err = resolver.Resolve(ctx, ref)
			m.Version, m.Location = res.Version, res.Location.String()
		}
	}
	if err = asking(ctx, err); err != nil {
		m.Problem = clean(err.Error())
	}
	return m, err
}
