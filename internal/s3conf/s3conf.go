// Package s3conf builds the S3 client that every part of Pilotlight uses, from
// the environment variables that MLflow and AWS users already set.
//
// What it decides, and why:
//   - Credentials: the AWS default chain (environment, shared files, web
//     identity, Pod Identity, instance role), or none for public buckets.
//   - HTTP/1.1 only: over HTTP/2 all transfers would share one TCP connection,
//     which is many times slower than one connection each.
//   - As many idle connections per host as workers, else every transfer beyond
//     ten pays a new TLS handshake.
//   - Path-style addresses for any endpoint that is named, because a private
//     store rarely has wildcard DNS; Options.Addressing chooses otherwise.
//   - Proxies and certificate authorities by the usual variables, as they were
//     handed in; nothing here reads the environment by itself.
//   - Accept-Encoding is not signed: proxies and Google's store change it, after
//     which a signature over it is wrong.
//   - Checksums only where the protocol requires them: several S3 servers
//     reject the SDK's default ones. The fetcher verifies content itself.
//   - Expired credentials are dropped from the cache and asked for again; the
//     SDK alone would present the same expired ones.
package s3conf

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/ratelimit"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/logging"
	"golang.org/x/net/http/httpproxy"
)

// R2HostSuffix ends the host of every Cloudflare R2 endpoint.
const R2HostSuffix = ".r2.cloudflarestorage.com"

// DefaultRegion signs requests when nothing names a region.
const DefaultRegion = "us-east-1"

// DefaultWorkers is the number of idle connections kept when Options.Workers
// is zero.
const DefaultWorkers = 8

// Options names a store and how to reach it. The zero value is AWS S3 with the
// default credential chain.
type Options struct {
	// Endpoint is the URL of the store without a bucket; empty means AWS.
	Endpoint string
	// Region signs the requests; empty means the AWS configuration, else
	// "us-east-1". R2 is always "auto".
	Region string
	// IgnoreTLS accepts any server certificate.
	IgnoreTLS bool
	// Anonymous sends unsigned requests, for public buckets.
	Anonymous bool
	// AccessKeyID, SecretAccessKey and SessionToken are used when the first two
	// are set; else the default chain is.
	AccessKeyID     string
	SecretAccessKey Secret
	SessionToken    Secret
	// Workers is the number of connections kept open; 0 means DefaultWorkers.
	Workers int
	// HeaderTimeout bounds the wait for an answer to begin; 0 means 30 s.
	HeaderTimeout time.Duration
	// Addressing is how buckets are addressed: AddressingAuto (or empty),
	// AddressingPath or AddressingVirtual.
	Addressing string
	// CABundle is a file of PEM certificates that are trusted instead of the
	// system's; empty means the system's.
	CABundle string
	// Proxy says which requests go through a proxy; the zero value none.
	Proxy httpproxy.Config
	// RequesterPays agrees to be billed for requests and transfer, without which
	// a bucket that demands it refuses.
	RequesterPays bool
	// BucketOwner is the AWS account that must own the bucket; empty means any.
	BucketOwner string
	// CustomerKey decrypts objects that were encrypted with a key of the
	// customer's (SSE-C): 32 bytes. Empty means that none were.
	CustomerKey Secret
}

// The addressings. Auto names the bucket in the path for an endpoint that is
// given, and in the host's name for AWS.
const (
	AddressingAuto    = "auto"
	AddressingPath    = "path"
	AddressingVirtual = "virtual"
)

// Secret is a string that no log, error or JSON document shows.
type Secret string

const redacted = "[redacted]"

// String hides the secret from %s and %v.
func (Secret) String() string { return redacted }

// GoString hides the secret from %#v.
func (Secret) GoString() string { return redacted }

