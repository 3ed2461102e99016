package pointercmd

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/pilotlight-dev/pilotlight/fetcher"
	"github.com/pilotlight-dev/pilotlight/registry"
)

// resolveDoc is the result of resolve.
type resolveDoc struct {
	V        int    `json:"v"`
	Ref      string `json:"ref"`
	Name     string `json:"name,omitempty"`
	Version  string `json:"version,omitempty"`
	Location string `json:"location"`
	// Digest, Objects and Bytes are of the listing; left out with --no-list.
	Digest  string `json:"digest,omitempty"`
	Objects int    `json:"objects,omitempty"`
	Bytes   int64  `json:"bytes,omitempty"`
}

func (d resolveDoc) table(p *page) {
	files := ""
	if d.Digest != "" {
		files = fmt.Sprintf("%d, %s", d.Objects, size(d.Bytes))
	}
	p.fields("model", d.Ref, "name", d.Name, "version", d.Version, "location", d.Location, "digest", d.Digest, "files", files)
}

func resolveCommand(deps Deps) *cobra.Command {
	a := &app{Deps: deps}
	cmd := a.command(&cobra.Command{
		Use:   "resolve REF",
		Short: "Say what a reference means now: version, place and digest",
		Long: `Say what a reference means now: the version, the place of its files, and the
digest that names them. The digest is that of the listing, the one that the pods
report; --no-list leaves the store alone.

` + refHelp + `
REF may also be models:/name/7, models:/name/latest, models:/m-<id>,
s3://bucket/prefix or r2://bucket@account.r2.cloudflarestorage.com/prefix.`,
		Example: `  pilotlight resolve llama@champion
  pilotlight resolve models:/llama/7 --no-list -o json
  pilotlight resolve pointer+s3://weights/llama/production -o yaml`,
		Args:              oneRef,
		ValidArgsFunction: a.completeRef,
	}, a.resolve)
	a.storeFlags(cmd)
	cmd.Flags().BoolVar(&a.noList, "no-list", false, "do not list the store: no digest")
	return cmd
}

func (a *app) resolve(ctx context.Context, args []string) error {
	ref, err := parseRef(args[0])
	if err != nil {
		return err
	}
	resolver, connect, err := a.open(ref)
	if err != nil {
		return err
	}
	bounded, cancel := a.bounded(ctx)
	defer cancel()
	res, err := resolver.Resolve(bounded, ref)
	if err != nil {
		return asking(bounded, err)
	}
	doc := resolveDoc{V: documentVersion, Ref: ref.String(), Name: res.Name, Version: res.Version, Location: res.Location.String()}
	recorded := res.Digest
	res.Digest = "" // what is there is shown, whatever is recorded
	opts, err := a.fetchOptions(bounded, ref, fetcher.Fixed(res), connect)
	if err != nil {
		return err
	}
	if err := allowed(opts, res.Location); err != nil {
		return err
	}
	if !a.noList {
		opts.AnyLayout = true // what is there, is there
		got, err := fetcher.List(ctx, opts)
		if err != nil {
			return err // names the place
		}
		doc.Digest, doc.Objects, doc.Bytes = got.Manifest.Digest, len(got.Manifest.Objects), got.Manifest.Bytes()
		if recorded != "" && recorded != doc.Digest {
			a.note("%s records the digest %s for version %s: fetchers refuse what is there now, unless it is a part of it that --sub-path, --include or --exclude leaves", ref, short(recorded), res.Version)
		}
	}
	return a.print(doc)
}

// allowed is what the fetcher would say, before anything is listed.
func allowed(opts fetcher.Options, loc registry.Location) error {
	if len(opts.AllowLocations) == 0 {
		return nil
	}
	for _, outer := range opts.AllowLocations {
		if loc.Within(outer) {
			return nil
		}
	}
	return fmt.Errorf("resolving %s: %w: it leads to %s, which no --allow-location permits", opts.Ref, registry.ErrBroken, loc)
}
