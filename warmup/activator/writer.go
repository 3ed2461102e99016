package activator

import (
	"bufio"
	"bytes"
	"encoding/json"
	"net"
	"net/http"
	"time"

	"github.com/pilotlight-dev/pilotlight/warmup/activator/openai"
)

// writer is a client's end of an answer. It bounds each write instead of the
// whole, counts, and speaks in events once it has sent a comment: then status
// 200 and the type of a stream are out, and any other answer becomes an event.
type writer struct {
	http.ResponseWriter
	control *http.ResponseController
	timeout time.Duration
	h2      bool        // a deadline of HTTP/2 strikes between writes, too
	last    func() bool // the client shall connect anew after this answer; asked when it begins

	until   time.Time // the deadline that is set
	status  int       // sent, 0 = none yet
	sent    int64     // bytes of the body
	err     error     // of the first write that failed
	events  bool      // a comment has been sent
	failure int       // with events: the status of an answer that is not a stream
	held    bytes.Buffer
}

func newWriter(w http.ResponseWriter, r *http.Request, timeout time.Duration) *writer {
	out := &writer{ResponseWriter: w, control: http.NewResponseController(w), timeout: timeout, h2: r.ProtoMajor >= 2}
	if !out.h2 {
		out.arm() // the server takes the deadline of the request before away, and writes 100 Continue by itself
	}
	return out
}

// arm sets the deadline of the write that follows, at most a quarter early.
func (w *writer) arm() {
	now := time.Now()
	if w.until.Sub(now) < w.timeout*3/4 {
		w.until = now.Add(w.timeout)
		_ = w.control.SetWriteDeadline(w.until) // where it cannot be set there is nothing to bound
	}
}

func (w *writer) disarm(err error) error {
	if w.h2 {
		w.until = time.Time{}
		_ = w.control.SetWriteDeadline(w.until) // as above
	}
	if err != nil && w.err == nil {
		w.err = err
	}
	return err
}

// WriteHeader implements http.ResponseWriter.
func (w *writer) WriteHeader(status int) {
	if w.events {
		if status >= http.StatusMultipleChoices || !isEvents(w.Header()) && status >= http.StatusOK {
			w.failure, w.status = status, status
		}
		return
	}
	if status >= http.StatusOK || status == http.StatusSwitchingProtocols {
		w.status = status
	}
	if status >= http.StatusOK && w.last() {
		w.Header().Set("Connection", "close") // HTTP/2 makes a GOAWAY of it
	}
	w.arm()
	w.ResponseWriter.WriteHeader(status)
	_ = w.disarm(nil)
}

// Write implements io.Writer.
func (w *writer) Write(p []byte) (int, error) {
	if w.failure != 0 {
		w.held.Write(p[:min(len(p), max(mostHeldBack-w.held.Len(), 0))])
		return len(p), nil
	}
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	w.arm()
	n, err := w.ResponseWriter.Write(p)
	w.sent += int64(n)
	return n, w.disarm(err)
}

// FlushError implements what http.ResponseController looks for.
func (w *writer) FlushError() error {
	if w.failure != 0 {
		return nil
	}
	w.arm()
	return w.disarm(w.control.Flush())
}

// Unwrap lets http.ResponseController find what is not here.
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Hijack implements http.Hijacker. Writes to the connection are bounded, too.
func (w *writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := w.control.Hijack()
	if err != nil {
		return nil, nil, err
	}
	w.status = http.StatusSwitchingProtocols
	return &boundedConn{Conn: conn, writer: w}, rw, nil
}

// comment sends an SSE comment, which clients pass over and which keeps
// whatever is between us and them from giving up.
func (w *writer) comment(text string) error {
	if !w.events {
		h := w.Header()
		h.Set("Content-Type", "text/event-stream")
		h.Set("Cache-Control", "no-cache")
		h.Set("X-Accel-Buffering", "no")
		w.WriteHeader(http.StatusOK)
		w.events = true
		clear(h) // they are out; what follows tells what the engine answers
	}
	if _, err := w.Write([]byte(": " + text + "\n\n")); err != nil {
		return err
	}
	return w.FlushError()
}

// end sends the answer that was held back, as an event, and leaves time for
// what the server still has to write.
func (w *writer) end() {
	if !w.h2 {
		w.arm()
	}
	if w.failure == 0 {
		return
	}
	status := w.failure
	w.failure = 0
	_, _ = w.Write(event(status, w.held.Bytes())) // a client that has gone needs no answer
}

// event makes an event of an error's body.
func event(status int, body []byte) []byte {
	var line bytes.Buffer
	line.WriteString("data: ")
	if json.Compact(&line, body) != nil {
		line.Reset()
		line.WriteString("data: ")
		line.Write(bytes.TrimSpace(openai.Error(status, classRefusal, http.StatusText(status))))
	}
	line.WriteString("\n\n")
	return line.Bytes()
}

// boundedConn bounds each write to an upgraded connection.
type boundedConn struct {
	net.Conn
	writer *writer
}

// Write implements io.Writer.
func (c *boundedConn) Write(p []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(c.writer.timeout)); err != nil {
		return 0, err
	}
	n, err := c.Conn.Write(p)
	c.writer.sent += int64(n)
	return n, err
}
