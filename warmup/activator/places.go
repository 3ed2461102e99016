package activator

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"net/http/httputil"
	"strings"
	"sync"
	"time"

	"github.com/pilotlight-dev/pilotlight/warmup/activator/openai"
)

const (
	// mostAborts is how many engines that go down a request may meet before its
	// client is asked to come again.
	mostAborts = 3

	// mostHeldBack bounds what is looked at of an answer before it is passed
	// on. The answer of an engine that gives up is a few hundred bytes.
	mostHeldBack = 64 << 10
)

// buffers lends the proxy what it copies answers with.
type buffers struct{ pool sync.Pool }

const bufferSize = 16 << 10

// Get implements httputil.BufferPool.
func (b *buffers) Get() []byte {
	if buf, ok := b.pool.Get().(*[]byte); ok {
		return *buf
	}
	return make([]byte, bufferSize)
}

// Put implements httputil.BufferPool.
func (b *buffers) Put(buf []byte) { b.pool.Put(&buf) }

func (a *Activator) newProxy() *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Transport:  places{a},
		BufferPool: &buffers{},
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host = "http", "pod" // places sets both
			r.Out.Header["X-Forwarded-For"] = r.In.Header["X-Forwarded-For"]
			r.SetXForwarded()
		},
		ErrorHandler: a.refuse,
		ErrorLog:     slog.NewLogLogger(a.opts.Logger.Handler(), slog.LevelDebug),
	}
}

// places is a transport that sends each request to the place it has, or takes
// another one, and gives it back when the answer has been read to its end.
type places struct{ a *Activator }

// RoundTrip implements http.RoundTripper.
func (t places) RoundTrip(r *http.Request) (*http.Response, error) {
	way := passageOf(r)
	if way.pool == nil {
		return nil, errUnexpected
	}
	resp, err := t.attempt(r, way)
	if err != nil {
		return nil, err
	}
	if legible(resp, way) && isEvents(resp.Header) {
		resp.Body = &opening{places: t, request: r, way: way, body: resp.Body}
		// The answer may become another engine's, which is as long as it is.
		resp.ContentLength = -1
		resp.Header.Del("Content-Length")
		return resp, nil
	}
	way.payload.drop() // the answer has begun: nothing is sent twice from here on
	if _, upgraded := resp.Body.(*duplex); !upgraded {
		resp.Body = &noted{resp.Body, way}
	}
	return resp, nil
}

// attempt sends the request until an engine takes it: it starts over where the
// dial was refused, and where the whole answer is that the engine goes down.
func (t places) attempt(r *http.Request, way *passage) (*http.Response, error) {
	for {
		b := way.place
		way.place = nil
		if b == nil {
			var err error
			if b, err = t.a.wait(r.Context(), way); err != nil {
				return nil, err
			}
		}
		began := time.Now()
		resp, err := b.transport.RoundTrip(addressed(r, way, b))
		switch {
		case err != nil && neverSent(err) && r.Context().Err() == nil && time.Now().Before(way.until):
			t.a.metrics.retried(way, retryRefused)
			way.pool.refused(b)
			continue
		case err != nil && neverSent(err) && r.Context().Err() == nil:
			way.pool.refused(b)
			return nil, way.pool.late()
		case err != nil:
			way.pool.release(way, b, time.Since(began))
			return nil, err
		}
		if resp.StatusCode == http.StatusSwitchingProtocols {
			return t.switched(resp, way, b, began)
		}
		aborted, err := t.aborted(resp, way)
		if err != nil {
			_ = resp.Body.Close()
			way.pool.release(way, b, time.Since(began))
			return nil, err
		}
		if aborted {
			_ = resp.Body.Close()
			if err := t.leaving(way, b); err != nil {
				return nil, err
			}
			continue
		}
		resp.Body = &place{ReadCloser: resp.Body, way: way, backend: b, began: began}
		return resp, nil
	}
}

