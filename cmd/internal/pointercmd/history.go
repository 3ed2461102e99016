package pointercmd

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/pilotlight-dev/pilotlight/registry"
)

// historyDoc is the result of history.
type historyDoc struct {
	V       int    `json:"v"`
	Ref     string `json:"ref"`
	Version string `json:"version"` // where it stands now
	// Moves are newest first; those with state "pending" may not have happened.
	Moves []registry.Entry `json:"moves"`
}

func (d historyDoc) table(p *page) {
	if len(d.Moves) == 0 {
		p.line("%s stands at %s; no move is recorded, and none is known to have been seen", d.Ref, d.Version)
		return
	}
	var rows [][]cell
	for _, m := range d.Moves {
		state := cell{m.State, plain}
		if m.State == registry.StatePending {
			state.color = yellow
		}
		to := cell{m.To, plain}
		if m.To == d.Version {
			to.color = green
		}
		rows = append(rows, []cell{
			{m.At.UTC().Format(time.RFC3339), plain},
			{m.Action, plain},
			{m.From, plain},
			to, state,
			{m.By, plain},
			{m.Message, plain},
		})
	}
	p.table([]string{"WHEN", "WHAT", "FROM", "TO", "STATE", "BY", "MESSAGE"}, rows)
}

func historyCommand(deps Deps) *cobra.Command {
	a := &app{Deps: deps}
	cmd := a.command(&cobra.Command{
		Use:   "history REF",
		Short: "List a pointer's moves, newest first",
		Long: `List a pointer's moves, newest first: those that are recorded with it, and those
made by hand that agents have seen (WHAT is "seen"). A move in STATE "pending" was
begun, and nobody recorded that it happened.

Agents are asked at --agents, else through the cluster if one is configured. What
those have seen that are gone by now, the scaler remembers: the last ten moves of a
reference, in the ConfigMaps pilotlight-state-* of its namespace. Both are good to
have, so that a failure to ask is a note.

` + refHelp,
		Example: `  pilotlight history llama@champion
  pilotlight history llama@champion --no-agents -o json`,
		Args:              oneRef,
		ValidArgsFunction: a.completeRef,
	}, a.history)
	a.storeEndpoint(cmd)
	a.agentFlags(cmd)
	a.sightFlags(cmd, "ask neither agents nor the scaler: recorded moves only")
	return cmd
}

func (a *app) storeEndpoint(cmd *cobra.Command) {
	cmd.Flags().StringVar(&a.endpoint, "s3-endpoint", "", "URL of the object store that holds a pointer object")
}

func (a *app) history(ctx context.Context, args []string) error {
	ref, err := parseRef(args[0])
	if err != nil {
		return err
	}
	backend, _, err := a.backend(ref)
	if err != nil {
		return err
	}
	ctx, cancel := a.bounded(ctx)
	defer cancel()
	pos, err := backend.Read(ctx, ref)
	if err != nil {
		return asking(ctx, err)
	}
	if pos.HistoryErr != nil {
		a.note("the record of moves is damaged, the pointer is not: %v", pos.HistoryErr)
	}
	moves := a.Merge(pos.History, a.observed(ctx, ref).lists()...)
	if moves == nil {
		moves = []registry.Entry{}
	}
	return a.print(historyDoc{V: documentVersion, Ref: ref.String(), Version: pos.Version, Moves: moves})
}
