package fetcher

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/pilotlight-dev/pilotlight/fetcher/transfer"
	"github.com/pilotlight-dev/pilotlight/internal/s3conf"
)

// errSpoiled marks an answer that is not the one that was asked for.
var errSpoiled = fmt.Errorf("%w: %w", ErrIntegrity, transfer.ErrDoubtful)

// once keeps the SDK from repeating a request: the transfer does, and counts it.
func once(o *s3.Options) { o.RetryMaxAttempts = 1 }

// withChecksums asks for the object's checksum by header. Asked through the
// SDK's own option, it would compute the sum itself, and slowly.
func withChecksums(o *s3.Options) {
	o.APIOptions = append(o.APIOptions, smithyhttp.SetHeaderValue("X-Amz-Checksum-Mode", "ENABLED"))
}

// pin returns what makes a request fail when the object is no longer the listed
// one, its ETag, and what makes it succeed all the same where versions are kept:
// the version that had this ETag, once an answer has named it.
func (s *source) pin(path string) (version, ifMatch string) {
	o := s.pins[path]
	version = o.VersionID
	if learned, ok := s.versions.Load(path); ok && version == "" && !s.unversioned.Load() {
		version, _ = learned.(string)
	}
	return version, quoteETag(o.ETag)
}

// learn notes the version that an answer names. The answer was demanded by the
// listed ETag, so it is the listed version. "null" is none: it can be overwritten.
func (s *source) learn(path string, header http.Header) {
	if id := header.Get("X-Amz-Version-Id"); id != "" && id != "null" && !s.unversioned.Load() {
		s.versions.Store(path, id)
	}
}

// forbidden reports whether a request failed because it named a learned version,
// which takes a permission of its own (s3:GetObjectVersion). From then on none
// is named.
func (s *source) forbidden(path, version string, err error) bool {
	if version == "" || s.pins[path].VersionID != "" || !errors.Is(err, ErrStoreDenied) || errors.Is(err, transfer.ErrCredentials) {
		return false
	}
	s.unversioned.Store(true)
	return true
}

// shortGetter is a client with a shorter way to GET than the SDK's.
type shortGetter interface {
	Do(ctx context.Context, get s3conf.Get) (*http.Response, error)
}

// answer is what both ways of a GET come to.
type answer struct {
	status int
	header http.Header
	length int64 // -1: not announced
	body   io.ReadCloser
}

// Get implements transfer.Source. A range asks for no checksum: stores have none
// to give, and R2 refuses the question.
func (s *source) Get(ctx context.Context, o transfer.Object, off, n int64) (transfer.Body, error) {
	get := s3conf.Get{Bucket: s.bucket, Key: s.prefix + o.Path}
	get.VersionID, get.IfMatch = s.pin(o.Path)
	whole := off == 0 && n == o.Size
	if get.Checksums = whole; !whole {
		get.Range = fmt.Sprintf("bytes=%d-%d", off, off+n-1)
	}
	a, err := s.get(ctx, get)
	if err = storeError(ctx, err); s.forbidden(o.Path, get.VersionID, err) {
		get.VersionID = ""
		a, err = s.get(ctx, get)
		err = storeError(ctx, err)
	}
	if err != nil {
		return transfer.Body{}, err
	}
	s.learn(o.Path, a.header)
	if whole {
		err = a.checkWhole(o)
	} else {
		err = a.checkRange(off, n, o.Size)
	}
	if err != nil {
		return transfer.Body{}, errors.Join(err, a.body.Close())
	}
	body := transfer.Body{ReadCloser: a.body}
	if whole {
		body.Facts = facts(a.header, s.pins[o.Path].ETag)
	}
	return body, nil
}

