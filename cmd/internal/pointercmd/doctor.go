package pointercmd

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/spf13/cobra"

	"github.com/pilotlight-dev/pilotlight/cmd/internal/agentwatch"
	"github.com/pilotlight-dev/pilotlight/cmd/internal/exits"
	"github.com/pilotlight-dev/pilotlight/cmd/internal/modelsource"
	"github.com/pilotlight-dev/pilotlight/cmd/internal/rollout"
	"github.com/pilotlight-dev/pilotlight/fetcher"
	"github.com/pilotlight-dev/pilotlight/fetcher/agent"
	"github.com/pilotlight-dev/pilotlight/internal/workload"
	"github.com/pilotlight-dev/pilotlight/registry"
	"github.com/pilotlight-dev/pilotlight/scaler/moves"
	"github.com/pilotlight-dev/pilotlight/warmup/coldstart"
	"github.com/pilotlight-dev/pilotlight/warmup/coldstart/configmap"
)

// How bad a finding is.
const (
	levelOK      = "ok"
	levelSkipped = "skipped" // could not be looked at, and need not be
	levelWarning = "warning"
	levelError   = "error"
)

// finding is what doctor says of one thing.
type finding struct {
	Check string `json:"check"` // pointer, record, version, workloads, pods or scaler
	Level string `json:"level"`
	Text  string `json:"text"`
}

// doctorDoc is the result of doctor.
type doctorDoc struct {
	V        int       `json:"v"`
	Ref      string    `json:"ref"`
	Findings []finding `json:"findings"`
	Warnings int       `json:"warnings"`
	Errors   int       `json:"errors"`
}

func (d *doctorDoc) add(level, check, format string, args ...any) {
	d.Findings = append(d.Findings, finding{check, level, clip(fmt.Sprintf(format, args...))})
	switch level {
	case levelWarning:
		d.Warnings++
	case levelError:
		d.Errors++
	}
}

func (d *doctorDoc) table(p *page) {
	var rows [][]cell
	for _, f := range d.Findings {
		shade := map[string]color{levelOK: green, levelSkipped: dim, levelWarning: yellow, levelError: red}[f.Level]
		rows = append(rows, []cell{{f.Level, shade}, {f.Check, plain}, {f.Text, plain}})
	}
	p.table([]string{"RESULT", "CHECK", "FINDING"}, rows)
}

// verdict is the command's error, nil when all is well.
func (d *doctorDoc) verdict() error {
	switch {
	case d.Errors > 0:
		return fmt.Errorf("%w: %d errors, %d warnings", exits.ErrDoctorErrors, d.Errors, d.Warnings)
	case d.Warnings > 0:
		return fmt.Errorf("%w: %d", exits.ErrDoctorWarnings, d.Warnings)
	}
	return nil
}

func doctorCommand(deps Deps) *cobra.Command {
	a := &app{Deps: deps}
	cmd := a.command(&cobra.Command{
		Use:   "doctor REF",
		Short: "Look for what is wrong with a pointer and what follows it",
		Long: `Look for what is wrong with a pointer and what follows it, and change nothing:

  pointer    the registry answers, and the pointer leads to a version
  record     the record of its moves can be read
  version    its files are complete: what promote proves before it moves
  workloads  pod templates that name the pointer: pinned elsewhere, or paused
  pods       their starts, their agents, and what their engines serve
  scaler     what it remembers of moves made by hand can be read

Agents are asked at --agents, else through the cluster if one is configured.

` + refHelp + `

Exit codes: 0 all is well; 2 usage; 10 warnings; 11 errors.`,
		Example: `  pilotlight doctor llama@champion
  pilotlight doctor llama@champion --allow-location s3://weights/ -o json`,
		Args:              oneRef,
		ValidArgsFunction: a.completeRef,
	}, a.doctor)
	a.storeFlags(cmd)
	a.agentFlags(cmd)
	a.scalerFlag(cmd)
	return cmd
}

func (a *app) doctor(ctx context.Context, args []string) error {
	ref, err := parseRef(args[0])
	if err != nil {
		return err
	}
	backend, connect, err := a.backend(ref)
	if err != nil {
		return err
	}
	w, err := a.where(ref)
	if err != nil {
		return err
	}
	ctx, cancel := a.bounded(ctx)
	d := &doctorDoc{V: documentVersion, Ref: ref.String()}
	// A registry or a store that hangs until the time is up takes none of it from
	// the engines.
	follow := a.follow(ctx, ref, w)
	defer func() { cancel(); follow() }()
	pos, err := backend.Read(ctx, ref)
	if err != nil {
		d.add(levelError, "pointer", "%v", asking(ctx, err))
	} else {
		d.add(levelOK, "pointer", "it stands at %s", pos.Version)
	}
	var target proven
	if err == nil {
		a.examineRecord(d, pos)
		if target, err = a.examineVersion(ctx, d, backend, ref, pos, connect); err != nil {
			return err
		}
	}
	a.examineEngines(d, ref, w, follow(), target)
	if err := a.print(d); err != nil {
		return err
	}
	return d.verdict()
}

