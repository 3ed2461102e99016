package fetcher

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"time"

	"github.com/pilotlight-dev/pilotlight/fetcher/transfer"
	"github.com/pilotlight-dev/pilotlight/internal/retry"
	"github.com/pilotlight-dev/pilotlight/registry"
)

// errOverwritten: an answer is of another content than the first one.
var errOverwritten = fmt.Errorf("%w: the file was overwritten while it was read; MLflow's versions are never written again", ErrIntegrity)

// artifactError gives what the tracking server said about a file a class of the
// transfer's, beside its own.
func artifactError(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, registry.ErrNotFound):
		return fmt.Errorf("%w: the file disappeared after it was listed: %w", ErrIntegrity, err)
	case errors.Is(err, registry.ErrDenied), errors.Is(err, registry.ErrUnsupported), errors.Is(err, registry.ErrBroken):
		return fmt.Errorf("%w: %w", ErrStoreDenied, err)
	}
	return fmt.Errorf("%w: %w", ErrStoreUnreachable, err)
}

// presignedError is about a request that got no answer.
func presignedError(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, registry.ErrDenied), errors.Is(err, registry.ErrBroken):
		return fmt.Errorf("%w: %w", ErrStoreDenied, err)
	}
	return fmt.Errorf("%w: the presigned URL leads to %w", ErrStoreUnreachable, err)
}

// storeCode finds S3's name of an error. The rest of such an answer can hold what
// was signed.
var storeCode = regexp.MustCompile(`<Code>([A-Za-z]{1,64})</Code>`)

// refused is about an answer to a presigned URL that is no success. A URL that
// has run out looks like one that is wrong, so another one is worth a few tries.
func refused(resp *http.Response, p registry.Presigned) error {
	host := "the store"
	if u, err := url.Parse(p.URL); err == nil {
		host = u.Host
	}
	text := fmt.Sprintf("%s answers %d to a presigned URL", host, resp.StatusCode)
	head, err := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
	if code := storeCode.FindSubmatch(head); err == nil && code != nil {
		text += " (" + string(code[1]) + ")"
	}
	switch status := resp.StatusCode; {
	case status == http.StatusPreconditionFailed:
		return errOverwritten
	case status == http.StatusNotFound || status == http.StatusGone:
		return fmt.Errorf("%w: the file disappeared after it was listed: %s", ErrIntegrity, text)
	case status == http.StatusRequestedRangeNotSatisfiable:
		return fmt.Errorf("%w: the file is shorter than listed: %s", ErrIntegrity, text)
	case status >= 300 && status < 400:
		return fmt.Errorf("%w: %s, a redirect, which is not followed", ErrStoreDenied, text)
	case status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable:
		err := fmt.Errorf("%w: %w: %s", ErrStoreUnreachable, transfer.ErrThrottled, text)
		return retry.After(err, retryAfter(resp.Header.Get("Retry-After"), time.Now()))
	case status == http.StatusRequestTimeout || status >= http.StatusInternalServerError:
		return fmt.Errorf("%w: %s", ErrStoreUnreachable, text)
	case status == http.StatusBadRequest || status == http.StatusUnauthorized || status == http.StatusForbidden:
		return fmt.Errorf("%w: %w: %s", ErrStoreDenied, transfer.ErrCredentials, text)
	}
	return fmt.Errorf("%w: %s", ErrStoreDenied, text)
}
