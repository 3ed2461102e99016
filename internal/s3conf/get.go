package s3conf

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/encoding/httpbinding"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// Client is the SDK's client with a short way to GET an object beside the long
// one. Thousands of small objects are bound by the processor, of which the SDK's
// some forty steps for one request take a good part.
type Client struct {
	*s3.Client
	// opts are the client's, which makes a copy whenever it is asked.
	opts   s3.Options
	conf   Options
	cache  *aws.CredentialsCache // nil when credentials are not cached
	signer *v4.Signer
	// skewed: this machine's clock is off by more than the store allows. The SDK
	// knows by how much, so it goes the long way.
	skewed atomic.Bool
}

func newClient(c *s3.Client, cache *aws.CredentialsCache, conf Options) *Client {
	return &Client{
		Client: c, opts: c.Options(), conf: conf, cache: cache,
		// Keys are signed as they are sent, escaped once.
		signer: v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true }),
	}
}

// Get is a request for an object or a range of it.
type Get struct {
	Bucket, Key string
	// Range, IfMatch and VersionID are left out when empty.
	Range, IfMatch, VersionID string
	// Checksums asks for the object's checksums in the answer's header.
	Checksums bool
}

const (
	emptySHA256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	// maxErrorBody bounds what is read of an error's text, in bytes.
	maxErrorBody = 64 << 10
)

// Do sends a Get once. The caller closes the body of an answer, whose status is
// 200 or 206. Errors are those that the SDK would return, for IsExpired and
// errors.As. Wraps errors.ErrUnsupported when this request takes the SDK: for
// buckets that are not addressed by name, and while the clock is wrong.
func (c *Client) Do(ctx context.Context, get Get) (*http.Response, error) {
	if c.skewed.Load() || strings.HasPrefix(get.Bucket, "arn:") || strings.HasSuffix(get.Bucket, "--x-s3") {
		return nil, fmt.Errorf("short GET: %w", errors.ErrUnsupported)
	}
	req, err := c.request(ctx, get)
	if err != nil {
		return nil, err
	}
	if err := c.sign(ctx, req); err != nil {
		return nil, err
	}
	req.Header.Set(acceptEncoding, "identity") // unsigned: see the package's comment
	resp, err := c.opts.HTTPClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("request send failed: %w", err)
	}
	if resp.StatusCode == http.StatusOK || resp.StatusCode == http.StatusPartialContent {
		return resp, nil
	}
	err = answerError(resp)
	switch {
	case IsExpired(err) && c.cache != nil:
		c.cache.Invalidate() // the next attempt asks for new ones
	case isSkew(err):
		c.skewed.Store(true)
		return nil, fmt.Errorf("short GET: %w", errors.ErrUnsupported)
	}
	return nil, err
}

// request builds the request without its signature.
func (c *Client) request(ctx context.Context, get Get) (*http.Request, error) {
	at, err := c.opts.EndpointResolverV2.ResolveEndpoint(ctx, s3.EndpointParameters{
		Bucket: aws.String(get.Bucket), Region: aws.String(c.opts.Region), Endpoint: c.opts.BaseEndpoint,
		ForcePathStyle: aws.Bool(c.opts.UsePathStyle),
		UseFIPS:        aws.Bool(c.opts.EndpointOptions.UseFIPSEndpoint == aws.FIPSEndpointStateEnabled),
		UseDualStack:   aws.Bool(c.opts.EndpointOptions.UseDualStackEndpoint == aws.DualStackEndpointStateEnabled),
		Accelerate:     aws.Bool(c.opts.UseAccelerate),
	})
	if err != nil {
		return nil, fmt.Errorf("resolving the endpoint of %s: %w", get.Bucket, err)
	}
	u := at.URI
	u.Path = strings.TrimSuffix(u.Path, "/") + "/" + get.Key
	u.RawPath = httpbinding.EscapePath(u.Path, false)
	if get.VersionID != "" {
		u.RawQuery = url.Values{"versionId": {get.VersionID}}.Encode()
	}
	req := (&http.Request{Method: http.MethodGet, URL: &u, Host: u.Host, Header: c.conf.headers("GetObject"), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1}).WithContext(ctx)
	set := func(name, value string) {
		if value != "" {
			req.Header.Set(name, value)
		}
	}
	set("User-Agent", "pilotlight")
	set("Range", get.Range)
	set("If-Match", get.IfMatch)
	if get.Checksums {
		set("X-Amz-Checksum-Mode", "ENABLED")
	}
	return req, nil
}

// sign adds the signature, unless requests are anonymous.
func (c *Client) sign(ctx context.Context, req *http.Request) error {
	if c.opts.Credentials == nil || aws.IsCredentialsProvider(c.opts.Credentials, aws.AnonymousCredentials{}) {
		return nil
	}
	creds, err := c.opts.Credentials.Retrieve(ctx)
	if err != nil {
		return fmt.Errorf("get credentials: %w", err)
	}
	req.Header.Set("X-Amz-Content-Sha256", emptySHA256)
	if err := c.signer.SignHTTP(ctx, creds, req, emptySHA256, "s3", c.opts.Region, time.Now()); err != nil {
		return fmt.Errorf("sign request: %w", err)
	}
	return nil
}

// answerError reads S3's error from an answer and closes it.
func answerError(resp *http.Response) error {
	var body struct{ Code, Message string }
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody))
	if err = errors.Join(err, resp.Body.Close()); err == nil {
		_ = xml.Unmarshal(data, &body) // what is no XML leaves the status to speak
	}
	if body.Code == "" {
		body.Code, body.Message = strings.ReplaceAll(http.StatusText(resp.StatusCode), " ", ""), "no S3 error in the answer"
	}
	return &smithyhttp.ResponseError{
		Response: &smithyhttp.Response{Response: resp},
		Err:      &smithy.GenericAPIError{Code: body.Code, Message: body.Message},
	}
}

func isSkew(err error) bool {
	var api smithy.APIError
	return errors.As(err, &api) && api.ErrorCode() == "RequestTimeTooSkewed"
}
