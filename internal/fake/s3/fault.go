package s3

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"time"
)

// Fault is what goes wrong with one answer. The zero value is none. Status
// replaces the answer; the others spoil the body of an object that is sent.
type Fault struct {
	// Status and Code answer an S3 error: 503 SlowDown, 403 AccessDenied,
	// 412 PreconditionFailed. An empty Code is chosen by the status.
	Status int
	Code   string
	// RetryAfter is the header of that name, with a Status.
	RetryAfter string
	// IgnoreRange answers 200 and the whole object to a request for a range.
	IgnoreRange bool
	// ShiftRange is added to both ends in the answer's Content-Range.
	ShiftRange int64
	// ErrorBody answers 200 with an S3 error in place of the object.
	ErrorBody bool
	// Encoding is announced as the Content-Encoding.
	Encoding string
	// NoLength leaves the length out: of a HEAD's answer, and of a body, which
	// then comes in chunks.
	NoLength bool
	// Extra is sent after the body, as a store does that unpacks what it keeps
	// packed.
	Extra []byte
	// Break says how the body ends, after After bytes of it.
	Break Break
	After int64
	// Corrupt flips a bit of the body's last byte.
	Corrupt bool
}

// Break is a way for a body to end too early.
type Break string

// The breaks.
const (
	BreakNone  Break = ""
	BreakReset Break = "reset" // the connection dies; the length was announced in full
	BreakShort Break = "short" // a clean end, with the short length announced
	BreakStall Break = "stall" // nothing more comes until the client leaves
)

// maxStall bounds a stall whose client never leaves.
const maxStall = 2 * time.Minute

func (f Fault) asError() *apiError {
	code := f.Code
	if code == "" {
		code = map[int]string{
			http.StatusForbidden: "AccessDenied", http.StatusPreconditionFailed: "PreconditionFailed",
			http.StatusTooManyRequests: "TooManyRequests", http.StatusServiceUnavailable: "SlowDown",
			http.StatusNotFound: "NoSuchKey",
		}[f.Status]
	}
	if code == "" {
		code = "InternalError"
	}
	return errorf(f.Status, code, "injected fault")
}

// answer sends an object's bytes at the server's pace and with its fault.
type answer struct {
	http.ResponseWriter
	server *Server
	fault  Fault
}

// sendBody writes status and data. Headers other than the length are set.
func (w *answer) sendBody(r *http.Request, status int, data []byte) {
	if w.fault.ErrorBody {
		writeXML(w, http.StatusOK, errorf(http.StatusOK, "InternalError", "injected fault"))
		return
	}
	if w.fault.Encoding != "" {
		w.Header().Set("Content-Encoding", w.fault.Encoding)
	}
	if len(w.fault.Extra) > 0 {
		data = slices.Concat(data, w.fault.Extra)
	}
	length := int64(len(data))
	end := length
	if w.fault.Break != BreakNone {
		end = min(w.fault.After, length)
	}
	if w.fault.Break == BreakShort {
		length = end
	}
	if !w.fault.NoLength {
		w.Header().Set("Content-Length", strconv.FormatInt(length, 10))
	}
	w.WriteHeader(status)
	if r.Method == http.MethodHead {
		return
	}
	if w.fault.Corrupt && end == length && end > 0 {
		data = append([]byte(nil), data...)
		data[end-1] ^= 1
	}
	if w.fault.NoLength {
		w.flush() // else a short body is given its length
	}
	if !w.paced(r.Context(), data[:end]) {
		return
	}
	switch w.fault.Break {
	case BreakReset:
		w.flush()
		panic(http.ErrAbortHandler)
	case BreakStall:
		if end == length {
			return // all of it is out: the client waits for nothing
		}
		w.flush()
		wait(r.Context(), maxStall)
		panic(http.ErrAbortHandler)
	}
}

func (w *answer) flush() {
	_ = http.NewResponseController(w.ResponseWriter).Flush() // best effort: the answer is broken on purpose
}

// paced writes data in slices of a fiftieth of a second at the server's rate.
func (w *answer) paced(ctx context.Context, data []byte) bool {
	w.server.mu.RLock()
	rate := w.server.rate
	w.server.mu.RUnlock()
	if rate <= 0 {
		_, err := w.Write(data)
		return err == nil
	}
	const perSecond = 50
	step := int(max(1, rate/perSecond))
	for len(data) > 0 {
		n := min(step, len(data))
		if _, err := w.Write(data[:n]); err != nil {
			return false
		}
		w.flush()
		if !wait(ctx, time.Second*time.Duration(n)/time.Duration(rate)) {
			return false
		}
		data = data[n:]
	}
	return true
}

// wait sleeps for d and reports whether the client is still there.
func wait(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
