package engine

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// DefaultTimeout bounds one scrape, connect to last byte.
	DefaultTimeout = time.Second

	maxRedirects = 3
	firstBuffer  = 64 << 10 // one vLLM page
	keepBuffer   = 1 << 20  // larger buffers are not kept for reuse
	writeBuffer  = 1 << 10  // a request without a body
	drainBytes   = 4 << 10  // of an error page, read so that the connection can be reused
	// idleTimeout is under the 5 s after which vLLM closes an idle connection
	// (VLLM_HTTP_TIMEOUT_KEEP_ALIVE), so that we close first.
	idleTimeout = 4 * time.Second
)

// Target is one page to scrape.
type Target struct {
	URL   string // absolute, http or https, e.g. http://10.0.0.7:8000/metrics
	Kind  Kind   // zero: VLLM
	Model string // label model_name; "" for the only model exported
}

// Options configure a Scraper. The zero value works.
type Options struct {
	// Client fetches; its CheckRedirect is replaced (in a copy). nil builds one
	// without proxy whose idle connections close before vLLM closes them.
	Client *http.Client
	// TLS is for https targets; it is not used when Client is set.
	TLS *tls.Config
	// Timeout bounds one scrape, connect to last byte. 0: DefaultTimeout.
	Timeout time.Duration
	// MaxBody caps a page in bytes, after decompression. 0: DefaultMaxBody.
	MaxBody int
	// Every is the time between two scrapes of one page. Connections are kept
	// for the next one only if it comes before vLLM would close them. 0: kept.
	Every time.Duration
}

// Scraper fetches and parses pages. It is safe for concurrent use.
type Scraper struct {
	client  *http.Client
	timeout time.Duration
	maxBody int
	buffers sync.Pool // of *[]byte
}

// NewScraper builds a Scraper.
func NewScraper(o Options) *Scraper {
	s := &Scraper{timeout: o.Timeout, maxBody: o.MaxBody}
	if s.timeout <= 0 {
		s.timeout = DefaultTimeout
	}
	if s.maxBody <= 0 {
		s.maxBody = DefaultMaxBody
	}
	client := http.Client{Transport: &http.Transport{
		DialContext:            (&net.Dialer{Timeout: s.timeout}).DialContext,
		TLSClientConfig:        o.TLS.Clone(),
		TLSHandshakeTimeout:    s.timeout,
		MaxIdleConnsPerHost:    2,
		DisableKeepAlives:      o.Every >= idleTimeout, // thousands would lie about for nothing
		WriteBufferSize:        writeBuffer,
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: 64 << 10,
	}}
	if o.Client != nil {
		client = *o.Client
	}
	client.CheckRedirect = sameOrigin
	s.client = &client
	return s
}

// Close drops idle connections.
func (s *Scraper) Close() { s.client.CloseIdleConnections() }

// Scrape fetches the page of t and parses it. It ends within the Scraper's
// timeout, or earlier with ctx. Besides the errors of Parse it returns
// ErrStatus, ErrRefused, ErrTimeout, ErrHTML, ErrRedirect, ErrCut and, for a
// cancelled ctx, the context's error; all match ErrUnknown. The texts name
// scheme, host and path of the target, never its query or user.
func (s *Scraper) Scrape(ctx context.Context, t Target) (Reading, error) {
	u, err := url.Parse(t.URL)
	if err != nil || u.Host == "" {
		// The parser's error quotes the whole URL, so it is not passed on.
		return unknownReading(), fmt.Errorf("scraping an engine: its URL is not absolute: %w", errOther)
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()

	buf := s.buffer()
	defer s.release(buf)
	r := unknownReading()
	if err = s.fetch(ctx, u, buf); err == nil {
		page := scan{kind: t.Kind, want: t.Model, body: *buf}
		r, err = page.parse()
	}
	if err != nil {
		return r, fmt.Errorf("scraping %s://%s%s: %w", u.Scheme, u.Host, u.EscapedPath(), err)
	}
	return r, nil
}

// fetch reads the page at u into buf.
func (s *Scraper) fetch(ctx context.Context, u *url.URL, buf *[]byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return errOther
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return transportError(err)
	}
	defer resp.Body.Close() //nolint:errcheck // the body is only read
	if resp.StatusCode != http.StatusOK {
		// Best effort: a connection that cannot be drained is closed instead.
		_, _ = io.CopyN(io.Discard, resp.Body, drainBytes)
		return &StatusError{Code: resp.StatusCode}
	}
	if strings.HasPrefix(strings.ToLower(resp.Header.Get("Content-Type")), "text/html") {
		return ErrHTML
	}
	if resp.ContentLength > int64(s.maxBody) {
		return fmt.Errorf("%d bytes, at most %d are read: %w", resp.ContentLength, s.maxBody, ErrTooLarge)
	}
	if err := s.readBody(resp.Body, buf); err != nil {
		return err
	}
	return checkWhole(resp, *buf)
}

