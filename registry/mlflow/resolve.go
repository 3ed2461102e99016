package mlflow

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/pilotlight-dev/pilotlight/registry"
)

// maxDepth bounds how many references lead from a version to its files. The
// longest chain seen in the field is two: version, logged model, store.
const maxDepth = 4

// Resolve says which version ref means now and where its files are. Errors
// wrap exactly one of package registry's: ErrPending and ErrUnreachable may
// pass, the others need somebody's hand.
func (c *Client) Resolve(ctx context.Context, ref registry.Ref) (registry.Resolution, error) {
	res, err := c.resolve(ctx, ref)
	if err != nil {
		return registry.Resolution{}, fmt.Errorf("resolving %s at %s: %w", ref, c.Origin(), err)
	}
	return res, nil
}

func (c *Client) resolve(ctx context.Context, ref registry.Ref) (registry.Resolution, error) {
	if res, ok := registry.Fixed(ref); ok {
		return res, nil
	}
	trail := []string{ref.String()}
	name, version, uri, err := c.step(ctx, ref)
	if err != nil {
		return registry.Resolution{}, err
	}
	loc, err := c.follow(ctx, uri, trail)
	if err != nil {
		return registry.Resolution{}, err
	}
	return registry.Resolution{Ref: ref, Name: name, Version: version, Location: loc}, nil
}

// step resolves one models:/ reference to the URI that the registry gives for
// it, which may be another reference.
func (c *Client) step(ctx context.Context, ref registry.Ref) (name, version, uri string, err error) {
	if ref.Kind == registry.KindLoggedModel {
		m, err := c.loggedModel(ctx, ref.Name)
		if err == nil {
			err = checkLoggedModel(ref.Name, m)
		}
		return ref.Name, "", m.ArtifactURI, err
	}
	mv, err := c.pick(ctx, ref)
	if err != nil {
		return "", "", "", err
	}
	if err := checkStatus(mv); err != nil {
		return "", "", "", err
	}
	uri, err = c.downloadURI(ctx, ref.Name, string(mv.Version))
	if err == nil && uri == "" {
		err = fmt.Errorf("%w: version %s of %s has no location", registry.ErrBroken, mv.Version, ref.Name)
	}
	return ref.Name, string(mv.Version), uri, err
}

// pick finds the version that a reference names.
func (c *Client) pick(ctx context.Context, ref registry.Ref) (mv modelVersion, err error) {
	switch ref.Kind {
	case registry.KindAlias:
		mv, err = c.byAlias(ctx, ref)
	case registry.KindVersion:
		mv, err = c.version(ctx, ref.Name, ref.Selector)
	case registry.KindLatest:
		mv, err = c.newest(ctx, ref)
	case registry.KindStage:
		mv, err = c.newest(ctx, ref, ref.Selector)
	default:
		return modelVersion{}, fmt.Errorf("%w: a reference of kind %s is not resolved by MLflow", registry.ErrUnsupported, ref.Kind)
	}
	if err == nil && mv.Version == "" {
		err = fmt.Errorf("%w: the answer for %s names no version", registry.ErrBroken, ref)
	}
	return mv, err
}

// newest returns the highest version among the latest of each stage.
func (c *Client) newest(ctx context.Context, ref registry.Ref, stages ...string) (modelVersion, error) {
	versions, err := c.latestVersions(ctx, ref.Name, stages...)
	if err != nil {
		return modelVersion{}, err
	}
	if len(versions) == 0 {
		return modelVersion{}, fmt.Errorf("%w: %s has no such version", registry.ErrNotFound, ref)
	}
	for _, v := range versions {
		if _, err := strconv.ParseUint(string(v.Version), 10, 63); err != nil {
			return modelVersion{}, fmt.Errorf("%w: %q is not a version number", registry.ErrBroken, excerpt(string(v.Version)))
		}
	}
	return slices.MaxFunc(versions, func(a, b modelVersion) int {
		x, _ := strconv.ParseUint(string(a.Version), 10, 63) // checked above
		y, _ := strconv.ParseUint(string(b.Version), 10, 63)
		return cmp.Compare(x, y)
	}), nil
}

// checkStatus accepts READY; servers before MLflow 1.0 send no status.
func checkStatus(mv modelVersion) error {
	switch mv.Status {
	case "READY", "":
		return nil
	case "PENDING_REGISTRATION":
		return fmt.Errorf("%w: version %s of %s is being registered", registry.ErrPending, mv.Version, mv.Name)
	default:
		return fmt.Errorf("%w: version %s of %s has status %s %s", registry.ErrBroken, mv.Version, mv.Name, excerpt(mv.Status), excerpt(mv.Message))
	}
}

func checkLoggedModel(id string, m loggedModel) error {
	switch m.Status {
	case "LOGGED_MODEL_READY", "READY":
	case "LOGGED_MODEL_PENDING", "PENDING":
		return fmt.Errorf("%w: logged model %s is being uploaded", registry.ErrPending, id)
	default:
		return fmt.Errorf("%w: logged model %s has status %q", registry.ErrBroken, id, excerpt(m.Status))
	}
	if m.ArtifactURI == "" {
		return fmt.Errorf("%w: logged model %s has no location", registry.ErrBroken, id)
	}
	return nil
}

// follow walks from a URI to an object store. trail holds the references seen.
func (c *Client) follow(ctx context.Context, uri string, trail []string) (registry.Location, error) {
	for {
		if slices.Contains(trail, uri) {
			return registry.Location{}, fmt.Errorf("%w: it leads in a circle: %s", registry.ErrBroken, chain(trail, uri))
		}
		if len(trail) > maxDepth {
			return registry.Location{}, fmt.Errorf("%w: more than %d steps: %s", registry.ErrBroken, maxDepth, chain(trail, uri))
		}
		trail = append(trail, uri)
		scheme, rest, _ := strings.Cut(uri, ":")
		var err error
		switch strings.ToLower(scheme) {
		case registry.SchemeS3, registry.SchemeR2:
			return parseStored(uri)
		case "models":
			var ref registry.Ref
			if ref, err = registry.ParseRef(uri); err != nil {
				return registry.Location{}, fmt.Errorf("%w: %w", registry.ErrBroken, err)
			}
			_, _, uri, err = c.step(ctx, ref)
		case "mlflow-artifacts":
			return c.proxied(uri)
		case "runs":
			uri, err = c.runURI(ctx, rest)
		default:
			return registry.Location{}, unsupported(uri)
		}
		if err != nil {
			return registry.Location{}, err
		}
	}
}

func parseStored(uri string) (registry.Location, error) {
	loc, err := registry.ParseStored(uri)
	if err != nil {
		return registry.Location{}, fmt.Errorf("%w: %w", registry.ErrBroken, err)
	}
	return loc, nil
}

func unsupported(uri string) error {
	return fmt.Errorf("%w: %q is not in an object store: only s3:// and r2:// locations can be read", registry.ErrUnsupported, bare(uri))
}

func chain(trail []string, next string) string {
	var b strings.Builder
	for _, uri := range trail {
		b.WriteString(bare(uri) + " -> ")
	}
	return b.String() + bare(next)
}

// bare is a URI for messages: without what may be a credential in it, the user
// information and the query.
func bare(uri string) string {
	uri, _, _ = strings.Cut(uri, "?")
	scheme, rest, ok := strings.Cut(uri, "://")
	if !ok {
		return excerpt(uri)
	}
	authority, path, _ := strings.Cut(rest, "/")
	authority = authority[strings.LastIndexByte(authority, '@')+1:]
	return excerpt(scheme + "://" + authority + "/" + path)
}
