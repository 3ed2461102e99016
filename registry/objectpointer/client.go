package objectpointer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"

	"github.com/pilotlight-dev/pilotlight/registry"
)

// Store is what of an S3 client a pointer needs; *s3.Client is one.
type Store interface {
	GetObject(ctx context.Context, in *s3.GetObjectInput, opts ...func(*s3.Options)) (*s3.GetObjectOutput, error)
	PutObject(ctx context.Context, in *s3.PutObjectInput, opts ...func(*s3.Options)) (*s3.PutObjectOutput, error)
}

// ErrNoConditions: the store ignores If-Match or does not know it, so that two
// movers at once can overwrite each other.
var ErrNoConditions = errors.New("the store has no conditional writes")

// DefaultTimeout is Options.Timeout's default.
const DefaultTimeout = 30 * time.Second

// Options adjusts New. The zero value works.
type Options struct {
	// RequireConditions makes the first Move or Init in a bucket ask the store
	// with a PUT that it has to refuse, beside the pointer at
	// <key>.pilotlight-probe, and fail with ErrNoConditions when it does not.
	// Only such a store keeps that empty object.
	RequireConditions bool
	// Timeout bounds one request; 0 means DefaultTimeout.
	Timeout time.Duration
	// Logger is told about histories that cannot be read; nil discards.
	Logger *slog.Logger
	// Now dates the moves; nil is time.Now.
	Now func() time.Time
}

// Client reads and moves pointer objects of one store. It is safe for
// concurrent use.
type Client struct {
	store Store
	opts  Options

	mu       sync.Mutex
	probed   map[string]bool // buckets that refuse what they must
	resolved map[registry.Location]resolved
}

// resolved is what a pointer meant when it had this ETag.
type resolved struct {
	etag string
	res  registry.Resolution
}

// maxResolved bounds the answers that are kept; a program follows one pointer.
const maxResolved = 16

// New returns a client; nothing is sent.
func New(store Store, opts Options) *Client {
	if opts.Timeout <= 0 {
		opts.Timeout = DefaultTimeout
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	return &Client{store: store, opts: opts, probed: map[string]bool{}, resolved: map[registry.Location]resolved{}}
}

// Read says where a pointer stands. Errors wrap one of package registry's. A
// history that cannot be read is Position.HistoryErr and no error.
func (c *Client) Read(ctx context.Context, ref registry.Ref) (registry.Position, error) {
	pos, err := c.read(ctx, ref)
	if err != nil {
		return registry.Position{}, fmt.Errorf("reading %s: %w", ref, err)
	}
	return pos, nil
}

// Resolve says which version a pointer means now and where its files are. It is
// one GET, which a store answers without a body while the pointer is as it was
// at the last Resolve (If-None-Match).
func (c *Client) Resolve(ctx context.Context, ref registry.Ref) (registry.Resolution, error) {
	c.mu.Lock()
	before := c.resolved[ref.Location]
	c.mu.Unlock()
	pos, err := c.readUnless(ctx, ref, before.etag)
	switch {
	case errors.Is(err, errUnchanged):
		return before.res, nil
	case err != nil:
		return registry.Resolution{}, fmt.Errorf("resolving %s: %w", ref, err)
	}
	res := registry.Resolution{Ref: ref, Version: pos.Version, Location: pos.Location, Digest: pos.Digest}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.resolved) >= maxResolved {
		clear(c.resolved)
	}
	c.resolved[ref.Location] = resolved{pos.Tag, res}
	return res, nil
}

// Versions lists the versions that the pointer has named, newest first: those
// that it named last come first. Created is when it was last moved there. Their
// locations and digests are in the history (Position.History).
func (c *Client) Versions(ctx context.Context, ref registry.Ref) ([]registry.Version, error) {
	pos, err := c.read(ctx, ref)
	if err != nil {
		return nil, fmt.Errorf("listing the versions of %s: %w", ref, err)
	}
	out := []registry.Version{{Version: pos.Version}}
	for _, e := range pos.History {
		if e.State != registry.StateDone {
			continue
		}
		i := slices.IndexFunc(out, func(v registry.Version) bool { return v.Version == e.To })
		if i < 0 {
			out = append(out, registry.Version{Version: e.To, Created: e.At})
		} else if out[i].Created.IsZero() {
			out[i].Created = e.At
		}
	}
	return out, nil
}

