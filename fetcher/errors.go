package fetcher

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	sdkretry "github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/pilotlight-dev/pilotlight/fetcher/transfer"
	"github.com/pilotlight-dev/pilotlight/internal/retry"
	"github.com/pilotlight-dev/pilotlight/internal/s3conf"
	"github.com/pilotlight-dev/pilotlight/registry"
)

// The classes of failure. Every error of Init wraps one of these or one of
// package registry's, unless the context ended it or nobody foresaw it.
var (
	// ErrUsage: the options or the state of the root cannot work.
	ErrUsage = errors.New("wrong usage")
	// ErrIntegrity: the content is not what the listing promised, the version
	// is incomplete, or its names are hostile.
	ErrIntegrity = transfer.ErrIntegrity
	// ErrNoSpace: the volume cannot hold the version.
	ErrNoSpace = errors.New("no space")
	// ErrStoreUnreachable: the object store did not answer, or not usefully.
	ErrStoreUnreachable = transfer.ErrUnreachable
	// ErrConflict: other processes took away what this one published, again and
	// again.
	ErrConflict = errors.New("another process got in the way")
	// ErrStoreDenied: the object store refused our credentials or request.
	ErrStoreDenied = transfer.ErrDenied
)

// errDeadline is why a run ended that had all the time it was given.
var errDeadline = errors.New("the deadline passed")

// slowDownCodes are S3's ways to ask for fewer requests.
var slowDownCodes = map[string]bool{
	"SlowDown": true, "TooManyRequests": true, "TooManyRequestsException": true, "RequestLimitExceeded": true, "Throttling": true,
	"ThrottlingException": true, "BandwidthLimitExceeded": true, "ServiceUnavailable": true, "ReducedRateRequired": true,
}

// deniedCodes are S3's refusals that no repetition helps.
var deniedCodes = map[string]string{ //nolint:gosec // names of error codes, no credentials
	"AccessDenied":                       "grant s3:ListBucket and s3:GetObject on it, and kms:Decrypt on its key if it has one",
	"Forbidden":                          "grant s3:ListBucket and s3:GetObject on it",
	"InvalidAccessKeyId":                 "check AWS_ACCESS_KEY_ID",
	"SignatureDoesNotMatch":              "check AWS_SECRET_ACCESS_KEY and the region",
	"InvalidToken":                       "check AWS_SESSION_TOKEN",
	"RequestTimeTooSkewed":               "correct the clock of this node",
	"PermanentRedirect":                  "the bucket is in another region: set AWS_REGION",
	"AuthorizationHeaderMalformed":       "the bucket is in another region: set AWS_REGION",
	"IllegalLocationConstraintException": "the bucket is in another region: set AWS_REGION",
}

// locate puts the region that an answer names into the remedy.
func locate(remedy string, err error) string {
	var resp *smithyhttp.ResponseError
	if !errors.As(err, &resp) || resp.Response == nil || resp.Response.Response == nil {
		return remedy
	}
	if region := resp.Response.Header.Get("X-Amz-Bucket-Region"); region != "" {
		return strings.Replace(remedy, "another region", "the region "+oneLine(region), 1)
	}
	return remedy
}

// storeError gives an error of the S3 client its class and a short text. Errors
// that the context caused are passed through.
func storeError(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var api smithy.APIError
	if errors.As(err, &api) {
		code, text := api.ErrorCode(), api.ErrorCode()+": "+oneLine(api.ErrorMessage())
		remedy, denied := deniedCodes[code]
		switch {
		case s3conf.IsExpired(err):
			return fmt.Errorf("%w: %w: %s", ErrStoreDenied, transfer.ErrCredentials, text)
		case denied:
			return fmt.Errorf("%w: %s; %s", ErrStoreDenied, text, locate(remedy, err))
		case code == "NoSuchBucket":
			return fmt.Errorf("%w: the store has no such bucket: %s", registry.ErrBroken, text)
		case code == "NoSuchKey" || code == "NoSuchVersion" || code == "NotFound":
			return fmt.Errorf("%w: the object disappeared after it was listed", ErrIntegrity)
		case code == "PreconditionFailed":
			return fmt.Errorf("%w: the object was overwritten after it was listed; publish versions under a prefix that is never written again", ErrIntegrity)
		}
	}
	return storeStatusError(err)
}

