package fetchercmd

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/pilotlight-dev/pilotlight/fetcher"
)

func (a *app) initCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "init --model REF --root DIR",
		Short: "Fetch the version that a reference means now, publish it, exit",
		Long: `Resolve REF once, fetch that version into DIR/versions, verify it, and make
DIR/current name it. When the version is there already, only the link moves.

` + pathHelp + `

With --read-only nothing is fetched or published: init waits until the writer
of a shared volume (pilotlight-fetcher agent --writer) has, and sets --link.

` + refHelp + `

` + exitCodesHelp,
		Example: `  pilotlight-fetcher init --model models:/llama@champion --root /models
  pilotlight-fetcher init --model s3://weights/llama/7 --root /models --dry-run
  pilotlight-fetcher init --model llama@champion --root /shared --read-only --link /pod/model`,
		Args: usageArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.runInit(cmd.Context()) },
	}
	a.addRunFlags(cmd, "bound of the whole run; until then an unreachable registry or store is tried again")
	cmd.Flags().BoolVar(&a.dryRun, "dry-run", false, "print the plan and write nothing")
	return cmd
}

func (a *app) runInit(ctx context.Context) error {
	tty := isTerminal(a.stderr)
	bar := newProgress(a.stderr, tty && a.flags.logFormat != "json")
	if err := a.setLogger(tty, bar); err != nil {
		return err
	}
	opts, err := a.options()
	if err != nil {
		return err
	}
	if a.dryRun && opts.ReadOnly {
		return fmt.Errorf("%w: --dry-run has nothing to plan for --read-only", fetcher.ErrUsage)
	}
	if a.dryRun {
		plan, err := fetcher.DryRun(ctx, opts)
		if err != nil {
			return err // the package's errors name action and thing
		}
		return plan.Write(a.stdout) // as above
	}
	opts.Progress = bar
	stop := bar.start(ctx, a.log)
	res, err := fetcher.Init(ctx, opts)
	stop()
	if err != nil {
		return err // as above
	}
	a.summary(ctx, res, false)
	if a.json {
		return nil // the log has it
	}
	if _, err := fmt.Fprintf(a.stdout, "model      %s\ntokenizer  %s\n", res.ModelPath(), res.TokenizerPath()); err != nil {
		return fmt.Errorf("printing where the model is: %w", err)
	}
	return nil
}

// summary is the last line: what is published, and how fast it came.
func (a *app) summary(ctx context.Context, res fetcher.Result, prefetched bool) {
	m := res.Manifest
	message := "published"
	switch {
	case a.flags.readOnly:
		message = "linked"
	case prefetched:
		message = "prefetched"
	case !res.Changed:
		message = "already published"
	}
	seconds := res.Duration.Seconds()
	fields := []any{
		"path", res.Path, "model", res.ModelPath(), "tokenizer", res.TokenizerPath(), "digest", m.Short(), "version", m.Version, "reused", res.Reused,
		"files", len(m.Objects), "bytes", res.Downloaded, "seconds", rounded(seconds),
		"megabytes_per_second", rounded(float64(res.Downloaded) / 1e6 / max(seconds, 1e-3)), "retries", res.Retries,
	}
	a.log.InfoContext(ctx, message, append(fields, transferred(res)...)...)
}