// get sends a GET once, the short way if there is one.
func (s *source) get(ctx context.Context, get s3conf.Get) (answer, error) {
	if short, ok := s.api.(shortGetter); ok {
		resp, err := short.Do(ctx, get) //nolint:bodyclose // handed on, and closed by the transfer
		if !errors.Is(err, errors.ErrUnsupported) {
			if err != nil {
				return answer{}, err // the caller gives it a class
			}
			return answer{status: resp.StatusCode, header: resp.Header, length: resp.ContentLength, body: resp.Body}, nil
		}
	}
	in := &s3.GetObjectInput{Bucket: aws.String(get.Bucket), Key: aws.String(get.Key), Range: optional(get.Range), IfMatch: optional(get.IfMatch), VersionId: optional(get.VersionID)}
	opts := []func(*s3.Options){once}
	if get.Checksums {
		opts = append(opts, withChecksums)
	}
	out, err := s.api.GetObject(ctx, in, opts...)
	if err != nil {
		return answer{}, err // as above
	}
	a := answer{length: -1, body: out.Body}
	a.header, a.status = rawAnswer(out.ResultMetadata)
	if out.ContentLength != nil {
		a.length = *out.ContentLength
	}
	return a, nil
}

func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func (a answer) checkWhole(o transfer.Object) error {
	if a.length >= 0 && a.length != o.Size {
		return fmt.Errorf("%w: the store announces %d bytes, it listed %d%s", errSpoiled, a.length, o.Size, a.encoding())
	}
	return nil
}

// checkRange demands exactly the range that was asked for. A server or cache
// that ignores Range answers 200 and the whole object, which must not be written
// at the range's place.
func (a answer) checkRange(off, n, size int64) error {
	if a.status != http.StatusPartialContent {
		return fmt.Errorf("%w: the store answers %d to a request for a range%s", errSpoiled, a.status, a.encoding())
	}
	if got, want := a.header.Get("Content-Range"), fmt.Sprintf("bytes %d-%d/%d", off, off+n-1, size); got != want {
		return fmt.Errorf("%w: the store sends the range %q, asked for was %q%s", errSpoiled, oneLine(got), want, a.encoding())
	}
	if a.length >= 0 && a.length != n {
		return fmt.Errorf("%w: the store announces %d bytes of a range of %d%s", errSpoiled, a.length, n, a.encoding())
	}
	return nil
}

// encoding explains a wrong length.
func (a answer) encoding() string {
	if e := a.header.Get("Content-Encoding"); e != "" {
		return fmt.Sprintf(" (Content-Encoding %s: a proxy in between may have changed the content)", oneLine(e))
	}
	return ""
}

// rawAnswer returns the header and status of an answer; none in tests that have
// no HTTP below them.
func rawAnswer(metadata middleware.Metadata) (http.Header, int) {
	if raw, ok := awsmiddleware.GetRawResponse(metadata).(*smithyhttp.Response); ok && raw != nil {
		return raw.Header, raw.StatusCode
	}
	return nil, 0
}

// Facts implements transfer.Source: the sums, and the parts if only they give
// the sums a meaning.
func (s *source) Facts(ctx context.Context, o transfer.Object) (transfer.Facts, error) {
	out, err := s.head(ctx, o, nil, withChecksums)
	if err != nil && refusesChecksums(err) {
		out, err = s.head(ctx, o, nil)
	}
	if err != nil && unexplained(err) {
		if err = s.explain(ctx, o); err == nil {
			out, err = s.head(ctx, o, nil, withChecksums)
		}
	}
	if err != nil {
		return transfer.Facts{}, storeError(ctx, err)
	}
	if n := aws.ToInt64(out.ContentLength); out.ContentLength != nil && n != o.Size {
		return transfer.Facts{}, fmt.Errorf("%w: the object has %d bytes, listed were %d", errSpoiled, n, o.Size)
	}
	header, _ := rawAnswer(out.ResultMetadata)
	s.learn(o.Path, header)
	facts := facts(header, s.pins[o.Path].ETag)
	for _, sum := range facts.Sums {
		if sum.Parts == 0 {
			return facts, nil
		}
	}
	if len(facts.Sums) > 0 {
		facts.PartSizes, err = s.parts(ctx, o, facts.Sums[0].Parts)
	}
	return facts, err
}