func (a *app) examineRecord(d *doctorDoc, pos registry.Position) {
	if pos.HistoryErr != nil {
		d.add(levelWarning, "record", "it is damaged, the pointer is not: %v", pos.HistoryErr)
		return
	}
	d.add(levelOK, "record", "%d moves", len(pos.History))
}

// examineVersion proves the version that the pointer names; the zero proven if it
// cannot. Its error is wrong usage.
func (a *app) examineVersion(ctx context.Context, d *doctorDoc, backend Backend, ref registry.Ref, pos registry.Position, connect modelsource.Connect) (proven, error) {
	res, recorded, err := a.place(ctx, backend, ref, pos, pos.Version)
	if err != nil {
		d.add(levelError, "version", "%v", err)
		return proven{}, nil
	}
	opts, err := a.fetchOptions(ctx, ref, fetcher.Fixed(res), connect)
	if err != nil {
		return proven{}, err
	}
	got, err := fetcher.Inspect(ctx, opts)
	if err != nil {
		d.add(levelError, "version", "%v", err)
		return proven{}, nil
	}
	m := got.Manifest
	record, err := a.recordable(ctx, opts, m.Digest, recorded)
	if err != nil {
		d.add(levelError, "version", "it cannot be compared with what the pointer records: %v", err)
		return proven{}, nil
	}
	if record == "" {
		d.add(levelError, "version", "its files have the digest %s, the pointer records %s: they were overwritten, or --sub-path, --include or --exclude is another one", short(m.Digest), short(recorded))
		return proven{}, nil
	}
	d.add(levelOK, "version", "%s: %d files, %s, digest %s", res.Location, len(m.Objects), size(m.Bytes()), short(m.Digest))
	return proven{version: res.Version, location: res.Location, digest: m.Digest, record: record, objects: len(m.Objects), bytes: m.Bytes()}, nil
}

// whereabouts are where doctor looks for what follows a pointer.
type whereabouts struct {
	agents nudgedSource // nil: nowhere
	own    *Cluster     // of the workloads; nil: it is not looked at
	scaler *Cluster     // nil: the scaler is not looked for
}

// where returns them; its error is wrong usage, or that of a cluster that cannot
// be asked. No cluster at all is none, unless it is said where in it the scaler
// is.
func (a *app) where(ref registry.Ref) (w whereabouts, err error) {
	w.agents, w.own, err = a.source(ref)
	if errors.Is(err, errNoCluster) && a.scalerNamespace == "" {
		return whereabouts{}, nil
	}
	if w.scaler = w.own; err == nil && w.own == nil && a.scalerNamespace != "" {
		w.scaler, err = a.Cluster(a.cluster)
	}
	return w, err
}

// following is what was found out about what follows a pointer.
type following struct {
	workloads    []rollout.Workload
	notes        []string
	workloadsErr error

	entries   map[coldstart.Key]coldstart.Entry
	unread    []error
	scalerErr error

	pods    []agentwatch.Pod
	podsErr error
}

// follow begins to look for what follows the pointer, all at once; what it
// returns waits for that, until ctx ends at the latest.
func (a *app) follow(ctx context.Context, ref registry.Ref, w whereabouts) func() *following {
	var f following
	var work sync.WaitGroup
	if w.own != nil {
		work.Go(func() {
			f.workloads, f.notes, f.workloadsErr = rollout.Find(ctx, w.own.Dynamic, a.cluster.Namespace, ref)
		})
	}
	if w.scaler != nil {
		work.Go(func() {
			f.entries, f.unread, f.scalerErr = configmap.Store{Client: w.scaler.Client, Namespace: a.scalersNamespace()}.Load(ctx)
		})
	}
	if w.agents != nil {
		work.Go(func() { f.pods, f.podsErr = w.agents.Pods(ctx) })
	}
	return func() *following { work.Wait(); return &f }
}