func (c *Client) read(ctx context.Context, ref registry.Ref) (registry.Position, error) {
	return c.readUnless(ctx, ref, "")
}

// readUnless is errUnchanged for an object that still has a known ETag.
func (c *Client) readUnless(ctx context.Context, ref registry.Ref, known string) (registry.Position, error) {
	if ref.Kind != registry.KindPointer {
		return registry.Position{}, fmt.Errorf("%w: it is not a pointer object (pointer+s3://bucket/key)", registry.ErrUnsupported)
	}
	data, etag, err := c.get(ctx, ref.Location, known)
	if err != nil {
		return registry.Position{}, err
	}
	pos, err := decode(data)
	if err != nil {
		return registry.Position{}, err
	}
	pos.Ref, pos.Tag = ref, etag
	if pos.HistoryErr != nil {
		c.opts.Logger.WarnContext(ctx, "the recorded history cannot be read in full; the pointer is not affected", "ref", ref.String(), "error", pos.HistoryErr)
	}
	return pos, nil
}

// errUnchanged: the object still has the ETag that was named.
var errUnchanged = errors.New("it is unchanged")

// get reads an object, unless it still has a known ETag.
func (c *Client) get(ctx context.Context, at registry.Location, known string) (data []byte, etag string, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.opts.Timeout)
	defer cancel()
	in := &s3.GetObjectInput{Bucket: aws.String(at.Bucket), Key: aws.String(at.Prefix)}
	if known != "" {
		in.IfNoneMatch = aws.String(known)
	}
	out, err := c.store.GetObject(ctx, in)
	if known != "" && statusOf(err) == http.StatusNotModified {
		return nil, "", errUnchanged
	}
	if err != nil {
		return nil, "", classify(err)
	}
	data, err = io.ReadAll(io.LimitReader(out.Body, MaxSize+1))
	if cerr := out.Body.Close(); err == nil {
		err = cerr
	}
	switch {
	case err != nil:
		return nil, "", fmt.Errorf("%w: %w", registry.ErrUnreachable, err)
	case len(data) > MaxSize:
		return nil, "", fmt.Errorf("%w: it is larger than %d KiB: it is not a pointer", registry.ErrBroken, MaxSize>>10)
	}
	return data, aws.ToString(out.ETag), nil
}

// put writes an object if it is still what etag says, or if there is none for
// an empty etag.
func (c *Client) put(ctx context.Context, at registry.Location, data []byte, etag string) error {
	ctx, cancel := context.WithTimeout(ctx, c.opts.Timeout)
	defer cancel()
	in := &s3.PutObjectInput{
		Bucket: aws.String(at.Bucket), Key: aws.String(at.Prefix), Body: bytes.NewReader(data), ContentType: aws.String("application/json"),
	}
	if etag == "" {
		in.IfNoneMatch = aws.String("*")
	} else {
		in.IfMatch = aws.String(etag)
	}
	if _, err := c.store.PutObject(ctx, in); err != nil {
		return classify(err)
	}
	return nil
}

// statusOf is the status of an answer that is an error, 0 for none.
func statusOf(err error) int {
	var answer interface{ HTTPStatusCode() int }
	if errors.As(err, &answer) {
		return answer.HTTPStatusCode()
	}
	return 0
}

// classify gives a store's error its class.
func classify(err error) error {
	status, code := statusOf(err), ""
	var api smithy.APIError
	if errors.As(err, &api) {
		code = api.ErrorCode()
	}
	switch {
	case status == http.StatusPreconditionFailed, status == http.StatusConflict,
		code == "PreconditionFailed", code == "ConditionalRequestConflict":
		return fmt.Errorf("%w: %w", registry.ErrConflict, err)
	case status == http.StatusNotImplemented, code == "NotImplemented":
		return fmt.Errorf("%w: %w: %w", registry.ErrUnsupported, ErrNoConditions, err)
	case status == http.StatusNotFound, code == "NoSuchKey", code == "NoSuchBucket":
		return fmt.Errorf("%w: %w", registry.ErrNotFound, err)
	case status == http.StatusForbidden, status == http.StatusUnauthorized:
		return fmt.Errorf("%w: %w", registry.ErrDenied, err)
	}
	return fmt.Errorf("%w: %w", registry.ErrUnreachable, err)
}
