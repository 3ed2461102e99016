package fetcher

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/pilotlight-dev/pilotlight/fetcher/transfer"
	"github.com/pilotlight-dev/pilotlight/registry"
)

// maxObjects bounds a listing; the largest model repositories have some
// thousands of files.
const maxObjects = 200_000

// maxEmptyPages bounds the pages in a row that hold nothing. A store may send a
// few, while it passes over deleted objects.
const maxEmptyPages = 100

// S3API is the part of the S3 client that fetching needs; *s3.Client has it.
type S3API interface {
	ListObjectsV2(ctx context.Context, in *s3.ListObjectsV2Input, opts ...func(*s3.Options)) (*s3.ListObjectsV2Output, error)
	GetObject(ctx context.Context, in *s3.GetObjectInput, opts ...func(*s3.Options)) (*s3.GetObjectOutput, error)
	HeadObject(ctx context.Context, in *s3.HeadObjectInput, opts ...func(*s3.Options)) (*s3.HeadObjectOutput, error)
	GetObjectAttributes(ctx context.Context, in *s3.GetObjectAttributesInput, opts ...func(*s3.Options)) (*s3.GetObjectAttributesOutput, error)
}

// origin is where the files of one version are read from.
type origin interface {
	transfer.Source
	// list returns every file with its path below the version's folder.
	list(ctx context.Context) ([]Object, error)
	// place names the folder in messages; it ends with a slash.
	place() string
	// setPins says which files will be read next, as they were listed.
	setPins(pins map[string]Object)
	// limits says how these files are to be read.
	limits(ctx context.Context, objects []Object) (limits, error)
}

// limits are what an origin demands of its readers; zero demands nothing.
type limits struct {
	// whole: an object is one request, from its beginning.
	whole bool
	// lookMax is the largest object worth a look at its beginning, in bytes.
	lookMax     int64
	connections int
	stall       time.Duration // before a silent request is given up
}

// open returns the origin of a location.
func (r *run) open(ctx context.Context, loc registry.Location) (origin, error) {
	if loc.Scheme == registry.SchemeArtifacts {
		if r.Artifacts == nil {
			return nil, fmt.Errorf("%w: %s lies behind a tracking server's artifact proxy, and no tracking server is known: only models:/ references lead there", registry.ErrUnsupported, loc)
		}
		return newArtifactSource(r.Artifacts, loc, r.SubPath, r.Logger), nil
	}
	api, err := r.Connect(ctx, loc)
	if err != nil {
		return nil, fmt.Errorf("connecting to the store of %s: %w", loc, err)
	}
	return newSource(api, loc, r.SubPath), nil
}

// source reads the objects below one prefix of one bucket. objects.go has the
// reading of single objects.
type source struct {
	api    S3API
	bucket string
	prefix string // ends with a slash, or is empty for the whole bucket
	// pins are the listed objects by their paths; set before they are read.
	pins map[string]Object
	// versions are the version ids by paths, as far as answers have named them.
	versions sync.Map
	// unversioned: they are not to be asked for.
	unversioned atomic.Bool
}

// newSource binds a location and a sub-path. The prefix ends with a slash so
// that "llama" never takes the objects of its sibling "llama-hf".
func newSource(api S3API, loc registry.Location, subPath string) *source {
	prefix := loc.Prefix
	if subPath != "" {
		prefix = strings.TrimPrefix(prefix+"/"+subPath, "/")
	}
	if prefix != "" {
		prefix += "/"
	}
	return &source{api: api, bucket: loc.Bucket, prefix: prefix}
}

// place names the source in messages.
func (s *source) place() string { return "s3://" + s.bucket + "/" + s.prefix }

// setPins implements origin.
func (s *source) setPins(pins map[string]Object) { s.pins = pins }

// limits implements origin: a store has none.
func (s *source) limits(context.Context, []Object) (limits, error) { return limits{}, nil }

// list returns every object with its path below the prefix. Folder markers
// (empty objects whose key ends with a slash) are left out.
func (s *source) list(ctx context.Context) ([]Object, error) {
	in := &s3.ListObjectsV2Input{
		Bucket: aws.String(s.bucket), Prefix: aws.String(s.prefix),
		EncodingType: types.EncodingTypeUrl, // a key may hold what XML cannot
	}
	var objects []Object
	for empty := 0; ; {
		page, err := s.api.ListObjectsV2(ctx, in)
		if err != nil {
			return nil, fmt.Errorf("listing %s: %w", s.place(), storeError(ctx, err))
		}
		for _, entry := range page.Contents {
			o, marker, err := s.object(entry, page.EncodingType)
			if err != nil {
				return nil, fmt.Errorf("listing %s: %w", s.place(), err)
			}
			if !marker {
				objects = append(objects, o)
			}
		}
		if empty++; len(page.Contents) > 0 {
			empty = 0
		}
		if len(objects) > maxObjects {
			return nil, fmt.Errorf("listing %s: %w: more than %d objects", s.place(), ErrIntegrity, maxObjects)
		}
		next := aws.ToString(page.NextContinuationToken)
		switch {
		case !aws.ToBool(page.IsTruncated):
			return objects, nil
		case empty > maxEmptyPages:
			return nil, fmt.Errorf("listing %s: %w: %d pages in a row were empty", s.place(), ErrStoreUnreachable, empty)
		case next == "" || next == aws.ToString(in.ContinuationToken):
			return nil, fmt.Errorf("listing %s: %w: the store says that the list goes on but not how", s.place(), ErrStoreUnreachable)
		}
		in.ContinuationToken = aws.String(next)
	}
}

// object turns a list entry into an Object, or recognises a folder marker.
func (s *source) object(entry types.Object, encoding types.EncodingType) (o Object, marker bool, err error) {
	key := aws.ToString(entry.Key)
	if encoding == types.EncodingTypeUrl {
		if key, err = url.QueryUnescape(key); err != nil {
			return Object{}, false, fmt.Errorf("%w: the store lists an undecodable key: %w", ErrIntegrity, err)
		}
	}
	rel, ok := strings.CutPrefix(key, s.prefix)
	if !ok {
		return Object{}, false, fmt.Errorf("%w: the store lists %q, which is not below the prefix asked for", ErrIntegrity, key)
	}
	size := aws.ToInt64(entry.Size)
	if size == 0 && (rel == "" || strings.HasSuffix(rel, "/")) {
		return Object{}, true, nil
	}
	etag := strings.Trim(aws.ToString(entry.ETag), `"`)
	if etag == "" || entry.Size == nil || size < 0 {
		return Object{}, false, fmt.Errorf("%w: the store lists %q without an ETag or size, so its content cannot be pinned", ErrIntegrity, key)
	}
	return Object{Path: rel, Size: size, ETag: etag}, false, nil
}
