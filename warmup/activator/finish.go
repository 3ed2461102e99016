package activator

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"time"
)

// How a request may end, beside the codes of errors.go.
const (
	classOK      = "ok"
	classLocal   = "local"            // answered without an engine: a list, a probe, a preflight
	class4xx     = "engine_4xx"       // the engine's answer, passed on
	class5xx     = "engine_5xx"       // the same
	classGone    = "client_gone"      // the client closed the connection
	classStalled = "client_stalled"   // the client took nothing of its answer for too long
	classBroken  = "engine_broke_off" // the answer ended in the middle
	classRefusal = "engine_error"     // the engine's refusal, as an event

	classCut      = "shutdown" // cut when the time to leave was over
	classGateway  = "bad_gateway"
	classTooLarge = "request_too_large"
)

// Classes lists every class in which a request may end: the values of the
// label class and of the field in the log.
func Classes() []string {
	all := []string{classOK, classLocal, class4xx, class5xx, classGone, classStalled, classBroken, classRefusal, classGateway, classTooLarge}
	for _, r := range refusals {
		if !slices.Contains(all, r.code) {
			all = append(all, r.code)
		}
	}
	return all
}

// finish says how a request ended. done is false while a panic cuts the
// connection, as the proxy does when an answer breaks off.
func (a *Activator) finish(w *writer, r *http.Request, way *passage, done bool) {
	if way.place != nil { // the proxy did not come as far as to use it
		way.pool.giveUp(way.place)
	}
	if way.class == "" || !done {
		way.class, way.status = outcome(r.Context(), w, way, done)
	}
	a.metrics.ended(way, w)
	level := slog.LevelInfo
	if way.class == classOK || way.class == classLocal {
		level = slog.LevelDebug
	}
	ctx := context.WithoutCancel(r.Context())
	if !a.opts.Logger.Enabled(ctx, level) {
		return
	}
	// The path says nothing secret; the query and the headers may.
	attrs := []slog.Attr{
		slog.String("method", r.Method), slog.String("path", r.URL.Path), slog.Int("status", way.status), slog.String("class", way.class),
		slog.Duration("took", time.Since(way.began)), slog.Duration("held", way.held), slog.Int64("sent", w.sent),
	}
	if way.pool != nil {
		attrs = append(attrs, slog.String("target", way.pool.ref.String()), slog.Int64("received", way.payload.size))
	}
	if way.reason != "" {
		attrs = append(attrs, slog.String("reason", way.reason))
	}
	if way.err != nil {
		attrs = append(attrs, slog.Any("error", way.err))
	}
	a.opts.Logger.LogAttrs(ctx, level, "request", attrs...)
}

// isCut reports whether Cut has ended a request that its client still wanted.
func isCut(ctx context.Context) bool { return errors.Is(context.Cause(ctx), errCut) }

// outcome tells a client that went away from an engine that did, and from us.
func outcome(ctx context.Context, w *writer, way *passage, done bool) (class string, status int) {
	switch {
	case isCut(ctx) && (!done || w.err != nil || w.status == http.StatusSwitchingProtocols):
		return classCut, cmp.Or(w.status, http.StatusServiceUnavailable)
	case errors.Is(w.err, os.ErrDeadlineExceeded):
		return classStalled, statusClientClosed
	case !done && way.err != nil && !errors.Is(way.err, context.Canceled):
		return classBroken, w.status
	case !done || w.err != nil || (ctx.Err() != nil && w.status == 0):
		return classGone, statusClientClosed
	case w.status >= http.StatusInternalServerError:
		return class5xx, w.status
	case w.status >= http.StatusBadRequest:
		return class4xx, w.status
	}
	return classOK, w.status
}