// examineEngines looks at what follows the pointer; target is zero if it is not
// known what should be served.
func (a *app) examineEngines(d *doctorDoc, ref registry.Ref, w whereabouts, f *following, target proven) {
	if w.agents == nil {
		d.add(levelSkipped, "pods", "no cluster is configured, and no --agents are given")
		return
	}
	replicas := int64(-1) // not known
	if w.own != nil {
		replicas = a.examineWorkloads(d, ref, f, target)
	}
	if w.scaler != nil {
		a.examineScaler(d, ref, f)
	}
	pods, err := f.pods, f.podsErr
	if err != nil && len(pods) == 0 {
		d.add(levelError, "pods", "they cannot be listed: %v", err)
		return
	}
	counted := 0
	for _, p := range pods {
		if !p.Terminating {
			counted++
			examinePod(d, p, target)
		}
	}
	switch {
	case counted > 0:
	case replicas > 0:
		d.add(levelWarning, "pods", "none has the label %s=%s, though %d replicas are asked for: are their templates labelled?", agentwatch.RefLabel, agentwatch.RefHash(ref), replicas)
	default:
		d.add(levelOK, "pods", "none runs")
	}
}

// examineWorkloads returns how many replicas are asked for, -1 if that is not
// known.
func (a *app) examineWorkloads(d *doctorDoc, ref registry.Ref, f *following, target proven) int64 {
	found, notes, err := f.workloads, f.notes, f.workloadsErr
	if err != nil {
		d.add(levelWarning, "workloads", "they cannot be looked at: %v", err)
		return -1
	}
	for _, n := range notes {
		d.add(levelWarning, "workloads", "%s", n)
	}
	if len(found) == 0 {
		d.add(levelWarning, "workloads", "no pod template has the annotation %s: %s%s, so that --restart would find none", agentwatch.RefAnnotation, ref, in(a.cluster.Namespace))
	}
	var replicas int64
	for _, w := range found {
		if !w.Writer {
			replicas += w.Replicas
		}
		switch {
		case w.Paused != "":
			d.add(levelWarning, "workloads", "the ScaledObject of %s is paused: %s", w.ID(), w.Paused)
		case w.Pinned != "" && target.digest != "" && w.Pinned != target.pin(ref):
			d.add(levelWarning, "workloads", "%s", pinnedText(w))
		default:
			d.add(levelOK, "workloads", "%s, %d replicas", w.ID(), w.Replicas)
		}
	}
	return replicas
}

func examinePod(d *doctorDoc, p agentwatch.Pod, target proven) {
	switch st := p.Status; {
	case p.Failure == workload.FailureUnschedulable:
		d.add(levelWarning, "pods", "%s has no node", p.ID())
	case p.Failure != workload.FailureNone:
		d.add(levelError, "pods", "%s does not start: %s", p.ID(), p.Failure)
	case st == nil:
		d.add(levelWarning, "pods", "%s cannot be asked: %s", p.ID(), p.Unknown)
	case st.Pointer != nil && !st.Pointer.OK && st.Pointer.Reason != "":
		d.add(levelError, "pods", "%s cannot follow the pointer: %s", p.ID(), st.Pointer.Reason)
	case p.Writer:
		d.add(levelOK, "pods", "%s is a writer", p.ID())
	case st.Serving.State == agent.EngineUnknown:
		d.add(levelWarning, "pods", "%s does not know what its engine does, so that --wait would not end: give its agent --engine-url or --engine-health", p.ID())
	case target.digest != "" && st.Serving.Digest != target.digest:
		d.add(levelWarning, "pods", "%s serves %s, the pointer names %s", p.ID(), versionCell(versionDoc{Version: st.Serving.Version, Digest: st.Serving.Digest}).text, target.version)
	default:
		d.add(levelOK, "pods", "%s is %s", p.ID(), p.Describe())
	}
}

func (a *app) examineScaler(d *doctorDoc, ref registry.Ref, f *following) {
	entries, unread, err := f.entries, f.unread, f.scalerErr
	if err != nil {
		d.add(levelWarning, "scaler", "what it remembers in namespace %s cannot be read, so that rollback may not know of moves made by hand: %v", a.scalersNamespace(), err)
		return
	}
	lists, damaged := moves.Read(entries, ref.String(), a.cluster.Namespace)
	if err := inShort(unread); err != nil {
		damaged = append(damaged, fmt.Errorf("of what it remembers in namespace %s, so that rollback may not know of moves made by hand: %w", a.scalersNamespace(), err))
	}
	for _, err := range damaged {
		d.add(levelWarning, "scaler", "%v", err)
	}
	n := 0
	for _, list := range lists {
		n += len(list.Moves)
	}
	switch {
	case n > 0:
		d.add(levelOK, "scaler", "%d moves seen", n)
	case len(damaged) == 0:
		d.add(levelSkipped, "scaler", "nothing is remembered in namespace %s: no agent was seen yet, or the scaler is elsewhere (--scaler-namespace)", a.scalersNamespace())
	}
}
