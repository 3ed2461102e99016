package s3conf

import (
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"unicode"

	"golang.org/x/net/http/httpproxy"
)

// Variables of our own, for what neither AWS nor MLflow has one.
const (
	requesterPaysVariable = "PILOTLIGHT_S3_REQUESTER_PAYS"
	customerKeyVariable   = "PILOTLIGHT_SSE_C_KEY"
	addressingVariable    = "MLFLOW_BOTO_CLIENT_ADDRESSING_STYLE"
)

// FromEnv reads the variables that choose a store. The first endpoint that is
// set wins: MLFLOW_S3_ENDPOINT_URL, AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL. Also
// read: AWS_REGION, AWS_DEFAULT_REGION, AWS_ACCESS_KEY_ID,
// AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_CA_BUNDLE, MLFLOW_S3_IGNORE_TLS,
// MLFLOW_BOTO_CLIENT_ADDRESSING_STYLE, MLFLOW_S3_EXPECTED_BUCKET_OWNER,
// MLFLOW_EXPERIMENTAL_S3_SIGNATURE_VERSION=unsigned for public buckets,
// PILOTLIGHT_S3_REQUESTER_PAYS, PILOTLIGHT_SSE_C_KEY (base64, as MLflow's and
// AWS's tools take it), and HTTP_PROXY, HTTPS_PROXY and NO_PROXY in either case.
// Errors wrap ErrConfig.
func FromEnv(getenv func(string) string) (Options, error) {
	opts := Options{
		Endpoint:        first(getenv, "MLFLOW_S3_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"),
		Region:          first(getenv, "AWS_REGION", "AWS_DEFAULT_REGION"),
		AccessKeyID:     getenv("AWS_ACCESS_KEY_ID"),
		SecretAccessKey: Secret(getenv("AWS_SECRET_ACCESS_KEY")),
		SessionToken:    Secret(getenv("AWS_SESSION_TOKEN")),
		Anonymous:       strings.EqualFold(getenv("MLFLOW_EXPERIMENTAL_S3_SIGNATURE_VERSION"), "unsigned"),
		Addressing:      getenv(addressingVariable),
		CABundle:        getenv("AWS_CA_BUNDLE"),
		BucketOwner:     getenv("MLFLOW_S3_EXPECTED_BUCKET_OWNER"),
		Proxy: httpproxy.Config{
			HTTPProxy:  first(getenv, "HTTP_PROXY", "http_proxy"),
			HTTPSProxy: first(getenv, "HTTPS_PROXY", "https_proxy"),
			NoProxy:    first(getenv, "NO_PROXY", "no_proxy"),
		},
	}
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_DEFAULT_REGION", "MLFLOW_S3_EXPECTED_BUCKET_OWNER"} {
		if err := sendable(name, getenv(name)); err != nil {
			return Options{}, err
		}
	}
	var err error
	if opts.IgnoreTLS, err = boolean(getenv, "MLFLOW_S3_IGNORE_TLS"); err != nil {
		return Options{}, err
	}
	if opts.RequesterPays, err = boolean(getenv, requesterPaysVariable); err != nil {
		return Options{}, err
	}
	if text := getenv(customerKeyVariable); text != "" {
		if opts.CustomerKey, err = ParseCustomerKey([]byte(text)); err != nil {
			return Options{}, fmt.Errorf("%s: %w", customerKeyVariable, err)
		}
	}
	return opts, nil
}

// sendable refuses a value that no header can carry, without showing it. The
// transport would refuse it, too, as if the store could not be reached, and a
// signature with such a key is a wrong one.
func sendable(variable, value string) error {
	at := strings.IndexFunc(value, unicode.IsControl)
	if at < 0 {
		return nil
	}
	where := "in it"
	if strings.TrimRightFunc(value, unicode.IsControl) == value[:at] {
		where = "at its end: was it made from a file with a newline?"
	}
	return fmt.Errorf("%w: %s has a control character %s (its value is not shown)", ErrConfig, variable, where)
}

