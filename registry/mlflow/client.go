package mlflow

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/pilotlight-dev/pilotlight/internal/retry"
	"github.com/pilotlight-dev/pilotlight/registry"
)

// maxBody bounds an answer; the largest real one, a list of latest versions
// with tags, is a few hundred kilobytes.
const maxBody = 4 << 20

// Client asks one MLflow server. It is safe for concurrent use.
type Client struct {
	cfg      Config
	tracking *url.URL
	registry *url.URL
	// artifacts says where the files behind the server's proxy lie.
	artifacts []mapping
	http      *http.Client
	// files is as http, for answers that take long; stores is for presigned URLs.
	files  *http.Client
	stores func() (*http.Client, error)
	signer *signer // nil unless requests are signed with SigV4
	log    *slog.Logger
	now    func() time.Time
}

// New checks the configuration and builds a client; nothing is sent. Errors
// wrap ErrConfig.
func New(cfg Config) (*Client, error) {
	if cfg.TrackingURI == "" {
		cfg.TrackingURI = cfg.RegistryURI
	}
	if cfg.TrackingURI == "" {
		return nil, fmt.Errorf("%w: MLFLOW_TRACKING_URI is not set: a models:/ reference needs the address of its registry", ErrConfig)
	}
	tracking, user, err := parseURI("MLFLOW_TRACKING_URI", cfg.TrackingURI)
	if err != nil {
		return nil, err
	}
	reg := tracking
	if cfg.RegistryURI != "" {
		var regUser *url.Userinfo
		if reg, regUser, err = parseURI("MLFLOW_REGISTRY_URI", cfg.RegistryURI); err != nil {
			return nil, err
		}
		if user == nil {
			user = regUser
		}
	}
	if err := cfg.chooseCredentials(user); err != nil {
		return nil, err
	}
	if err := cfg.checkSendable(); err != nil {
		return nil, err
	}
	artifacts, err := parseArtifactMap(cfg.ArtifactMap)
	if err != nil {
		return nil, err
	}
	client, err := newHTTPClient(cfg)
	if err != nil {
		return nil, err
	}
	log := cfg.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	now := cfg.Now
	if now == nil {
		now = time.Now
	}
	c := &Client{cfg: cfg, tracking: tracking, registry: reg, artifacts: artifacts, http: client, log: log, now: now}
	c.files, c.stores = newFilesClient(client), sync.OnceValues(func() (*http.Client, error) { return newStoresClient(cfg) })
	if cfg.SigV4 {
		c.signer = newSigner(cfg, now)
	}
	return c, nil
}

// Origin names the registry for messages and records: scheme, host and path,
// never credentials.
func (c *Client) Origin() string { return c.registry.String() }

// get sends one call, repeating it for reasons that pass, and decodes the
// answer into out. Errors wrap one of package registry's and name the server
// and the call.
func (c *Client) get(ctx context.Context, base *url.URL, call string, query url.Values, out any) error {
	return c.repeat(ctx, request{method: http.MethodGet, base: base, call: call, query: query}, out)
}

// post sends a call that may be made twice without harm, as get does. The
// answer is MLflow's empty object.
func (c *Client) post(ctx context.Context, call string, body any) error {
	return c.repeat(ctx, request{method: http.MethodPost, base: c.registry, call: call, body: body}, &struct{}{})
}

func (c *Client) repeat(ctx context.Context, r request, out any) error {
	policy := c.policy(ctx, r.call)
	err := retry.Do(ctx, policy, func(ctx context.Context, _ int) error { return c.once(ctx, r, out) })
	if err != nil {
		return fmt.Errorf("asking %s: %w", c.place(r), classed(err))
	}
	return nil
}

// classed gives an error without a class one: a context has ended, and no answer
// came.
func classed(err error) error {
	for _, class := range []error{
		registry.ErrNotFound, registry.ErrBroken, registry.ErrPending, registry.ErrUnreachable, registry.ErrDenied,
		registry.ErrUnsupported, registry.ErrConflict, registry.ErrUncertain,
	} {
		if errors.Is(err, class) {
			return err
		}
	}
	return fmt.Errorf("%w: %w", registry.ErrUnreachable, err)
}