// switched takes an upgraded connection over, if that is what was asked for:
// anything else would be a tunnel past the list of paths, and the proxy would
// leave it open.
func (t places) switched(resp *http.Response, way *passage, b *backend, began time.Time) (*http.Response, error) {
	rw, ok := resp.Body.(io.ReadWriteCloser)
	if !ok || !way.upgrades || !strings.EqualFold(resp.Header.Get("Upgrade"), webSocket) {
		_ = resp.Body.Close()
		way.pool.release(way, b, time.Since(began))
		return nil, errSwitched
	}
	tunnel := &duplex{rw, sync.OnceFunc(func() { way.pool.release(way, b, time.Since(began)) })}
	way.tunnel, resp.Body = tunnel, tunnel
	return resp, nil
}

// leaving gives the place on a pod back that has said that it goes down. The
// error is not nil when that has happened often enough.
func (t places) leaving(way *passage, b *backend) error {
	way.pool.rest(b, shunDraining)
	t.a.metrics.retried(way, retryAbort)
	if way.retries++; way.retries >= mostAborts {
		return errLeaving
	}
	return nil
}

// aborted reports whether a whole answer says that the engine goes down. What
// it has read of the body is put back.
func (t places) aborted(resp *http.Response, way *passage) (bool, error) {
	if !legible(resp, way) || isEvents(resp.Header) || resp.ContentLength > mostHeldBack {
		return false, nil
	}
	start, err := beginning(resp)
	if err != nil {
		return false, err
	}
	if len(start) < mostHeldBack && openai.Aborted(start) {
		return true, nil
	}
	resp.Body = &restored{bytes.NewReader(start), resp.Body}
	return false, nil
}

// legible reports whether an answer may say that the engine goes down, in a
// way that can be read: what is compressed passes as it is.
func legible(resp *http.Response, way *passage) bool {
	return way.generates && resp.StatusCode == http.StatusOK && resp.Header.Get("Content-Encoding") == ""
}

// beginning reads an answer's body, up to what is looked at.
func beginning(resp *http.Response) ([]byte, error) {
	if resp.ContentLength < 0 {
		return io.ReadAll(io.LimitReader(resp.Body, mostHeldBack))
	}
	start := make([]byte, resp.ContentLength)
	_, err := io.ReadFull(resp.Body, start)
	return start, err
}

// restored is a body whose beginning has been read.
type restored struct {
	start *bytes.Reader
	rest  io.ReadCloser
}

// Read implements io.Reader.
func (r *restored) Read(p []byte) (int, error) {
	if r.start.Len() > 0 {
		return r.start.Read(p)
	}
	return r.rest.Read(p)
}

// Close implements io.Closer.
func (r *restored) Close() error { return r.rest.Close() }

func isEvents(h http.Header) bool {
	kind, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	return err == nil && kind == "text/event-stream"
}

func addressed(r *http.Request, way *passage, b *backend) *http.Request {
	out := r.WithContext(r.Context())
	address := *r.URL
	address.Scheme, address.Host = b.scheme, b.addr
	out.URL = &address
	if way.payload.size == 0 {
		out.Body, out.ContentLength = http.NoBody, 0
		return out
	}
	// GetBody lets the transport start over on a pooled connection that turned
	// out to be closed, as long as nothing has been written to it.
	out.GetBody = func() (io.ReadCloser, error) {
		if body := way.payload.open(); body != nil {
			return body, nil
		}
		return nil, errors.New("the body has been given up")
	}
	out.Body, _ = out.GetBody()
	out.ContentLength = way.payload.size
	return out
}

// place is a body whose end gives the place back.
type place struct {
	io.ReadCloser
	way     *passage
	backend *backend
	began   time.Time
	once    sync.Once
}

// Close implements io.Closer.
func (p *place) Close() error {
	defer p.once.Do(func() { p.way.pool.release(p.way, p.backend, time.Since(p.began)) })
	return p.ReadCloser.Close()
}

// duplex is the same for an upgraded connection, which is written to as well.
type duplex struct {
	io.ReadWriteCloser
	done func()
}

// Close implements io.Closer.
func (d *duplex) Close() error {
	defer d.done()
	return d.ReadWriteCloser.Close()
}

// noted remembers that the engine broke off.
type noted struct {
	io.ReadCloser
	way *passage
}

// Read implements io.Reader.
func (n *noted) Read(p []byte) (int, error) {
	got, err := n.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		n.way.err = err
	}
	return got, err
}
