package fetcher

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/pilotlight-dev/pilotlight/registry"
)

// errNotAsRecorded: what the store lists is not what the pointer object says.
// It comes with ErrIntegrity.
var errNotAsRecorded = errors.New("the files are not those that the pointer records")

// checkRecorded compares the digest of a listing with the one that a pointer
// object recorded when it was moved there; other pointers record none. all is
// what was listed before filters. A fetcher that takes a part only (a sub-path,
// filters) has another digest than the whole, which counts as well.
func (r *run) checkRecorded(ctx context.Context, p Pointer, digest string, all []Object) error {
	p = r.demanded(p)
	if r.Ref.Kind != registry.KindPointer || p.ID == "" || p.ID == digest {
		return nil
	}
	if r.SubPath != "" || len(r.filters) > 0 {
		whole, err := r.wholeDigest(ctx, p.Location, all)
		if err != nil || whole == p.ID {
			return err
		}
	}
	return fmt.Errorf("listing %s: %w: %w: they have the digest %.12s, for version %s it records %.12s: they were overwritten, or it was moved there with another --sub-path, --include or --exclude (pilotlight promote moves it again)",
		r.source.place(), ErrIntegrity, errNotAsRecorded, digest, p.Version, p.ID)
}

// askPinned bounds the question what the pointer says of a pinned place: a pod
// that is pinned starts whatever has become of its pointer.
const askPinned = 10 * time.Second

// ofPinned asks a pointer object once what it records for the place that this
// pod is pinned to. The answer is zero, and the log says so, where the pointer
// names another place by now or does not answer.
func (r *run) ofPinned(ctx context.Context, place Pointer) Pointer {
	if r.Pin == "" || r.Offline || r.Ref.Kind != registry.KindPointer {
		return Pointer{}
	}
	bounded, cancel := context.WithTimeout(ctx, askPinned)
	defer cancel()
	p, err := r.resolve(bounded, r.Ref)
	why := ""
	switch {
	case err != nil:
		why = err.Error()
	case strings.TrimSuffix(p.Location.String(), "/") != strings.TrimSuffix(place.Location.String(), "/"):
		why = "the pointer names " + p.Location.String()
	case p.ID == "":
		why = "the pointer records none"
	default:
		return p
	}
	r.Logger.WarnContext(ctx, "the pinned version is not compared with a recorded digest", "pinned", r.Pin, "why", why)
	return Pointer{}
}

// demanded is the pointer whose digest the files must have.
func (r *run) demanded(p Pointer) Pointer {
	if r.Pin != "" && r.records.ID != "" {
		return r.records
	}
	return p
}

// isRecordedBy reports whether a version on disk is, or is a part of, what a
// pointer object records: by its digest, or by the one that it was compared with
// when it was fetched, which is that of the whole.
func (m Manifest) isRecordedBy(p Pointer) bool {
	return p.ID != "" && (m.PointerID == p.ID || m.Digest == p.ID)
}

// wholeDigest is the digest of all that lies at a location. all is that of the
// sub-path, if there is one.
func (r *run) wholeDigest(ctx context.Context, at registry.Location, all []Object) (string, error) {
	if r.SubPath == "" {
		return Digest("", nil, sortedByPath(all))
	}
	whole := &run{Options: r.Options}
	whole.SubPath = ""
	from, err := whole.open(ctx, at)
	if err != nil {
		return "", err
	}
	err = r.patiently(ctx, func(ctx context.Context) (err error) {
		all, err = from.list(ctx)
		return err
	})
	if err != nil {
		return "", err
	}
	return Digest("", nil, sortedByPath(all))
}
