package mlflow

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
)

// Defaults of Config's zero values.
const (
	DefaultTimeout  = 30 * time.Second
	DefaultAttempts = 4
)

// ErrConfig marks settings that cannot work; no request was sent.
var ErrConfig = errors.New("bad MLflow configuration")

// Secret is a string that no log, error or JSON document shows.
type Secret string

const redacted = "[redacted]"

// String hides the secret from %s and %v.
func (Secret) String() string { return redacted }

// GoString hides the secret from %#v.
func (Secret) GoString() string { return redacted }

// MarshalText hides the secret from JSON, YAML and slog.
func (Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// Config names a server and how to talk to it. Only TrackingURI is required.
type Config struct {
	// TrackingURI is http(s)://host[:port][/prefix]; a trailing slash is fine.
	// User and password inside it are used as Username and Password.
	TrackingURI string
	// RegistryURI serves the model registry; empty means TrackingURI.
	RegistryURI string
	// Username and Password select Basic authentication, which beats Token, as
	// in MLflow's own client.
	Username string
	Password Secret
	Token    Secret
	// InsecureTLS accepts any server certificate.
	InsecureTLS bool
	// ServerCertPath is a PEM file of the authorities to trust instead of the
	// system's; it excludes InsecureTLS.
	ServerCertPath string
	// ClientCertPath is a PEM file that holds the client's certificate and key.
	ClientCertPath string
	// CredentialsFile is an INI file whose section [mlflow] holds
	// mlflow_tracking_username and mlflow_tracking_password; they fill in for
	// what neither Username and Password nor the URI give. A file that does not
	// exist is none.
	CredentialsFile string
	// SigV4 signs requests for the service execute-api (an API Gateway in front
	// of MLflow), in place of the other credentials.
	SigV4 bool
	// AWSRegion is the region of SigV4; empty means what the AWS configuration
	// says.
	AWSRegion string
	// AWSCredentials sign with SigV4; nil means the AWS default chain, which is
	// asked at the first request. A function, since a value would print its
	// secrets with this struct.
	AWSCredentials aws.CredentialsProviderFunc `json:"-"`
	// ArtifactMap says where the files of mlflow-artifacts: locations lie, since
	// a server does not tell (without, they are read through the server): "mlflow-artifacts:/=s3://bucket/prefix" is its
	// --artifacts-destination. Of several that match the longest is taken. With
	// a Workspace other than "default" files lie below workspaces/<name>/ there,
	// and the left side may name that folder.
	ArtifactMap []string
	// StoreCertPath is a PEM file of the authorities to trust instead of the
	// system's where presigned URLs lead, read when the first is followed;
	// StoreInsecureTLS accepts any certificate there.
	StoreCertPath    string
	StoreInsecureTLS bool
	// Workspace is sent as X-MLFLOW-WORKSPACE when set; a server without
	// workspaces answers every request that carries it with an error.
	Workspace string
	// Timeout bounds one request; 0 means DefaultTimeout.
	Timeout time.Duration
	// Attempts bounds the tries of one call; 0 means DefaultAttempts.
	Attempts int
	// RetryBase is the first wait between tries; 0 means 500 ms.
	RetryBase time.Duration
	// Logger is told about repeated requests and about histories that cannot be
	// read; nil discards.
	Logger *slog.Logger
	// Now dates the moves that are recorded and the signatures; nil is time.Now.
	Now func() time.Time `json:"-"`
}

// parseURI checks the URI of a server and takes the credentials out of it.
func parseURI(variable, text string) (*url.URL, *url.Userinfo, error) {
	u, err := url.Parse(strings.TrimSpace(text))
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %s is not a URL", ErrConfig, variable) // the text may hold a password
	}
	user := u.User
	u.User = nil
	switch {
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return nil, nil, fmt.Errorf("%w: %s=%q: want http://host[:port] or https://host[:port] (files, databases and Databricks profiles cannot be read)", ErrConfig, variable, u.String())
	case u.RawQuery != "" || u.Fragment != "":
		return nil, nil, fmt.Errorf("%w: %s has a query: want http(s)://host[:port][/prefix]", ErrConfig, variable)
	}
	u.Path = strings.TrimRight(u.Path, "/")
	u.RawPath = strings.TrimRight(u.RawPath, "/")
	return u, user, nil
}

