package pointercmd

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/pilotlight-dev/pilotlight/cmd/internal/cli"
	"github.com/pilotlight-dev/pilotlight/cmd/internal/exits"
	"github.com/pilotlight-dev/pilotlight/registry"
)

// What became of a move.
const (
	resultMoved   = "moved"
	resultAlready = "already"
	resultDryRun  = "dry-run"
)

// moveDoc is the result of promote and rollback.
type moveDoc struct {
	V        int    `json:"v"`
	Ref      string `json:"ref"`
	Action   string `json:"action"`
	From     string `json:"from"`
	To       string `json:"to"`
	Location string `json:"location,omitempty"`
	Digest   string `json:"digest,omitempty"`
	Objects  int    `json:"objects,omitempty"`
	Bytes    int64  `json:"bytes,omitempty"`
	// Result is "moved", "already" or "dry-run".
	Result  string `json:"result"`
	DryRun  bool   `json:"dryRun,omitempty"`
	Message string `json:"message,omitempty"`
	// Restarted are the workloads whose pods start anew because of this run.
	Restarted []string `json:"restarted,omitempty"`
	// Verified is null when nobody asked with --wait.
	Verified *bool    `json:"verified"`
	Pods     []podDoc `json:"pods,omitempty"`
	Notes    []string `json:"notes,omitempty"`
}

func (d moveDoc) table(p *page) {
	switch d.Result {
	case resultAlready:
		p.line("%s is at %s already, the pointer was not written", d.Ref, d.To)
	case resultDryRun:
		p.line("%s would be moved from %s to %s, nothing was written", d.Ref, d.From, d.To)
	default:
		p.line("%s moved from %s to %s", d.Ref, d.From, d.To)
	}
	p.fields("location", d.Location, "digest", d.Digest)
	for _, w := range d.Restarted {
		p.line("%s: %s", map[bool]string{true: "would restart", false: "restarted"}[d.DryRun], w)
	}
	if d.Verified != nil && *d.Verified {
		p.line("verified: every engine serves %s", short(d.Digest))
	}
	for _, n := range d.Notes {
		p.line("note: %s", n)
	}
}

const moveHelp = `Before anything is written the version is proven: ready in the registry, within
--allow-location, all its files listed, every shard that an index names there,
every safetensors header as long as it says. The pointer moves only if it still
stands where it stood; where it stands at the version already, it is not written.
Agents are then told, so that they need not wait for their next poll.

--restart sets the annotation pilotlight.dev/model-version in the pod templates
that name the pointer (annotation pilotlight.dev/ref), which restarts their pods
by the workload's own strategy, on exactly that version. It works at zero
replicas and never touches them.

--wait then watches the agents until at least one pod runs and every pod that is
not terminating reports an engine that is ready on the digest; a pod that cannot
be asked is not ready. Something has to restart the engines for that: --restart, or
agents that act on a change. At zero replicas it ends with code 8 (moved, not
verified), unless --wake sends a request of one token to the activator. A
ScaledObject that somebody paused is reported and left as it is.

`

const moveCodes = `

Exit codes: 0 done, or there already; 2 usage, not confirmed, or nothing would
restart the engines; 3 no such pointer or version, or nothing known to go back to;
4 the version is incomplete; 6 registry, 7 store unreachable or denied: nothing was
written; 8 moved, but not verified; 9 somebody else moved it: nothing was written.`

func promoteCommand(deps Deps) *cobra.Command {
	a := &app{Deps: deps}
	cmd := a.command(&cobra.Command{
		Use:   "promote REF --to VERSION",
		Short: "Move a pointer to a version",
		Long:  "Move a pointer to a version.\n\n" + moveHelp + refHelp + moveCodes,
		Example: `  pilotlight promote llama@champion --to 8 --message "better at tables"
  pilotlight promote llama@champion --to 8 --yes --restart --wait
  pilotlight promote pointer+s3://weights/llama/production --to v8 --location s3://weights/llama/v8`,
		Args:              oneRef,
		ValidArgsFunction: a.completeRef,
	}, func(ctx context.Context, args []string) error { return a.move(ctx, args[0], registry.ActionPromote) })
	a.moveFlags(cmd, "version to move to (required)")
	return cmd
}