func (s *source) head(ctx context.Context, o transfer.Object, part *int32, opts ...func(*s3.Options)) (*s3.HeadObjectOutput, error) {
	in := &s3.HeadObjectInput{Bucket: aws.String(s.bucket), Key: aws.String(s.prefix + o.Path), PartNumber: part}
	version, ifMatch := s.pin(o.Path)
	in.VersionId, in.IfMatch = optional(version), optional(ifMatch)
	out, err := s.api.HeadObject(ctx, in, append(opts, once)...)
	if err != nil && s.forbidden(o.Path, version, storeError(ctx, err)) {
		in.VersionId = nil
		out, err = s.api.HeadObject(ctx, in, append(opts, once)...)
	}
	return out, err // its callers give the class
}

// unexplained recognises a refusal of a HEAD, which has no body that says why:
// credentials that have run out look like a request that is wrong.
func unexplained(err error) bool {
	var resp *smithyhttp.ResponseError
	return errors.As(err, &resp) && (resp.HTTPStatusCode() == http.StatusBadRequest || resp.HTTPStatusCode() == http.StatusForbidden)
}

// explain asks for a byte of an object whose HEAD was refused, and returns the
// error that comes back, with its reason; nil if the byte does.
func (s *source) explain(ctx context.Context, o transfer.Object) error {
	get := s3conf.Get{Bucket: s.bucket, Key: s.prefix + o.Path, Range: "bytes=0-0"}
	get.VersionID, get.IfMatch = s.pin(o.Path)
	a, err := s.get(ctx, get)
	if err != nil {
		return err // its callers give the class
	}
	return a.body.Close()
}

// refusesChecksums recognises a store that does not know the question. A HEAD's
// error has no body, so the status is all there is.
func refusesChecksums(err error) bool {
	var resp *smithyhttp.ResponseError
	return errors.As(err, &resp) && (resp.HTTPStatusCode() == http.StatusBadRequest || resp.HTTPStatusCode() == http.StatusNotImplemented)
}

// parts finds the sizes of an object's stored parts: as listed by
// GetObjectAttributes, else from the size of the first, since all but the last
// are nearly always equal. What is wrong here is found by the sum. It returns
// nothing when the store does not say.
func (s *source) parts(ctx context.Context, o transfer.Object, count int) ([]int64, error) {
	if sizes, ok := s.listedParts(ctx, o, count); ok {
		return sizes, nil
	}
	out, err := s.head(ctx, o, aws.Int32(1))
	if err != nil {
		if err := storeError(ctx, err); errors.Is(err, ErrStoreUnreachable) || ctx.Err() != nil {
			return nil, err
		}
		return nil, nil
	}
	first := aws.ToInt64(out.ContentLength)
	if first <= 0 || (o.Size+first-1)/first != int64(count) {
		return nil, nil
	}
	var sizes []int64
	for left := o.Size; left > 0; left -= first {
		sizes = append(sizes, min(first, left))
	}
	return sizes, nil
}

func (s *source) listedParts(ctx context.Context, o transfer.Object, count int) ([]int64, bool) {
	in := &s3.GetObjectAttributesInput{
		Bucket: aws.String(s.bucket), Key: aws.String(s.prefix + o.Path), MaxParts: aws.Int32(1000),
		ObjectAttributes: []types.ObjectAttributes{types.ObjectAttributesObjectParts, types.ObjectAttributesEtag},
	}
	version, _ := s.pin(o.Path)
	in.VersionId = optional(version)
	var sizes []int64
	for {
		out, err := s.api.GetObjectAttributes(ctx, in, once)
		if err != nil || out.ObjectParts == nil || strings.Trim(aws.ToString(out.ETag), `"`) != s.pins[o.Path].ETag {
			return nil, false // needs a permission of its own, and not every store has it
		}
		for _, p := range out.ObjectParts.Parts {
			sizes = append(sizes, aws.ToInt64(p.Size))
		}
		next := aws.ToString(out.ObjectParts.NextPartNumberMarker)
		if !aws.ToBool(out.ObjectParts.IsTruncated) || next == aws.ToString(in.PartNumberMarker) {
			return sizes, len(sizes) == count
		}
		in.PartNumberMarker = aws.String(next)
	}
}

// quoteETag writes an ETag as a header wants it.
func quoteETag(etag string) string {
	if strings.HasPrefix(etag, `W/`) {
		return etag
	}
	return `"` + etag + `"`
}
