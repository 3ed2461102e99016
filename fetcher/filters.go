package fetcher

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/pilotlight-dev/pilotlight/fetcher/transfer"
)

// newFilters gives globs the form that a manifest records: "+<glob>" for those
// to include, "-<glob>" for those to exclude, sorted, each once. nil means that
// everything stays. Errors wrap ErrUsage.
//
// A glob is one of package path, per component, and "**" is any number of
// components: "*.safetensors", "original/**", "/config.json". One without a
// slash matches names in every folder; one that ends with a slash, all that is
// in that folder.
func newFilters(include, exclude []string) ([]string, error) {
	var out []string
	for sign, globs := range map[string][]string{"+": include, "-": exclude} {
		for _, glob := range globs {
			for part := range strings.SplitSeq(glob, "/") {
				if _, err := path.Match(part, ""); err != nil {
					return nil, fmt.Errorf("%w: glob %q: %w", ErrUsage, oneLine(glob), err)
				}
			}
			if strings.Trim(glob, "/") == "" {
				return nil, fmt.Errorf("%w: glob %q matches nothing: want one such as *.safetensors or original/**", ErrUsage, oneLine(glob))
			}
			out = append(out, sign+glob)
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// selected reports whether filters leave a path: some include, if there is any,
// matches it and no exclude does.
func selected(filters []string, name string) bool {
	wanted, only := false, false
	for _, f := range filters {
		hit := matchGlob(f[1:], name)
		switch {
		case f[0] == '-' && hit:
			return false
		case f[0] == '+':
			only, wanted = true, wanted || hit
		}
	}
	return wanted || !only
}

func matchGlob(glob, name string) bool {
	if strings.HasSuffix(glob, "/") {
		glob += "**"
	}
	if !strings.Contains(glob, "/") {
		ok, err := path.Match(glob, path.Base(name))
		return ok && err == nil
	}
	return matchParts(strings.Split(strings.TrimPrefix(glob, "/"), "/"), strings.Split(name, "/"))
}

// matchParts matches components. reach[j] says whether the globs so far match
// the first j names, so that many "**" cost no more than globs times names.
func matchParts(globs, names []string) bool {
	reach := make([]bool, len(names)+1)
	reach[0] = true
	for _, g := range globs {
		next := make([]bool, len(names)+1)
		for j := range next {
			if g == "**" {
				next[j] = reach[j] || j > 0 && next[j-1]
			} else if j > 0 && reach[j-1] {
				ok, err := path.Match(g, names[j-1])
				next[j] = ok && err == nil
			}
		}
		reach = next
	}
	return reach[len(names)]
}

// filter leaves of a listing what was chosen. An index that is left must find
// every shard that it names, which is proven before anything large is fetched.
func (r *run) filter(ctx context.Context, all []Object) ([]Object, error) {
	if len(r.filters) == 0 {
		return all, nil
	}
	var left []Object
	have := map[string]bool{}
	shardsGone := false
	for _, o := range all {
		if have[o.Path] = selected(r.filters, o.Path); have[o.Path] {
			left = append(left, o)
		} else {
			shardsGone = shardsGone || strings.HasSuffix(o.Path, ".safetensors")
		}
	}
	if len(left) == 0 && len(all) > 0 {
		return nil, fmt.Errorf("%w: --include and --exclude leave none of the %d objects below %s", ErrUsage, len(all), r.source.place())
	}
	for _, o := range left {
		if !shardsGone || !strings.HasSuffix(o.Path, ".safetensors.index.json") || o.Size > maxIndex {
			continue
		}
		if err := r.checkRemoteIndex(ctx, o, have); err != nil {
			return nil, fmt.Errorf("checking %s against --include and --exclude: %w", o.Path, err)
		}
	}
	return left, nil
}

func (r *run) checkRemoteIndex(ctx context.Context, o Object, have map[string]bool) error {
	r.source.setPins(map[string]Object{o.Path: o})
	return r.patiently(ctx, func(ctx context.Context) error {
		body, err := r.source.Get(ctx, transfer.Object{Path: o.Path, Size: o.Size}, 0, o.Size)
		if err != nil {
			return err // the caller names the object
		}
		text, err := io.ReadAll(io.LimitReader(body, maxIndex))
		if cerr := body.Close(); err == nil {
			err = cerr
		}
		if errors.Is(err, ErrIntegrity) {
			return err // as above
		}
		if err != nil {
			return fmt.Errorf("%w: %w", ErrStoreUnreachable, err)
		}
		return checkIndex(strings.NewReader(string(text)), path.Dir(o.Path), have) // as above
	})
}
