package pointercmd

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pilotlight-dev/pilotlight/registry"
)

// completeTimeout bounds a completion: nobody waits longer for a tab.
const completeTimeout = 2 * time.Second

// complete offers fixed values for a flag.
func complete(cmd *cobra.Command, flag string, values []string) {
	// It fails for a flag that is not there only.
	_ = cmd.RegisterFlagCompletionFunc(flag, func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return values, cobra.ShellCompDirectiveNoFileComp
	})
}

// completeVersion offers the versions that the pointer could name. Silence is
// the answer to every failure.
func (a *app) completeVersion(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) != 1 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var out []string
	for _, v := range a.versionsFor(cmd.Context(), args[0]) {
		text := v.Version
		if about := strings.TrimPrefix(candidate(v), v.Version); about != "" {
			text += "\t" + clean(strings.Trim(about, " ()"))
		}
		out = append(out, text)
	}
	return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
}

// completeRef offers the aliases of a model whose name has been typed.
func (a *app) completeRef(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	name, _, found := strings.Cut(typed, "@")
	if len(args) > 0 || !found {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var out []string
	for _, v := range a.versionsFor(cmd.Context(), name+"@any") {
		for _, alias := range v.Aliases {
			out = append(out, name+"@"+alias)
		}
	}
	slices.Sort(out)
	return slices.Compact(out), cobra.ShellCompDirectiveNoFileComp
}

func (a *app) versionsFor(ctx context.Context, text string) []registry.Version {
	ref, err := registry.ParseModel(text)
	if err != nil {
		return nil
	}
	backend, _, err := a.backend(ref)
	if err != nil {
		return nil
	}
	if ctx == nil { // a completion without a command's life
		ctx = context.Background()
	}
	ctx, cancel := context.WithTimeout(ctx, completeTimeout)
	defer cancel()
	versions, err := backend.Versions(ctx, ref)
	if err != nil {
		return nil
	}
	return versions
}