func boolean(getenv func(string) string, name string) (bool, error) {
	text := getenv(name)
	if text == "" {
		return false, nil
	}
	v, err := strconv.ParseBool(text)
	if err != nil {
		return false, fmt.Errorf("%w: %s=%q: want true or false", ErrConfig, name, text)
	}
	return v, nil
}

func first(getenv func(string) string, names ...string) string {
	for _, name := range names {
		if v := getenv(name); v != "" {
			return v
		}
	}
	return ""
}

// customerKeySize is that of AES-256, the only cipher of SSE-C, in bytes.
const customerKeySize = 32

// ParseCustomerKey reads a key of SSE-C from a variable or a file: 32 bytes as
// they are, or in base64, with white space around it. The error does not show
// the text; it wraps ErrConfig.
func ParseCustomerKey(text []byte) (Secret, error) {
	if len(text) == customerKeySize {
		return Secret(text), nil
	}
	key, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(text)))
	if err != nil || len(key) != customerKeySize {
		return "", fmt.Errorf("%w: the customer's key: want 32 bytes, as they are or in base64", ErrConfig)
	}
	return Secret(key), nil
}

var (
	// ErrConfig marks settings that cannot work.
	ErrConfig = errors.New("bad S3 configuration")
	// ErrEndpoint marks an endpoint that is not the http(s) URL of a host. It
	// wraps ErrConfig.
	ErrEndpoint = fmt.Errorf("%w: bad S3 endpoint", ErrConfig)
	// ErrElsewhere marks an answer that sends the request to another host, where it
	// does not go.
	ErrElsewhere = errors.New("the store sends requests to another host")
)

// Validate reports settings that cannot work, without any network traffic.
func (o Options) Validate() error {
	switch o.Addressing {
	case "", AddressingAuto, AddressingPath, AddressingVirtual:
	default:
		return fmt.Errorf("%w: addressing style %q: want auto, path or virtual", ErrConfig, o.Addressing)
	}
	if n := len(o.CustomerKey); n != 0 && n != customerKeySize {
		return fmt.Errorf("%w: the customer's key has %d bytes: want 32", ErrConfig, n)
	}
	if o.Endpoint == "" {
		return nil
	}
	u, err := url.Parse(o.Endpoint)
	switch {
	case err != nil:
		return fmt.Errorf("%w: it is not a URL", ErrEndpoint) // the text may hold a password
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return fmt.Errorf("%w %q: want http://host[:port] or https://host[:port]", ErrEndpoint, u.Redacted())
	case u.User != nil || u.RawQuery != "":
		return fmt.Errorf("%w %q: it takes neither credentials nor a query", ErrEndpoint, u.Scheme+"://"+u.Host)
	case u.Path != "" && u.Path != "/":
		return fmt.Errorf("%w %q: name the host only, the bucket comes from the model's location", ErrEndpoint, u.Redacted())
	case o.CustomerKey != "" && u.Scheme == "http" && !isLoopback(u.Hostname()):
		return fmt.Errorf("%w %q: the customer's key (SSE-C) would travel in the clear: use https", ErrEndpoint, u.Redacted())
	}
	return nil
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// roots reads the certificate authorities; nil means the system's.
func (o Options) roots() (*x509.CertPool, error) {
	if o.CABundle == "" {
		return nil, nil
	}
	data, err := os.ReadFile(o.CABundle)
	if err != nil {
		return nil, fmt.Errorf("%w: the certificate authorities (AWS_CA_BUNDLE): %w", ErrConfig, err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(data) {
		return nil, fmt.Errorf("%w: the certificate authorities (AWS_CA_BUNDLE): %s holds no PEM certificate", ErrConfig, o.CABundle)
	}
	return pool, nil
}

// pathStyle reports whether the bucket is named in the path.
func (o Options) pathStyle() bool {
	switch o.Addressing {
	case AddressingPath:
		return true
	case AddressingVirtual:
		return false
	}
	return o.Endpoint != ""
}
