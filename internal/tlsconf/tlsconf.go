// Package tlsconf makes TLS configurations from files that may be replaced
// while the process runs, as cert-manager and Kubernetes secrets do. A new
// handshake uses the files as they are then; a replacement that cannot be read
// leaves the last good one in use.
package tlsconf

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

// Files names PEM files. Empty names mean: not used.
type Files struct {
	Cert string // own certificate with its chain
	Key  string // its private key
	CA   string // certificates that the peer's must be signed by
}

// ErrFiles is wrapped by every error about the files.
var ErrFiles = errors.New("TLS files")

// recheck is how often the files' times are looked at, at most.
const recheck = time.Second

// Server returns a configuration for listening: TLS with Cert and Key, and
// with CA also client certificates (mTLS). It fails when the files cannot be
// used now.
func Server(f Files) (*tls.Config, error) {
	if f.Cert == "" || f.Key == "" {
		return nil, fmt.Errorf("%w: a certificate and its key belong together", ErrFiles)
	}
	r := &reloader{files: f}
	if err := r.load(); err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			cert, pool := r.current()
			c := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{*cert}, NextProtos: []string{"h2", "http/1.1"}}
			if pool != nil {
				c.ClientCAs, c.ClientAuth = pool, tls.RequireAndVerifyClientCert
			}
			return c, nil
		},
	}, nil
}

// Client returns a configuration for dialling: the server's certificate must
// be signed by CA (the system's roots without one), and Cert with Key is shown
// when asked for. Cert and Key may be replaced; CA is that of now. Whoever dials
// for longer than a CA lives takes Clients.
func Client(f Files) (*tls.Config, error) {
	each, err := Clients(f)
	if err != nil {
		return nil, err
	}
	return each(), nil
}

// Clients is Client for each handshake anew: what it returns makes a
// configuration from the files as they are then. It fails when they cannot be
// used now.
func Clients(f Files) (each func() *tls.Config, err error) {
	r := &reloader{files: f}
	if err := r.load(); err != nil {
		return nil, err
	}
	return func() *tls.Config {
		_, pool := r.current()
		c := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool}
		if f.Cert != "" {
			c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
				cert, _ := r.current()
				return cert, nil
			}
		}
		return c
	}, nil
}

type reloader struct {
	files Files

	mu      sync.Mutex
	checked time.Time
	stamp   [3]time.Time
	cert    *tls.Certificate
	pool    *x509.CertPool
}

// current returns what the files hold, looking at most once per recheck.
func (r *reloader) current() (*tls.Certificate, *x509.CertPool) {
	r.mu.Lock()
	stale := time.Since(r.checked) > recheck
	r.mu.Unlock()
	if stale {
		_ = r.load() // a broken replacement leaves the last good one in use
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.cert, r.pool
}

func (r *reloader) load() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.checked = time.Now()
	var stamp [3]time.Time
	for i, name := range []string{r.files.Cert, r.files.Key, r.files.CA} {
		if info, err := os.Stat(name); err == nil {
			stamp[i] = info.ModTime()
		}
	}
	if stamp == r.stamp && (r.cert != nil || r.pool != nil) {
		return nil
	}
	var cert *tls.Certificate
	var pool *x509.CertPool
	if r.files.Cert != "" {
		pair, err := tls.LoadX509KeyPair(r.files.Cert, r.files.Key)
		if err != nil {
			return fmt.Errorf("%w: %s and %s: %w", ErrFiles, r.files.Cert, r.files.Key, err)
		}
		cert = &pair
	}
	if r.files.CA != "" {
		pem, err := os.ReadFile(r.files.CA)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrFiles, err)
		}
		pool = x509.NewCertPool()
		if !pool.AppendCertsFromPEM(pem) {
			return fmt.Errorf("%w: %s holds no certificate", ErrFiles, r.files.CA)
		}
	}
	r.cert, r.pool, r.stamp = cert, pool, stamp
	return nil
}