func rollbackCommand(deps Deps) *cobra.Command {
	a := &app{Deps: deps}
	cmd := a.command(&cobra.Command{
		Use:   "rollback REF [--to VERSION]",
		Short: "Move a pointer back to what served before",
		Long: `Move a pointer back, without --to to the version that served before: by the
recorded moves, and by those that agents have seen; those of agents that are gone
(zero replicas) the scaler remembers. When nothing is known, the versions are listed
and nothing is moved (code 3). A rollback after a rollback does not go back and
forth: it is refused with the commands to type, one for going further back and one
for returning.

` + moveHelp + refHelp + moveCodes,
		Example: `  pilotlight rollback llama@champion
  pilotlight rollback llama@champion --yes --restart --wait --timeout 20m -m "refuses to count"
  pilotlight rollback llama@champion --to 5 --dry-run`,
		Args:              oneRef,
		ValidArgsFunction: a.completeRef,
	}, func(ctx context.Context, args []string) error { return a.move(ctx, args[0], registry.ActionRollback) })
	a.moveFlags(cmd, "version to move to (default: what served before)")
	a.sightFlags(cmd, "ask neither agents nor the scaler what served before: recorded moves only")
	return cmd
}

func (a *app) moveFlags(cmd *cobra.Command, toHelp string) {
	f := cmd.Flags()
	f.StringVar(&a.to, "to", "", toHelp)
	f.StringVar(&a.location, "location", "", "where the version's files are, for a pointer object that does not know it yet")
	a.storeFlags(cmd)
	a.agentFlags(cmd)
	a.writeFlags(cmd)
	f.BoolVar(&a.restart, "restart", false, "restart the pods on the version")
	f.BoolVar(&a.wait, "wait", false, "wait until every engine serves it")
	f.BoolVar(&a.wake, "wake", false, "with --wait, at zero replicas: wake one through --activator")
	f.StringVar(&a.activator, "activator", "", "URL of the activator, for --wake; $PILOTLIGHT_API_KEY is its key, if it asks for one")
	f.StringVar(&a.wakeModel, "wake-model", "", "served name of the model, for --wake (default: its name in the registry)")
	_ = cmd.RegisterFlagCompletionFunc("to", a.completeVersion) // fails for a flag that is not there only
}

// checkMove refuses what cannot work, before anybody is asked anything.
func (a *app) checkMove(ref registry.Ref, action string) error {
	switch {
	case a.to == "" && action == registry.ActionPromote:
		return cli.Usage("promote needs --to VERSION; pilotlight rollback %s goes to what served before", ref)
	case a.wake && !a.wait:
		return cli.Usage("--wake is for --wait")
	case a.wake && a.activator == "":
		return cli.Usage("--wake needs --activator URL")
	case a.wake && a.wakeModel == "" && ref.Kind != registry.KindAlias:
		return cli.Usage("--wake needs --wake-model NAME: %s does not say under which name it is served", ref)
	case a.to != "":
		if err := checkVersion(ref, a.to); err != nil {
			return err
		}
	}
	return a.mayAsk()
}

