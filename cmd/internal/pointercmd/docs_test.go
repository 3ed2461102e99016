package pointercmd_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/cmd/internal/pointercmd"
)

// walk calls do for every command that can be run.
func walk(do func(name string, cmd *cobra.Command)) {
	var visit func(prefix string, cmds []*cobra.Command)
	visit = func(prefix string, cmds []*cobra.Command) {
		for _, c := range cmds {
			if subs := c.Commands(); len(subs) > 0 {
				visit(prefix+c.Name()+" ", subs)
				continue
			}
			do(prefix+c.Name(), c)
		}
	}
	visit("", pointercmd.Commands(pointercmd.Deps{Getenv: func(string) string { return "" }}))
}

// TestFlagsAreDocumented compares the table of the reference with the flags.
func TestFlagsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../../docs/reference/cli.md")
	require.NoError(t, err)
	documented := map[string][]string{} // flag -> commands
	row := regexp.MustCompile("(?m)^\\| (`-.*?) \\| (.*?) \\|")
	for _, m := range row.FindAllStringSubmatch(string(page), -1) {
		for _, name := range regexp.MustCompile("--([a-z0-9-]+)").FindAllStringSubmatch(m[1], -1) {
			documented[name[1]] = strings.Split(m[2], ", ")
		}
	}
	actual := map[string][]string{}
	var all []string
	walk(func(name string, cmd *cobra.Command) {
		all = append(all, name)
		cmd.Flags().VisitAll(func(f *pflag.Flag) { actual[f.Name] = append(actual[f.Name], name) })
		require.Contains(t, string(page), "`pilotlight "+name, "the table of commands")
	})
	for flag, commands := range actual {
		slices.Sort(commands)
		if len(commands) == len(all) {
			commands = []string{"all"}
		}
		want := slices.Sorted(slices.Values(documented[flag]))
		require.Equal(t, commands, want, "--%s", flag)
		delete(documented, flag)
	}
	require.Empty(t, documented, "flags that are not there")
}

func TestEveryCommandHelpsWithExamples(t *testing.T) {
	walk(func(name string, cmd *cobra.Command) {
		require.NotEmpty(t, cmd.Short, name)
		require.NotEmpty(t, cmd.Long, name)
		require.Contains(t, cmd.Example, "  pilotlight "+name, name)
		for line := range strings.SplitSeq(cmd.Long, "\n") {
			require.LessOrEqual(t, len(line), 90, "%s: %q", name, line)
		}
		// The examples are commands that parse.
		for line := range strings.SplitSeq(cmd.Example, "\n") {
			args := strings.Fields(regexp.MustCompile(`"[^"]*"`).ReplaceAllString(line, "text"))
			rest := args[1+len(strings.Fields(name)):]
			require.NoError(t, cmd.ParseFlags(rest), line)
			require.NoError(t, cmd.ValidateArgs(cmd.Flags().Args()), line)
		}
	})
}