// MarshalText hides the secret from JSON, YAML and slog.
func (Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// New builds the client. It reads the shared AWS configuration files, but does
// not contact the store.
func New(ctx context.Context, opts Options) (*Client, error) {
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	roots, err := opts.roots()
	if err != nil {
		return nil, err
	}
	load := []func(*config.LoadOptions) error{
		config.WithHTTPClient(httpClient(opts, roots)),
		config.WithLogger(logging.Nop{}), // it would write to stderr on its own
	}
	switch {
	case opts.Anonymous:
		load = append(load, config.WithCredentialsProvider(aws.AnonymousCredentials{}))
	case opts.AccessKeyID != "" && opts.SecretAccessKey != "":
		load = append(load, config.WithCredentialsProvider(credentials.NewStaticCredentialsProvider(
			opts.AccessKeyID, string(opts.SecretAccessKey), string(opts.SessionToken))))
	}
	cfg, err := config.LoadDefaultConfig(ctx, load...)
	if err != nil {
		return nil, fmt.Errorf("loading the AWS configuration: %w", err)
	}
	cfg.Region = region(opts, cfg.Region)
	cache, _ := cfg.Credentials.(*aws.CredentialsCache)
	client := s3.NewFromConfig(cfg, func(o *s3.Options) {
		if opts.Endpoint != "" {
			o.BaseEndpoint = aws.String(strings.TrimSuffix(opts.Endpoint, "/"))
		}
		o.UsePathStyle = opts.pathStyle()
		o.APIOptions = append(o.APIOptions, opts.addHeaders, leaveEncodingUnsigned)
		o.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
		o.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
		o.DisableLogOutputChecksumValidationSkipped = true
		o.Retryer = newRetryer(cache)
	})
	return newClient(client, cache, opts), nil
}

func region(opts Options, configured string) string {
	switch {
	case isR2(opts.Endpoint): // it knows no other, and clusters on AWS set AWS_REGION in every pod
		return "auto"
	case opts.Region != "":
		return opts.Region
	case configured != "":
		return configured
	default:
		return DefaultRegion
	}
}

func isR2(endpoint string) bool {
	u, err := url.Parse(endpoint)
	return err == nil && strings.HasSuffix(u.Hostname(), R2HostSuffix)
}

func httpClient(opts Options, roots *x509.CertPool) *awshttp.BuildableClient {
	workers := opts.Workers
	if workers <= 0 {
		workers = DefaultWorkers
	}
	headerTimeout := opts.HeaderTimeout
	if headerTimeout <= 0 {
		headerTimeout = 30 * time.Second
	}
	return awshttp.NewBuildableClient().WithTransportOptions(func(t *http.Transport) {
		// The transport that we are handed has prepared itself for HTTP/2:
		// every trace of it must go, or TLS offers what we cannot speak.
		t.ForceAttemptHTTP2 = false
		t.Protocols = new(http.Protocols)
		t.Protocols.SetHTTP1(true)
		t.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{}
		if t.TLSClientConfig == nil {
			t.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
		}
		t.TLSClientConfig.NextProtos = []string{"http/1.1"}
		t.MaxIdleConnsPerHost = workers
		t.MaxIdleConns = max(t.MaxIdleConns, workers)
		t.ResponseHeaderTimeout = headerTimeout
		t.DisableCompression = true
		t.TLSClientConfig.RootCAs = roots
		proxy := opts.Proxy.ProxyFunc()
		t.Proxy = func(r *http.Request) (*url.URL, error) {
			if err := sameHost(r); err != nil {
				return nil, err
			}
			return proxy(r.URL)
		}
		if opts.IgnoreTLS {
			t.TLSClientConfig.InsecureSkipVerify = true
		}
	})
}

// sameHost refuses a request that an answer has redirected to another host: net/http
// takes Authorization off it, so that it would be refused there, but not the
// customer's key. The SDK's client has its own idea of redirects; its transport asks
// for each request's proxy before it connects.
func sameHost(r *http.Request) error {
	if r.Response == nil || r.Response.Request == nil || r.Response.Request.URL.Host == r.URL.Host {
		return nil
	}
	return fmt.Errorf("%w: %s", ErrElsewhere, r.URL.Host)
}

// expiredCodes are the errors of credentials that ran out under way; the SDK
// does not repeat them by itself.
var expiredCodes = map[string]struct{}{"ExpiredToken": {}, "ExpiredTokenException": {}, "RequestExpired": {}}

// retryer is the SDK's standard one, three attempts of a request, without the
// shared token bucket (many workers meeting one SlowDown would drain it), and
// with expired credentials and 429 added to what passes.
type retryer struct {
	aws.RetryerV2
	cache *aws.CredentialsCache // nil when credentials are not cached
}

func newRetryer(cache *aws.CredentialsCache) retryer {
	return retryer{cache: cache, RetryerV2: retry.NewStandard(func(o *retry.StandardOptions) {
		o.MaxAttempts = 3
		o.MaxBackoff = 5 * time.Second
		o.RateLimiter = ratelimit.None
		o.Retryables = append(o.Retryables,
			retry.RetryableErrorCode{Codes: expiredCodes},
			retry.RetryableHTTPStatusCode{Codes: map[int]struct{}{http.StatusTooManyRequests: {}}})
	})}
}

// IsErrorRetryable drops cached credentials that the store calls expired, so
// that the next attempt asks for new ones.
func (r retryer) IsErrorRetryable(err error) bool {
	if r.cache != nil && IsExpired(err) {
		r.cache.Invalidate()
	}
	return r.RetryerV2.IsErrorRetryable(err)
}

// IsExpired reports whether the store refused credentials because their time
// is up.
func IsExpired(err error) bool {
	var api smithy.APIError
	if !errors.As(err, &api) {
		return false
	}
	_, ok := expiredCodes[api.ErrorCode()]
	return ok
}