// move does what the package comment says, in its order.
func (a *app) move(ctx context.Context, text, action string) error {
	ref, err := parseRef(text)
	if err != nil {
		return err
	}
	if err := movable(ref); err != nil {
		return err
	}
	if err := a.checkMove(ref, action); err != nil {
		return err
	}
	backend, connect, err := a.backend(ref)
	if err != nil {
		return err
	}
	timed, cancel := a.bounded(ctx)
	defer cancel()
	pos, err := backend.Read(timed, ref)
	if err != nil {
		return asking(timed, err)
	}
	if pos.HistoryErr != nil {
		a.note("the record of moves is damaged, the pointer is not: %v", pos.HistoryErr)
	}
	to := a.to
	if to == "" {
		if to, err = a.before(timed, backend, ref, pos); err != nil {
			return err
		}
	}
	doc := moveDoc{V: documentVersion, Ref: ref.String(), Action: action, From: pos.Version, To: to, Message: a.message, Result: resultMoved}
	if to == pos.Version && a.location == "" {
		doc.Result = resultAlready
		if !a.wait && !a.restart {
			return a.print(doc)
		}
	}
	res, recorded, err := a.place(timed, backend, ref, pos, to)
	if err != nil {
		return err
	}
	target, err := a.prove(ctx, timed, ref, res, recorded, connect)
	if err != nil {
		return err
	}
	doc.Location, doc.Digest, doc.Objects, doc.Bytes = target.location.String(), target.digest, target.objects, target.bytes
	if to == pos.Version { // with --location, which has been found to be the recorded one
		doc.Result = resultAlready
	}
	engines, err := a.engines(timed, ref, target, &doc)
	if err != nil {
		return err
	}
	if a.dryRun {
		return a.rehearse(ref, target, engines, doc)
	}
	return a.carryOut(ctx, ref, backend, pos, target, engines, doc)
}

// rehearse says what carryOut would do.
func (a *app) rehearse(ref registry.Ref, target proven, engines engines, doc moveDoc) error {
	if doc.DryRun = true; doc.Result == resultMoved {
		doc.Result = resultDryRun
	}
	for _, w := range engines.toRestart(target.pin(ref)) {
		doc.Restarted = append(doc.Restarted, w.ID())
	}
	return a.print(doc)
}

// carryOut asks, writes, restarts and waits.
func (a *app) carryOut(ctx context.Context, ref registry.Ref, backend Backend, pos registry.Position, target proven, engines engines, doc moveDoc) error {
	restarts := engines.toRestart(target.pin(ref))
	if doc.Result == resultMoved {
		also := ""
		if len(restarts) > 0 {
			also = fmt.Sprintf(" and restart %d workloads", len(restarts))
		}
		if err := a.confirm(ctx, "Move %s from %s to %s (%s, %d files, %s)%s?", ref, pos.Version, target.version, target.location, target.objects, size(target.bytes), also); err != nil {
			return err
		}
		if err := a.write(ctx, ref, backend, pos, target, doc.Action); err != nil {
			return err
		}
		a.nudge(ctx, ref)
	} else if len(restarts) > 0 {
		if err := a.confirm(ctx, "Restart %d workloads on %s?", len(restarts), target.version); err != nil {
			return err
		}
	}
	timed, cancel := within(ctx, a.timeout)
	defer cancel()
	err := a.restartAll(timed, engines, target.pin(ref), &doc)
	if err == nil && a.wait {
		err = a.verify(timed, ref, engines, target, &doc)
	}
	if perr := a.print(doc); err == nil {
		return perr
	}
	return fmt.Errorf("%w: %s is at %s, but %w", exits.ErrNotVerified, ref, target.version, err)
}

// write moves the pointer if it still stands where it was seen.
func (a *app) write(ctx context.Context, ref registry.Ref, backend Backend, seen registry.Position, target proven, action string) error {
	ctx, cancel := a.bounded(ctx)
	defer cancel()
	now, err := backend.Read(ctx, ref)
	if err != nil {
		return asking(ctx, err)
	}
	if now.Version != seen.Version || now.Tag != seen.Tag {
		return classify(registry.ErrConflict, "%s was moved from %s to %s by somebody else in the meantime, nothing was written: look at pilotlight history %s, and decide again", ref, seen.Version, now.Version, ref)
	}
	_, err = backend.Move(ctx, ref, registry.Change{
		Expect: now, To: target.version, Location: target.location, Digest: target.record,
		Action: action, By: a.who(), Message: a.message,
	})
	if err = asking(ctx, err); errors.Is(err, registry.ErrUncertain) || ctx.Err() != nil {
		return fmt.Errorf("whether %s was moved to %s is not known, look at pilotlight history %s: %w", ref, target.version, ref, err)
	}
	return err
}
