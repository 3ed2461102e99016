package mlflow

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pilotlight-dev/pilotlight/registry"
)

// Bounds of Versions: the newest maxPages x pageSize versions are listed.
const (
	pageSize = 200
	maxPages = 25
)

// Versions lists the versions of ref's model, newest first, with the aliases
// that name them. Of a model with more than 5000 versions the newest 5000 are
// listed. Aliases are the registered model's: a search leaves them out.
func (c *Client) Versions(ctx context.Context, ref registry.Ref) ([]registry.Version, error) {
	versions, err := c.versions(ctx, ref)
	if err != nil {
		return nil, fmt.Errorf("listing the versions of %s at %s: %w", ref.Name, c.Origin(), err)
	}
	return versions, nil
}

func (c *Client) versions(ctx context.Context, ref registry.Ref) ([]registry.Version, error) {
	switch ref.Kind {
	case registry.KindAlias, registry.KindVersion, registry.KindLatest, registry.KindStage:
	default:
		return nil, fmt.Errorf("%w: %s names no registered model", registry.ErrUnsupported, ref)
	}
	m, err := c.model(ctx, ref.Name)
	if err != nil {
		return nil, err
	}
	found, err := c.search(ctx, ref.Name)
	if err != nil {
		return nil, err
	}
	aliases := map[string][]string{}
	for _, a := range m.Aliases {
		aliases[string(a.Version)] = append(aliases[string(a.Version)], a.Alias)
	}
	out := make([]registry.Version, 0, len(found))
	for _, mv := range found {
		v := string(mv.Version)
		slices.Sort(aliases[v])
		out = append(out, registry.Version{
			Version: v, Created: millis(mv.Created), Status: excerpt(mv.Status), Aliases: aliases[v], Description: excerpt(mv.Description),
		})
	}
	slices.SortStableFunc(out, func(a, b registry.Version) int { return cmp.Compare(number(b.Version), number(a.Version)) })
	return out, nil
}

// search pages through the versions of a model.
func (c *Client) search(ctx context.Context, name string) ([]modelVersion, error) {
	quote := "'"
	if strings.Contains(name, quote) {
		quote = `"`
	}
	if strings.Contains(name, quote) {
		return nil, fmt.Errorf("%w: MLflow's filters cannot name a model with both kinds of quotes", registry.ErrUnsupported)
	}
	query := url.Values{
		"filter": {"name=" + quote + name + quote}, "max_results": {strconv.Itoa(pageSize)}, "order_by": {"version_number DESC"},
	}
	var all []modelVersion
	for range maxPages {
		var out struct {
			ModelVersions []modelVersion `json:"model_versions"`
			Next          string         `json:"next_page_token"`
		}
		if err := c.get(ctx, c.registry, "model-versions/search", query, &out); err != nil {
			return nil, err
		}
		for _, mv := range out.ModelVersions {
			if mv.Name == name && mv.Version != "" { // a database may ignore case
				all = append(all, mv)
			}
		}
		switch {
		case out.Next == "":
			return all, nil
		case out.Next == query.Get("page_token"):
			return nil, fmt.Errorf("%w: its list of versions does not end: the same page comes again", registry.ErrBroken)
		}
		query.Set("page_token", out.Next)
	}
	c.log.WarnContext(ctx, "only the newest versions are listed", "model", name, "versions", len(all))
	return all, nil
}

// millis reads Unix milliseconds; what is none is the zero time.
func millis(t text) time.Time {
	n, err := strconv.ParseInt(string(t), 10, 64)
	if err != nil || n <= 0 {
		return time.Time{}
	}
	return time.UnixMilli(n).UTC()
}

// number orders versions; what is no number comes last.
func number(version string) int64 {
	n, err := strconv.ParseInt(version, 10, 64)
	if err != nil {
		return -1
	}
	return n
}