// newHTTPClient builds a client of our own: bounded dials, no credentials of
// the environment, and redirects within the origin only.
func newHTTPClient(cfg Config) (*http.Client, error) {
	tlsConfig := &tls.Config{MinVersion: tls.VersionTLS12}
	if cfg.InsecureTLS {
		tlsConfig.InsecureSkipVerify = true
	}
	if cfg.InsecureTLS && cfg.ServerCertPath != "" {
		return nil, fmt.Errorf("%w: MLFLOW_TRACKING_INSECURE_TLS and MLFLOW_TRACKING_SERVER_CERT_PATH exclude each other: unset one", ErrConfig)
	}
	if cfg.ClientCertPath != "" {
		cert, err := tls.LoadX509KeyPair(cfg.ClientCertPath, cfg.ClientCertPath)
		if err != nil {
			return nil, fmt.Errorf("%w: MLFLOW_TRACKING_CLIENT_CERT_PATH=%q: want a PEM file with the certificate and its key: %w", ErrConfig, cfg.ClientCertPath, err)
		}
		tlsConfig.Certificates = []tls.Certificate{cert}
	}
	if cfg.ServerCertPath != "" {
		pem, err := os.ReadFile(cfg.ServerCertPath)
		if err != nil {
			return nil, fmt.Errorf("%w: reading MLFLOW_TRACKING_SERVER_CERT_PATH: %w", ErrConfig, err)
		}
		tlsConfig.RootCAs = x509.NewCertPool()
		if !tlsConfig.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%w: MLFLOW_TRACKING_SERVER_CERT_PATH=%q holds no PEM certificate", ErrConfig, cfg.ServerCertPath)
		}
	}
	return &http.Client{
		CheckRedirect: sameOriginOnly,
		Transport: &http.Transport{
			Proxy:                 http.ProxyFromEnvironment,
			DialContext:           (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
			TLSClientConfig:       tlsConfig,
			TLSHandshakeTimeout:   10 * time.Second,
			MaxIdleConnsPerHost:   2,
			IdleConnTimeout:       90 * time.Second,
			ResponseHeaderTimeout: timeout(cfg),
		},
	}, nil
}

// proxyPatience bounds the wait for the first byte of a proxied file.
const proxyPatience = 10 * time.Minute

// newFilesClient reads files from the server that api asks, under the same rules.
func newFilesClient(api *http.Client) *http.Client {
	client := *api
	if t, ok := api.Transport.(*http.Transport); ok {
		t = t.Clone()
		t.ResponseHeaderTimeout = proxyPatience
		t.DisableCompression = true
		client.Transport = t
	}
	return &client
}

// newStoresClient builds the client that follows presigned URLs: without cookies,
// client certificates and redirects, and with HTTP/1.1, so that ranges have
// connections of their own.
func newStoresClient(cfg Config) (*http.Client, error) {
	tlsConfig := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}
	if cfg.StoreInsecureTLS {
		tlsConfig.InsecureSkipVerify = true
	}
	if cfg.StoreCertPath != "" {
		pem, err := os.ReadFile(cfg.StoreCertPath)
		if err != nil {
			return nil, fmt.Errorf("%w: reading AWS_CA_BUNDLE: %w", ErrConfig, err)
		}
		tlsConfig.RootCAs = x509.NewCertPool()
		if !tlsConfig.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%w: AWS_CA_BUNDLE=%q holds no PEM certificate", ErrConfig, cfg.StoreCertPath)
		}
	}
	const connections = 256 // as many as the fetcher has at once
	return &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			Proxy:                 http.ProxyFromEnvironment,
			DialContext:           (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
			TLSClientConfig:       tlsConfig,
			TLSHandshakeTimeout:   10 * time.Second,
			TLSNextProto:          map[string]func(string, *tls.Conn) http.RoundTripper{},
			MaxIdleConns:          connections,
			MaxIdleConnsPerHost:   connections,
			IdleConnTimeout:       90 * time.Second,
			ResponseHeaderTimeout: 30 * time.Second,
			DisableCompression:    true,
		},
	}, nil
}

func timeout(cfg Config) time.Duration {
	if cfg.Timeout <= 0 {
		return DefaultTimeout
	}
	return cfg.Timeout
}
