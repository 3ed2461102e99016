// Command pilotlight is Pilotlight's command line.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/pilotlight-dev/pilotlight/cmd/internal/cli"
	"github.com/pilotlight-dev/pilotlight/cmd/internal/demo"
	"github.com/pilotlight-dev/pilotlight/cmd/internal/pointercmd"
	"github.com/pilotlight-dev/pilotlight/cmd/internal/simulatecmd"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	env := cli.Env{Args: os.Args[1:], Getenv: os.Getenv, Stdout: os.Stdout, Stderr: os.Stderr}
	code := run(ctx, env)
	stop()
	os.Exit(code)
}

func run(ctx context.Context, env cli.Env) int {
	if len(env.Args) > 0 && env.Args[0] == "demo-part" { // a child of the demo
		env.Args = env.Args[1:]
		return demo.Part(ctx, env, os.Stdin)
	}
	root := &cobra.Command{
		Use:   "pilotlight",
		Short: "LLM inference that goes to zero when idle and comes back with the right weights",
		Args:  cli.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	tty := term.IsTerminal(int(os.Stderr.Fd()))
	root.AddCommand(pointercmd.Commands(pointercmd.Deps{
		Getenv: env.Getenv, Stdin: os.Stdin, Hostname: os.Hostname,
		StdinTTY: term.IsTerminal(int(os.Stdin.Fd())), StdoutTTY: term.IsTerminal(int(os.Stdout.Fd())), StderrTTY: tty,
	})...)
	root.AddCommand(demoCommand(), simulatecmd.Simulate(tty), simulatecmd.Tune(tty))
	return cli.Run(ctx, root, env)
}

func demoCommand() *cobra.Command {
	var opts demo.Options
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show the whole job on this machine, without a cluster",
		Long: `Show the whole job on this machine, without a cluster, in about a minute: a
request at zero is held, wakes a replica, is answered by the weights that the
registry points at; a burst scales out; idle goes back to zero; the pointer is
moved and rolled back.

Scaler, activator and fetcher are the real ones. The registry, the store, the
engines and KEDA are stand-ins on loopback. Exit code 0 means that every step
was as it should be.`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			self, err := os.Executable()
			if err != nil {
				return err
			}
			opts.Self, opts.Out = self, cmd.OutOrStdout()
			opts.TTY = term.IsTerminal(int(os.Stdout.Fd()))
			return demo.Run(cmd.Context(), opts)
		},
	}
	cmd.Flags().StringVar(&opts.HTML, "html", "", "write the timeline to this file (default: timeline.html in the demo's folder)")
	cmd.Flags().StringVar(&opts.Dir, "dir", "", "folder for models, logs and the timeline (default: a new temporary one)")
	cmd.Flags().BoolVar(&opts.Keep, "keep", false, "leave everything running for a look around, until Ctrl-C")
	return cmd
}
