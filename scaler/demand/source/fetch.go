package source

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/pilotlight-dev/pilotlight/internal/tlsconf"
)

const (
	maxBody      = 4 << 20
	maxToken     = 16 << 10
	maxAddresses = 32 // of one host
)

// resolver looks a host's addresses up; *net.Resolver is one.
type resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// A fetcher makes the requests of one source.
type fetcher struct {
	entry    Entry
	base     *url.URL
	client   *http.Client
	resolver resolver
	token    *token // nil: none
}

// newFetcher fails when the files cannot be read now.
func newFetcher(e Entry, r resolver) (*fetcher, error) {
	base, err := url.Parse(e.URL)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: url", ErrConfig, e.Name)
	}
	roots, err := tlsconf.Clients(tlsconf.Files{CA: e.CAFile})
	if err != nil {
		return nil, fmt.Errorf("%w: %s: caFile: %w", ErrConfig, e.Name, err)
	}
	f := &fetcher{entry: e, base: base, resolver: r, client: &http.Client{
		Transport: &http.Transport{
			DialTLSContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
				ctx, cancel := context.WithTimeout(ctx, time.Duration(e.Timeout))
				defer cancel()
				conf := roots()                   // the CA may have been replaced
				conf.ServerName = base.Hostname() // requests go to addresses
				return (&tls.Dialer{Config: conf}).DialContext(ctx, network, addr)
			},
			MaxIdleConnsPerHost: 2,
			IdleConnTimeout:     30 * time.Second, MaxResponseHeaderBytes: 64 << 10,
		},
		// A redirect is answered with an error: it would lead the token, or
		// the question, elsewhere.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	if e.BearerTokenFile != "" {
		f.token = &token{path: e.BearerTokenFile}
		if _, err := f.token.read(); err != nil {
			return nil, fmt.Errorf("%w: %s: bearerTokenFile: %w", ErrConfig, e.Name, err)
		}
	}
	return f, nil
}

// targets are the URLs that together answer a query (only of Prometheus).
// Behind a headless Service each process counts its own share, so that every
// address of the host is asked; Prometheus servers hold the same and are asked
// by name.
func (f *fetcher) targets(ctx context.Context, query string) ([]*url.URL, error) {
	u := *f.base
	if f.entry.Type == Prometheus {
		u = *f.base.JoinPath("api/v1/query")
		u.RawQuery = url.Values{"query": {query}}.Encode()
		return []*url.URL{&u}, nil
	}
	if _, err := netip.ParseAddr(u.Hostname()); err == nil {
		return []*url.URL{&u}, nil
	}
	addrs, err := f.resolver.LookupNetIP(ctx, "ip", u.Hostname())
	if err != nil || len(addrs) == 0 {
		return nil, fail("dns", "has no address now") // a headless Service without endpoints
	}
	for i := range addrs {
		addrs[i] = addrs[i].Unmap()
	}
	slices.SortFunc(addrs, netip.Addr.Compare)
	addrs = slices.Compact(addrs)
	if len(addrs) > maxAddresses {
		return nil, fail("dns", "has %d addresses, more than %d", len(addrs), maxAddresses)
	}
	out := make([]*url.URL, len(addrs))
	for i, a := range addrs {
		at := u
		at.Host = a.String()
		if a.Is6() {
			at.Host = "[" + at.Host + "]"
		}
		if port := u.Port(); port != "" {
			at.Host += ":" + port
		}
		out[i] = &at
	}
	return out, nil
}

// get fetches and decodes one answer.
func (f *fetcher) get(ctx context.Context, u *url.URL) (page, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, fail("other", "cannot be asked")
	}
	req.Host = f.base.Host
	if f.token != nil {
		secret, err := f.token.read()
		if err != nil {
			return nil, fmt.Errorf("bearerTokenFile: %w: %w", err, fail("token", "the token cannot be read"))
		}
		req.Header.Set("Authorization", "Bearer "+secret)
	}
	resp, err := f.client.Do(req)
	if err != nil {
		return nil, transportError(err)
	}
	defer resp.Body.Close() //nolint:errcheck // the body is only read
	switch {
	case resp.StatusCode >= 300 && resp.StatusCode < 400:
		return nil, fail("redirect", "redirects elsewhere (HTTP %d), which is not followed", resp.StatusCode)
	// Prometheus says with 4xx and a JSON body what is wrong with a query.
	case resp.StatusCode != http.StatusOK && (f.entry.Type != Prometheus || resp.StatusCode != http.StatusBadRequest && resp.StatusCode != http.StatusUnprocessableEntity):
		return nil, statusError(resp.StatusCode)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxBody+1))
	switch {
	case err != nil:
		return nil, transportError(err)
	case len(body) > maxBody:
		return nil, fail("too_large", "answered more than %d bytes", maxBody)
	}
	return decode(f.entry.Type, body)
}

// transportError sorts the errors of http.Client. Their texts may quote the
// URL, which holds the query, so only their kind is kept.
func transportError(err error) error {
	var timeout net.Error
	var outer *url.Error
	if errors.As(err, &outer) {
		err = outer.Err
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return fail("timeout", "did not answer in time")
	case errors.Is(err, syscall.ECONNREFUSED):
		return fail("refused", "refused the connection")
	case strings.Contains(err.Error(), "tls:"), strings.Contains(err.Error(), "x509:"):
		return fail("tls", "%v", err)
	}
	return fail("other", "%v", err)
}

// A token is a secret in a file that is replaced now and then. It is never
// part of an error or a log line.
type token struct {
	path string

	mu       sync.Mutex
	modified time.Time
	size     int64
	secret   string
}

// read returns the secret as the file has it now.
func (t *token) read() (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	info, err := os.Stat(t.path)
	if err != nil {
		return "", err
	}
	if t.secret != "" && info.ModTime().Equal(t.modified) && info.Size() == t.size {
		return t.secret, nil
	}
	file, err := os.Open(t.path)
	if err != nil {
		return "", err
	}
	defer file.Close() //nolint:errcheck // it is only read
	body, err := io.ReadAll(io.LimitReader(file, maxToken+1))
	if err != nil {
		return "", err
	}
	secret := strings.TrimSpace(string(body))
	if secret == "" || len(body) > maxToken || strings.ContainsAny(secret, " \r\n\t") {
		return "", fmt.Errorf("%s holds no token", t.path)
	}
	t.secret, t.modified, t.size = secret, info.ModTime(), info.Size()
	return secret, nil
}
