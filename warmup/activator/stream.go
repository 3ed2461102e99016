package activator

import (
	"bytes"
	"errors"
	"io"
	"net/http"

	"github.com/pilotlight-dev/pilotlight/warmup/activator/openai"
)

// opening is the body of a stream of which the client has seen nothing yet. It
// holds back what comes before the first content (the event with the role) and
// sends the request elsewhere when the engine says, before any content, that
// it goes down. From the first content on everything passes as it comes.
type opening struct {
	places  places
	request *http.Request
	way     *passage
	body    io.ReadCloser

	passing bool
	ready   []byte // to be passed on
	pending []byte // seen and held back; whole events first
	judged  int    // bytes of pending that are whole events
	err     error  // after ready
}

// Read implements io.Reader.
func (o *opening) Read(p []byte) (int, error) {
	for {
		switch {
		case len(o.ready) > 0:
			n := copy(p, o.ready)
			o.ready = o.ready[n:]
			return n, nil
		case o.err != nil:
			return 0, o.err
		case o.passing:
			n, err := o.body.Read(p)
			if err != nil && !errors.Is(err, io.EOF) {
				o.way.err = err
			}
			return n, err
		}
		n, err := o.body.Read(p)
		o.pending = append(o.pending, p[:n]...)
		if left := o.judge(); !left && err != nil {
			o.end(err)
		}
	}
}

// judge looks at the events that are whole by now. It reports whether the body
// that they came from was left: its end, which may have come with them, is not
// the end of the answer.
func (o *opening) judge() (left bool) {
	for !o.passing {
		event, size := nextEvent(o.pending[o.judged:])
		if size == 0 {
			if len(o.pending) > mostHeldBack {
				o.pass()
			}
			return false
		}
		switch openai.Event(event) {
		case openai.Content:
			o.pass()
		case openai.Abort:
			o.elsewhere()
			return true
		case openai.Opening:
			o.judged += size
		}
	}
	return false
}

// end passes what there is, and then err.
func (o *opening) end(err error) {
	if !o.passing {
		o.pass()
	}
	o.err = err
	if !errors.Is(err, io.EOF) {
		o.way.err = err
	}
}

// nextEvent cuts off the first event with the empty line that ends it.
func nextEvent(b []byte) (event []byte, size int) {
	best := -1
	for _, end := range []string{"\n\n", "\r\n\r\n", "\r\r"} {
		if i := bytes.Index(b, []byte(end)); i >= 0 && (best < 0 || i < best) {
			best, size = i, i+len(end)
		}
	}
	if best < 0 {
		return nil, 0
	}
	return b[:best], size
}

// pass lets everything through from now on.
func (o *opening) pass() {
	o.passing, o.ready, o.pending = true, o.pending, nil
	o.way.payload.drop()
}

// elsewhere sends the request to another engine. The client has got a status
// and headers, so an error can only be an event.
func (o *opening) elsewhere() {
	o.pending, o.judged = nil, 0
	err := o.leave()
	var resp *http.Response
	if err == nil {
		resp, err = o.places.attempt(o.request, o.way) //nolint:bodyclose // it becomes our body, which Close closes
	}
	if err == nil {
		o.body = resp.Body
		if resp.StatusCode == http.StatusOK && isEvents(resp.Header) {
			return
		}
		message, _ := io.ReadAll(io.LimitReader(resp.Body, mostHeldBack)) // what there is of it will do
		o.fail(resp.StatusCode, classRefusal, event(resp.StatusCode, message))
		return
	}
	if o.request.Context().Err() != nil {
		o.passing, o.err = true, o.request.Context().Err()
		return
	}
	ref := classify(err)
	o.way.err = err
	message := err.Error()
	if ref.status == http.StatusBadGateway {
		message = errEngine.Error()
	}
	o.fail(ref.status, ref.code, event(ref.status, openai.Error(ref.status, ref.code, message)))
}

// leave ends the answer of the engine that goes down.
func (o *opening) leave() error {
	b, ok := o.body.(*place)
	if !ok {
		return errLeaving
	}
	_ = b.ReadCloser.Close()
	var err error
	b.once.Do(func() { err = o.places.leaving(o.way, b.backend) })
	return err
}

// fail ends the stream with an event that says why.
func (o *opening) fail(status int, class string, event []byte) {
	o.way.status, o.way.class = status, class
	o.pending = event
	o.pass()
	o.err = io.EOF
}

// Close implements io.Closer.
func (o *opening) Close() error { return o.body.Close() }
