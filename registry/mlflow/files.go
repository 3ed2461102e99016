package mlflow

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/textproto"
	"net/url"
	"strconv"
	"strings"

	"github.com/pilotlight-dev/pilotlight/registry"
)

// filesAPI is the part of a server that hands out files.
const filesAPI = "mlflow-artifacts"

// ListArtifacts lists one folder behind the server's artifact proxy; what is
// below its folders is a question of its own. An empty path is the proxy's root,
// and a folder that does not exist is empty. Names are as the server wrote them.
// Errors are those of Resolve.
func (c *Client) ListArtifacts(ctx context.Context, dir string) ([]registry.Artifact, error) {
	r := request{method: http.MethodGet, base: c.tracking, api: filesAPI, call: "artifacts"}
	if dir != "" {
		r.query = url.Values{"path": {dir}}
	}
	var out struct {
		Files []struct {
			Path  string `json:"path"`
			IsDir bool   `json:"is_dir"`
			Size  text   `json:"file_size"`
		} `json:"files"`
	}
	if err := c.repeat(ctx, r, &out); err != nil {
		return nil, err
	}
	entries := make([]registry.Artifact, 0, len(out.Files))
	for _, f := range out.Files {
		a := registry.Artifact{Name: f.Path, Folder: f.IsDir}
		if f.Size != "" && !f.IsDir {
			size, err := strconv.ParseInt(string(f.Size), 10, 64)
			if err != nil || size < 0 {
				return nil, fmt.Errorf("%w: %s lists %q with %q bytes", registry.ErrBroken, c.tracking, excerpt(f.Path), excerpt(string(f.Size)))
			}
			a.Size = size
		}
		entries = append(entries, a)
	}
	return entries, nil
}

// PresignArtifact asks for a URL that opens one file in the server's store. It
// asks once. Errors are those of Resolve; registry.ErrUnsupported means that this
// server gives none: MLflow before 3.11, or files that are not in S3.
func (c *Client) PresignArtifact(ctx context.Context, path string) (registry.Presigned, error) {
	r := request{method: http.MethodGet, base: c.tracking, api: filesAPI, call: "presigned/" + escapePath(path)}
	var out struct {
		URL     string            `json:"url"`
		Headers map[string]string `json:"headers"`
		Size    text              `json:"file_size"`
	}
	if err := c.once(ctx, r, &out); err != nil {
		if status := statusOf(err); status == http.StatusNotImplemented || status == http.StatusMethodNotAllowed ||
			status == http.StatusNotFound && !errors.Is(err, registry.ErrNotFound) {
			return registry.Presigned{}, fmt.Errorf("%w: %s gives no presigned URLs (%d)", registry.ErrUnsupported, c.tracking, status)
		}
		return registry.Presigned{}, fmt.Errorf("asking %s for a presigned URL of %s: %w", c.tracking, excerpt(path), classed(err))
	}
	p := registry.Presigned{URL: out.URL, Headers: out.Headers, Size: -1}
	if size, err := strconv.ParseInt(string(out.Size), 10, 64); err == nil && size >= 0 {
		p.Size = size
	}
	u, err := url.Parse(p.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil {
		return registry.Presigned{}, fmt.Errorf("%w: the presigned URL of %s is not http(s) to a host", registry.ErrBroken, c.tracking)
	}
	return p, nil
}

// notToStores are headers that a presigned URL's request never has, whatever the
// tracking server says: credentials, and what our own request decides.
var notToStores = map[string]struct{}{
	"Authorization": {}, "Proxy-Authorization": {}, "Cookie": {}, "Host": {}, "Range": {}, "If-Match": {}, "Accept-Encoding": {},
	"Connection": {}, "Content-Length": {}, "Transfer-Encoding": {}, "X-Mlflow-Workspace": {},
}

// OpenPresigned sends a GET with a presigned URL, and with nothing else that
// could prove who asks. Redirects are not followed: they are answers. The caller
// judges the status and closes the body. Errors name the host and nothing else of
// the URL; they mean that no answer came, or wrap registry.ErrDenied (and
// ErrConfig) or registry.ErrBroken when nothing could be sent.
func (c *Client) OpenPresigned(ctx context.Context, p registry.Presigned, header http.Header) (*http.Response, error) {
	client, err := c.stores()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", registry.ErrDenied, err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.URL, nil)
	if err != nil {
		return nil, fmt.Errorf("%w: a presigned URL cannot be requested", registry.ErrBroken) // the cause shows it
	}
	for name, value := range p.Headers {
		if _, no := notToStores[textproto.CanonicalMIMEHeaderKey(name)]; !no {
			req.Header.Set(name, value)
		}
	}
	for name, values := range header {
		req.Header[name] = values
	}
	req.Header.Set("Accept-Encoding", "identity")
	req.Header.Set("User-Agent", "pilotlight")
	resp, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", req.URL.Host, unwrapURL(err))
	}
	return resp, nil
}

// OpenArtifact opens one whole file through the proxy. The server fetches it from
// its store before it sends the first byte, which may take minutes; ctx bounds
// the wait. The length is often not announced: the caller counts, and closes the
// body. Errors are those of Resolve.
func (c *Client) OpenArtifact(ctx context.Context, path string) (*http.Response, error) {
	r := request{method: http.MethodGet, base: c.tracking, api: filesAPI, call: "artifacts/" + escapePath(path)}
	resp, err := c.open(ctx, r)
	if err != nil {
		return nil, fmt.Errorf("reading %s through %s: %w", excerpt(path), c.tracking, classed(err))
	}
	return resp, nil
}

func (c *Client) open(ctx context.Context, r request) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, r.method, endpoint(r), nil)
	if err != nil {
		return nil, fmt.Errorf("%w: building the request: %w", registry.ErrBroken, unwrapURL(err))
	}
	if err := c.authorize(req, nil); err != nil {
		return nil, err
	}
	req.Header.Set("Accept-Encoding", "identity") // not signed: front ends change it
	resp, err := c.files.Do(req)
	if err != nil {
		return nil, transportError(err)
	}
	contentType := resp.Header.Get("Content-Type")
	attached := strings.HasPrefix(resp.Header.Get("Content-Disposition"), "attachment")
	switch {
	case resp.StatusCode == http.StatusOK && (attached || !isHTML(contentType, "")):
		return resp, nil
	case resp.StatusCode == http.StatusOK:
		return nil, errors.Join(errLogin, resp.Body.Close())
	}
	const most = 64 << 10
	body, err := io.ReadAll(io.LimitReader(resp.Body, most))
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		return nil, transportError(err)
	}
	err, _ = classify(resp.StatusCode, contentType, body)
	return nil, err
}

// escapePath writes a path into a URL; every slash stays one.
func escapePath(path string) string {
	parts := strings.Split(path, "/")
	for i, part := range parts {
		parts[i] = url.PathEscape(part)
	}
	return strings.Join(parts, "/")
}