// throttled adds to an error that the store asked for fewer requests, if it did,
// and how long it asked to wait.
func throttled(classed, err error) error {
	var resp *smithyhttp.ResponseError
	if !errors.As(err, &resp) {
		return classed
	}
	var api smithy.APIError
	code := resp.HTTPStatusCode()
	if code == http.StatusTooManyRequests || code == http.StatusServiceUnavailable || errors.As(err, &api) && slowDownCodes[api.ErrorCode()] {
		classed = fmt.Errorf("%w: %w", classed, transfer.ErrThrottled)
	}
	if resp.Response == nil || resp.Response.Response == nil {
		return classed
	}
	return retry.After(classed, retryAfter(resp.Response.Header.Get("Retry-After"), time.Now()))
}

// retryAfter reads the header: seconds, or a date. 0 means that there is none.
func retryAfter(value string, now time.Time) time.Duration {
	if seconds, err := strconv.Atoi(value); err == nil && seconds > 0 {
		return time.Duration(min(seconds, 3600)) * time.Second
	}
	if at, err := http.ParseTime(value); err == nil {
		return at.Sub(now)
	}
	return 0
}

func storeStatusError(err error) error {
	text := oneLine(innermost(err).Error())
	// First, because the answer that follows may be the credential service's.
	if s := err.Error(); strings.Contains(s, "get identity") || strings.Contains(s, "get credentials") || strings.Contains(s, "sign request") {
		return fmt.Errorf("%w: %w: %s; give AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or the pod a role", ErrStoreDenied, transfer.ErrCredentials, text)
	}
	if errors.Is(err, s3conf.ErrElsewhere) {
		return fmt.Errorf("%w: %s; give that host as the endpoint, or set AWS_REGION", ErrStoreDenied, text)
	}
	var resp *smithyhttp.ResponseError
	if errors.As(err, &resp) {
		switch status := resp.HTTPStatusCode(); {
		case status == http.StatusUnauthorized || status == http.StatusForbidden:
			return fmt.Errorf("%w: it answers %d: %s", ErrStoreDenied, status, text)
		case status == http.StatusPreconditionFailed:
			return fmt.Errorf("%w: the object was overwritten after it was listed", ErrIntegrity)
		case status == http.StatusMovedPermanently: // of a HEAD, which has no code
			return fmt.Errorf("%w: it answers %d: %s; %s", ErrStoreDenied, status, text, locate(deniedCodes["PermanentRedirect"], err))
		case status == http.StatusRequestTimeout || status == http.StatusTooManyRequests || status >= http.StatusInternalServerError || status < http.StatusBadRequest:
			return throttled(fmt.Errorf("%w: it answers %d: %s", ErrStoreUnreachable, status, text), err)
		case status >= http.StatusBadRequest:
			return fmt.Errorf("%w: it answers %d: %s", ErrStoreDenied, status, text)
		}
	}
	return fmt.Errorf("%w: %s", ErrStoreUnreachable, text)
}

// innermost drops the SDK's own wrapping ("operation error S3: ...").
func innermost(err error) error {
	var op *smithy.OperationError
	if errors.As(err, &op) {
		err = op.Err
	}
	var attempts *sdkretry.MaxAttemptsError
	if errors.As(err, &attempts) {
		err = attempts.Err
	}
	var api smithy.APIError
	if errors.As(err, &api) {
		return fmt.Errorf("%s: %s", api.ErrorCode(), api.ErrorMessage())
	}
	return err
}

// oneLine makes foreign text fit for one log line.
func oneLine(s string) string {
	const limit = 400
	s = strings.Join(strings.Fields(strings.ToValidUTF8(s, "?")), " ")
	if len(s) > limit {
		s = strings.ToValidUTF8(s[:limit], "") + "..."
	}
	return s
}

// localError gives an error of the file system its class.
func localError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return fmt.Errorf("%w: %w; enlarge the volume or remove old versions", ErrNoSpace, err)
	case errors.Is(err, syscall.EXDEV):
		return fmt.Errorf("%w: %w; the whole root must be on one volume: mount nothing inside of it", ErrUsage, err)
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return fmt.Errorf("%w: %w; make the root writable for user %d (fsGroup, or the volume's owner)", ErrUsage, err, os.Getuid())
	}
	return err
}

// passes reports whether the same request may succeed later.
func passes(err error) bool {
	return errors.Is(err, ErrStoreUnreachable) || errors.Is(err, registry.ErrUnreachable) || errors.Is(err, registry.ErrPending)
}
