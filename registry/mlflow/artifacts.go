package mlflow

import (
	"fmt"
	"strings"

	"github.com/pilotlight-dev/pilotlight/registry"
)

// artifactScheme begins the locations behind a tracking server's proxy.
const artifactScheme = registry.SchemeArtifacts + ":"

// mapping is one entry of Config.ArtifactMap: files below from lie below to.
type mapping struct {
	host string // of mlflow-artifacts://host/, empty for the configured server
	path string // without slashes at its ends, empty for the root
	to   registry.Location
}

func parseArtifactMap(entries []string) ([]mapping, error) {
	var out []mapping
	for _, entry := range entries {
		from, to, ok := strings.Cut(entry, "=")
		host, path, isArtifact := splitArtifact(strings.TrimSpace(from))
		if !ok || !isArtifact {
			return nil, fmt.Errorf("%w: PILOTLIGHT_ARTIFACT_MAP: %q: want mlflow-artifacts:/=s3://bucket/prefix", ErrConfig, excerpt(entry))
		}
		loc, err := registry.ParseStored(strings.TrimSpace(to))
		if err != nil {
			return nil, fmt.Errorf("%w: PILOTLIGHT_ARTIFACT_MAP: %w", ErrConfig, err)
		}
		out = append(out, mapping{host: host, path: strings.Trim(path, "/"), to: loc})
	}
	return out, nil
}

// splitArtifact reads mlflow-artifacts:/path and mlflow-artifacts://host/path.
func splitArtifact(uri string) (host, path string, ok bool) {
	if len(uri) < len(artifactScheme) || !strings.EqualFold(uri[:len(artifactScheme)], artifactScheme) {
		return "", "", false
	}
	rest := uri[len(artifactScheme):]
	if after, has := strings.CutPrefix(rest, "//"); has && !strings.HasPrefix(after, "/") {
		host, path, _ = strings.Cut(after, "/")
		host = host[strings.LastIndexByte(host, '@')+1:] // a password is of no use here
		return strings.ToLower(host), "/" + path, true
	}
	return "", rest, strings.HasPrefix(rest, "/")
}

// proxied finds where the files of a mlflow-artifacts: location lie: in a store,
// where the map says so, else behind the server itself. No request is made: a
// location that names another server gets nothing from us, least of all
// credentials. It is mapped only by an entry that names that server.
func (c *Client) proxied(uri string) (registry.Location, error) {
	host, path, ok := splitArtifact(uri)
	if !ok || strings.ContainsAny(path, "?#") {
		return registry.Location{}, fmt.Errorf("%w: %q is not a location: want mlflow-artifacts:/path", registry.ErrBroken, bare(uri))
	}
	if host == strings.ToLower(c.tracking.Host) {
		host = ""
	}
	path = c.inWorkspace(strings.Trim(path, "/"))
	var best *mapping
	for i, m := range c.artifacts {
		own := m.host
		if own == strings.ToLower(c.tracking.Host) {
			own = ""
		}
		if own == host && below(path, m.path) && (best == nil || len(m.path) > len(best.path)) {
			best = &c.artifacts[i]
		}
	}
	switch {
	case best == nil && host != "":
		return registry.Location{}, elsewhere(uri, host)
	case best == nil:
		loc, err := registry.ParseLocation(artifactScheme + "/" + path)
		if err != nil {
			return registry.Location{}, fmt.Errorf("%w: %w", registry.ErrBroken, err)
		}
		return loc, nil
	}
	loc := best.to
	rest := strings.Trim(strings.TrimPrefix(path, best.path), "/")
	loc.Prefix = strings.Trim(loc.Prefix+"/"+rest, "/")
	return parseStored(loc.String()) // refuses segments such as ".."
}

// inWorkspace is where the server keeps a path: workspaces other than "default"
// have a folder of their own, which a location may name already.
func (c *Client) inWorkspace(path string) string {
	if c.cfg.Workspace == "" || c.cfg.Workspace == "default" {
		return path
	}
	folder := "workspaces/" + c.cfg.Workspace
	if below(path, folder) {
		return path
	}
	return strings.TrimSuffix(folder+"/"+path, "/")
}

// below compares whole segments.
func below(path, outer string) bool {
	return outer == "" || path == outer || strings.HasPrefix(path, outer+"/")
}

func elsewhere(uri, host string) error {
	return fmt.Errorf("%w: %q lies behind the artifact proxy of another server than MLFLOW_TRACKING_URI names, and that one is not asked: "+
		"set PILOTLIGHT_ARTIFACT_MAP=%s//%s/=s3://bucket/prefix to its --artifacts-destination, or register versions with their s3:// source",
		registry.ErrUnsupported, bare(uri), artifactScheme, host)
}
