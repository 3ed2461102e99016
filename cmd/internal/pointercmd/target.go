package pointercmd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/pilotlight-dev/pilotlight/cmd/internal/cli"
	"github.com/pilotlight-dev/pilotlight/registry"
)

// classed is an error whose text is complete without that of its class.
type classed struct {
	text  string
	class error
}

func (e classed) Error() string { return e.text }
func (e classed) Unwrap() error { return e.class }

func classify(class error, format string, args ...any) error {
	return classed{fmt.Sprintf(format, args...), class}
}

// maxCandidates bounds a list of versions in a message.
const maxCandidates = 20

// before decides where a rollback without --to goes: to what served before. A
// second rollback in a row would only undo the first, which nobody asks for on
// purpose with this word: it is refused, with the commands for both meanings.
func (a *app) before(ctx context.Context, backend Backend, ref registry.Ref, pos registry.Position) (string, error) {
	observed := a.observed(ctx, ref).about(pos.History, pos.Version)
	if err := a.agree(ref, pos, observed); err != nil {
		return "", err
	}
	history := a.Merge(pos.History, observed.lists()...)
	to, ok := a.Previous(history, pos.Version)
	if !ok {
		return "", a.candidates(ctx, backend, ref, pos)
	}
	last, ok := arrival(history, pos.Version)
	if !ok || last.Action != registry.ActionRollback || last.From != to {
		return to, nil
	}
	further, ok := furtherBack(history, pos.Version, to)
	if !ok {
		return "", cli.Usage("%s stands at %s by a rollback from %s, and nothing is known to have served before it: to return to %s: pilotlight promote %s --to %s; to go to another: pilotlight rollback %s --to VERSION",
			ref, pos.Version, to, to, ref, to, ref)
	}
	return "", cli.Usage("%s stands at %s by a rollback from %s: to go further back: pilotlight rollback %s --to %s; to return to %s: pilotlight promote %s --to %s",
		ref, pos.Version, to, ref, further, to, ref, to)
}

// furtherBack is what served before current came to serve for the sake of going
// forward: rollbacks are gone through, because what they left lies ahead. left is
// the version that the last one left.
func furtherBack(history []registry.Entry, current, left string) (version string, ok bool) {
	came := false
	for _, e := range registry.Settle(history, current) {
		if e.State != registry.StateDone || e.Action == registry.ActionRollback {
			continue
		}
		came = came || e.To == current
		if came && e.From != "" && e.From != current && e.From != left {
			return e.From, true
		}
	}
	return "", false
}

// arrival is the move by which a pointer came to where it stands.
func arrival(history []registry.Entry, current string) (registry.Entry, bool) {
	for _, e := range history {
		if e.To == current {
			return e, true
		}
		if e.State == registry.StateDone {
			break
		}
	}
	return registry.Entry{}, false
}

// candidates is the refusal to guess: what there is, and the command to type.
func (a *app) candidates(ctx context.Context, backend Backend, ref registry.Ref, pos registry.Position) error {
	versions, err := backend.Versions(ctx, ref)
	if err != nil && !errors.Is(err, registry.ErrUnsupported) {
		return fmt.Errorf("looking for versions that %s could go back to: %w", ref, asking(ctx, err))
	}
	versions = slices.DeleteFunc(versions, func(v registry.Version) bool { return v.Version == pos.Version })
	if len(versions) == 0 {
		return classify(registry.ErrNotFound, "%s stands at %s, and there is no other version to go back to", ref, pos.Version)
	}
	var texts []string
	for i, v := range versions {
		if i == maxCandidates {
			texts = append(texts, fmt.Sprintf("and %d more", len(versions)-i))
			break
		}
		texts = append(texts, candidate(v))
	}
	return classify(registry.ErrNotFound, "nothing is known about what served before %s at %s: choose with pilotlight rollback %s --to VERSION; there are %s",
		pos.Version, ref, ref, strings.Join(texts, ", "))
}

func candidate(v registry.Version) string {
	var about []string
	if v.Status != "" && v.Status != "READY" {
		about = append(about, v.Status)
	}
	if !v.Created.IsZero() {
		about = append(about, v.Created.UTC().Format("2006-01-02"))
	}
	for _, alias := range v.Aliases {
		about = append(about, "@"+alias)
	}
	if len(about) == 0 {
		return v.Version
	}
	return v.Version + " (" + strings.Join(about, ", ") + ")"
}

// checkVersion refuses a --to that cannot be one.
func checkVersion(ref registry.Ref, to string) error {
	if ref.Kind != registry.KindAlias {
		if to == "" || clean(to) != to || len(to) > 128 {
			return cli.Usage("--to: want a version of 1 to 128 characters")
		}
		return nil
	}
	if v, err := registry.ParseRef("models:/" + ref.Name + "/" + to); err != nil || v.Kind != registry.KindVersion {
		return cli.Usage("--to: %q is not a version of %s: want a number, such as 7", to, ref.Name)
	}
	if plain := strings.TrimLeft(to, "0"); plain == "" {
		return cli.Usage("--to: %q is not a version of %s: they begin at 1", to, ref.Name)
	} else if plain != to {
		return cli.Usage("--to: %q is not how the registry writes it: want %s", to, plain)
	}
	return nil
}

// place says where a version's files are, and the digest that the pointer
// recorded for them, if it did. The registry refuses a version that is not
// ready.
func (a *app) place(ctx context.Context, backend Backend, ref registry.Ref, pos registry.Position, to string) (res registry.Resolution, digest string, err error) {
	if ref.Kind == registry.KindAlias {
		if a.location != "" {
			return registry.Resolution{}, "", cli.Usage("--location is for pointer objects: the registry knows where version %s of %s is", to, ref.Name)
		}
		res, err = backend.Resolve(ctx, registry.Ref{Kind: registry.KindVersion, Name: ref.Name, Selector: to})
		return res, "", asking(ctx, err)
	}
	res = registry.Resolution{Ref: ref, Version: to}
	recorded, digest := recordedPlace(pos, to)
	switch {
	case a.location == "" && recorded == "":
		return registry.Resolution{}, "", cli.Usage("nothing is recorded about version %q of %s: say where its files are with --location s3://bucket/prefix", to, ref)
	case a.location != "" && recorded != "" && strings.TrimRight(a.location, "/") != recorded:
		return registry.Resolution{}, "", cli.Usage("version %q of %s is recorded at %s: leave --location out, or give the version at %s another name", to, ref, recorded, a.location)
	case a.location != "":
		res.Location, err = registry.ParseStored(a.location)
		if err != nil {
			err = cli.Usage("--location: %w", err)
		}
	default:
		if res.Location, err = registry.ParseStored(recorded); err != nil {
			err = fmt.Errorf("the place that %s records for version %q: %w: %w", ref, to, registry.ErrBroken, err)
		}
	}
	return res, digest, err
}

// recordedPlace is what a pointer object says about a version.
func recordedPlace(pos registry.Position, version string) (location, digest string) {
	if pos.Version == version && pos.Location != (registry.Location{}) {
		return pos.Location.String(), pos.Digest
	}
	for _, e := range pos.History {
		if e.To == version && e.Location != "" {
			return e.Location, e.Digest
		}
	}
	return "", ""
}