// readBody fills buf with the whole body, up to the cap.
func (s *Scraper) readBody(r io.Reader, buf *[]byte) error {
	b := (*buf)[:0]
	defer func() { *buf = b }()
	for {
		if len(b) == cap(b) {
			b = append(b, 0)[:len(b)]
		}
		n, err := r.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		if len(b) > s.maxBody {
			return fmt.Errorf("more than %d bytes: %w", s.maxBody, ErrTooLarge)
		}
		switch {
		case err == nil:
		case errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
			return nil
		case isTimeout(err):
			return ErrTimeout
		case errors.Is(err, context.Canceled):
			return fmt.Errorf("%w: %w", errOther, context.Canceled)
		default: // unexpected EOF, reset, broken gzip
			return ErrCut
		}
	}
}

// checkWhole looks for what the reading of the body could not show. A page
// whose end only the closing of the connection marks may have lost its tail;
// all engines end theirs with a newline.
func checkWhole(resp *http.Response, body []byte) error {
	if start := skipSpace(body); len(start) > 0 && start[0] == '<' {
		return ErrHTML
	}
	unmarked := resp.ProtoMajor == 1 && resp.ContentLength < 0 && len(resp.TransferEncoding) == 0 && !resp.Uncompressed
	if unmarked && len(body) > 0 && body[len(body)-1] != '\n' {
		return ErrCut
	}
	return nil
}

// transportError sorts the errors of http.Client.Do. The *url.Error around them
// quotes the URL (and a redirect's), so only its inside is kept.
func transportError(err error) error {
	var outer *url.Error
	if errors.As(err, &outer) {
		err = outer.Err
	}
	switch {
	case errors.Is(err, ErrRedirect):
		return ErrRedirect
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("%w: %w", errOther, context.Canceled)
	case isTimeout(err):
		return ErrTimeout
	case errors.Is(err, syscall.ECONNREFUSED):
		return ErrRefused
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET):
		return ErrCut
	}
	return fmt.Errorf("%w: %w", errOther, err)
}

func isTimeout(err error) bool {
	var t net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &t) && t.Timeout()
}

// sameOrigin follows a redirect only to the scheme, host and port it came from:
// a page of another pod would be a wrong answer.
func sameOrigin(req *http.Request, via []*http.Request) error {
	from := via[0].URL
	if len(via) > maxRedirects || req.URL.Scheme != from.Scheme ||
		!strings.EqualFold(req.URL.Hostname(), from.Hostname()) || port(req.URL) != port(from) {
		return ErrRedirect
	}
	return nil
}

func port(u *url.URL) string {
	switch p := u.Port(); {
	case p != "":
		return p
	case u.Scheme == "https":
		return "443"
	default:
		return "80"
	}
}

func (s *Scraper) buffer() *[]byte {
	if b, ok := s.buffers.Get().(*[]byte); ok {
		return b
	}
	b := make([]byte, 0, firstBuffer)
	return &b
}

func (s *Scraper) release(b *[]byte) {
	if cap(*b) <= keepBuffer {
		s.buffers.Put(b)
	}
}