func (c *Client) policy(ctx context.Context, call string) retry.Policy {
	attempts := c.cfg.Attempts
	if attempts <= 0 {
		attempts = DefaultAttempts
	}
	return retry.Policy{
		Base:      c.cfg.RetryBase,
		Max:       10 * time.Second,
		Attempts:  attempts,
		Retryable: isPassing,
		OnRetry: func(attempt int, wait time.Duration, err error) {
			c.log.DebugContext(ctx, "registry call will be repeated", "call", call, "attempt", attempt, "wait", wait, "error", err)
		},
	}
}

// request is one call of the REST API below /api/2.0/<api>/; call is escaped.
type request struct {
	method string
	base   *url.URL
	api    string // empty means mlflow
	call   string
	query  url.Values
	body   any // sent as JSON unless nil
}

func (c *Client) place(r request) string {
	if r.base != c.registry {
		return r.base.String() + ": " + r.call
	}
	return r.call
}

// passingError marks a failure that the same request may not meet again.
type passingError struct{ error }

func (e passingError) Unwrap() error { return e.error }

// statusError remembers the status of an answer that is no success.
type statusError struct {
	error
	status int
}

func (e statusError) Unwrap() error { return e.error }

// statusOf returns the status that an error came with, or 0.
func statusOf(err error) int {
	var s statusError
	if errors.As(err, &s) {
		return s.status
	}
	return 0
}

func isPassing(err error) bool {
	var p passingError
	return errors.As(err, &p)
}

func (c *Client) once(ctx context.Context, r request, out any) error {
	ctx, cancel := context.WithTimeout(ctx, timeout(c.cfg))
	defer cancel()
	var payload []byte
	if r.body != nil {
		var err error
		if payload, err = json.Marshal(r.body); err != nil {
			return fmt.Errorf("%w: building the request: %w", registry.ErrBroken, err)
		}
	}
	req, err := http.NewRequestWithContext(ctx, r.method, endpoint(r), bytes.NewReader(payload))
	if err != nil {
		return fmt.Errorf("%w: building the request: %w", registry.ErrBroken, unwrapURL(err))
	}
	if r.body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if err := c.authorize(req, payload); err != nil {
		return err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		err = transportError(err)
		if errors.Is(err, registry.ErrDenied) {
			return err
		}
		return passingError{err}
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxBody+1))
	if cerr := resp.Body.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return passingError{transportError(err)}
	}
	return c.decode(resp, body, out)
}

func (c *Client) decode(resp *http.Response, body []byte, out any) error {
	contentType := resp.Header.Get("Content-Type")
	switch {
	case resp.StatusCode != http.StatusOK:
		err, again := classify(resp.StatusCode, contentType, body)
		err = statusError{err, resp.StatusCode}
		if !again {
			return err
		}
		return passingError{retry.After(err, retryAfter(resp.Header))}
	case len(body) > maxBody:
		return fmt.Errorf("%w: its answer is larger than %d MiB", registry.ErrUnreachable, maxBody>>20)
	case isHTML(contentType, string(body[:min(len(body), 64)])):
		return errLogin
	}
	if err := json.Unmarshal(body, out); err != nil {
		return fmt.Errorf("%w: its answer is not MLflow's JSON: %w", registry.ErrUnreachable, err)
	}
	return nil
}

// endpoint joins the server's address, its path prefix and the call. The call
// is escaped already.
func endpoint(r request) string {
	s := strings.TrimRight(r.base.String(), "/") + "/api/2.0/" + cmp.Or(r.api, "mlflow") + "/" + r.call
	if len(r.query) > 0 {
		s += "?" + r.query.Encode()
	}
	return s
}

// retryAfter reads the header's form in seconds; a date is ignored, since the
// clocks of two machines would be compared.
func retryAfter(h http.Header) time.Duration {
	seconds, err := strconv.Atoi(h.Get("Retry-After"))
	if err != nil || seconds <= 0 || seconds > 3600 {
		return 0
	}
	return time.Duration(seconds) * time.Second
}
