package agentwatch

import (
	"io"
	"net/http"
	"strings"
)

// Bound makes a client for Cluster read no more of what a pod answers through
// the API server's proxy than an agent may say: the client reads answers to
// posts, and those with an error's status, into memory as a whole. Give it to
// rest.Config.Wrap. Other answers, which are the API server's own, pass as they
// are.
func Bound(next http.RoundTripper) http.RoundTripper { return bound{next} }

type bound struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (b bound) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := b.next.RoundTrip(r)
	if err == nil && ofPod(r.URL.Path) {
		// One byte more than is allowed, so that who counts finds it too long.
		resp.Body = cut{io.LimitReader(resp.Body, maxStatus+1), resp.Body}
	}
	return resp, err
}

// WrappedRoundTripper lets client-go find the transport beneath.
func (b bound) WrappedRoundTripper() http.RoundTripper { return b.next }

// cut is a body of which only the beginning is read.
type cut struct {
	io.Reader
	io.Closer
}

// ofPod reports whether a path is .../pods/NAME/proxy/...
func ofPod(path string) bool {
	_, after, ok := strings.Cut(path, "/pods/")
	_, rest, _ := strings.Cut(after, "/")
	return ok && (rest == "proxy" || strings.HasPrefix(rest, "proxy/"))
}
