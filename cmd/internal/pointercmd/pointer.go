package pointercmd

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/pilotlight-dev/pilotlight/cmd/internal/cli"
	"github.com/pilotlight-dev/pilotlight/registry"
)

// pointerDoc is the result of pointer show and pointer init.
type pointerDoc struct {
	V        int    `json:"v"`
	Ref      string `json:"ref"`
	Version  string `json:"version"`
	Location string `json:"location,omitempty"`
	Digest   string `json:"digest,omitempty"`
	Tag      string `json:"tag,omitempty"`
	// Last is the move that led here, if it is recorded.
	Last *registry.Entry `json:"last,omitempty"`
	// Result is "created" or "dry-run" for pointer init.
	Result string `json:"result,omitempty"`
}

func (d pointerDoc) table(p *page) {
	switch d.Result {
	case resultCreated:
		p.line("created %s", d.Ref)
	case resultDryRun:
		p.line("%s would be created, nothing was written", d.Ref)
	}
	by, at, why := "", "", ""
	if d.Last != nil {
		by, at, why = d.Last.By, d.Last.At.UTC().Format(time.RFC3339), d.Last.Message
	}
	p.fields("pointer", d.Ref, "version", d.Version, "location", d.Location, "digest", d.Digest, "tag", d.Tag, "moved by", by, "moved at", at, "message", why)
}

const resultCreated = "created"

func pointerCommand(deps Deps) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "pointer",
		Short: "Make and show pointer objects on the store",
		Long: `Make and show pointer objects: pointer+s3://bucket/key names an object on the
store that says which version serves. It needs no registry, and is moved by a
compare-and-set of the store, so that no move of somebody else is ever lost.`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(pointerInitCommand(deps), pointerShowCommand(deps))
	return cmd
}

func pointerInitCommand(deps Deps) *cobra.Command {
	a := &app{Deps: deps}
	cmd := a.command(&cobra.Command{
		Use:   "init pointer+s3://bucket/key --location s3://bucket/prefix --version NAME",
		Short: "Make a pointer object",
		Long: `Make a pointer object that names its first version, which is proven complete as
before any move. One that exists already is left as it is (code 9).

Exit codes: 0 done; 2 usage, or not confirmed; 3 the location holds nothing usable;
4 the version is incomplete; 7 store unreachable or denied; 9 it exists already.`,
		Example: `  pilotlight pointer init pointer+s3://weights/llama/production --location s3://weights/llama/v7 --version v7
  pilotlight pointer init pointer+s3://weights/llama/production --location s3://weights/llama/v7 --version v7 --dry-run`,
		Args: oneRef,
	}, a.pointerInit)
	f := cmd.Flags()
	f.StringVar(&a.location, "location", "", "where the version's files are (required)")
	f.StringVar(&a.to, "version", "", "name of the version, 1 to 128 characters (required)")
	a.storeFlags(cmd)
	a.writeFlags(cmd)
	return cmd
}

func (a *app) pointerInit(ctx context.Context, args []string) error {
	ref, err := parseRef(args[0])
	switch {
	case err != nil:
		return err
	case ref.Kind != registry.KindPointer:
		return cli.Usage("%s is not a pointer object: want pointer+s3://bucket/key", ref)
	case a.location == "" || a.to == "":
		return cli.Usage("pointer init needs --location s3://bucket/prefix and --version NAME")
	}
	if err := checkVersion(ref, a.to); err != nil {
		return err
	}
	if err := a.mayAsk(); err != nil {
		return err
	}
	backend, connect, err := a.backend(ref)
	if err != nil {
		return err
	}
	maker, ok := backend.(initer)
	if !ok {
		return fmt.Errorf("%s: %w: pointers of this kind cannot be made here", ref, registry.ErrUnsupported)
	}
	timed, cancel := a.bounded(ctx)
	defer cancel()
	res, _, err := a.place(timed, backend, ref, registry.Position{}, a.to)
	if err != nil {
		return err
	}
	target, err := a.prove(ctx, timed, ref, res, "", connect)
	if err != nil {
		return err
	}
	doc := pointerDoc{V: documentVersion, Ref: ref.String(), Version: a.to, Location: target.location.String(), Digest: target.digest, Result: resultDryRun}
	if a.dryRun {
		return a.print(doc)
	}
	if err := a.confirm(ctx, "Create %s at version %s (%s, %d files, %s)?", ref, a.to, target.location, target.objects, size(target.bytes)); err != nil {
		return err
	}
	timed, cancel = a.bounded(ctx)
	defer cancel()
	pos, err := maker.Init(timed, ref, registry.Change{To: a.to, Location: target.location, Digest: target.record, Action: registry.ActionInit, By: a.who(), Message: a.message})
	if err != nil {
		return asking(timed, err)
	}
	doc = describePosition(pos, ref)
	doc.Result = resultCreated
	return a.print(doc)
}

func pointerShowCommand(deps Deps) *cobra.Command {
	a := &app{Deps: deps}
	cmd := a.command(&cobra.Command{
		Use:   "show REF",
		Short: "Show what a pointer records",
		Long:  "Show what a pointer records: its version, for a pointer object also the place and\nthe digest, and the move that led there.\n\n" + refHelp,
		Example: `  pilotlight pointer show pointer+s3://weights/llama/production
  pilotlight pointer show llama@champion -o yaml`,
		Args:              oneRef,
		ValidArgsFunction: a.completeRef,
	}, a.pointerShow)
	a.storeEndpoint(cmd)
	return cmd
}

func (a *app) pointerShow(ctx context.Context, args []string) error {
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
	return a.print(describePosition(pos, ref))
}

func describePosition(pos registry.Position, ref registry.Ref) pointerDoc {
	doc := pointerDoc{V: documentVersion, Ref: ref.String(), Version: pos.Version, Location: pos.Location.String(), Digest: pos.Digest, Tag: pos.Tag}
	if last, ok := arrival(pos.History, pos.Version); ok {
		doc.Last = &last
	}
	return doc
}
