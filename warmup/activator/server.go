package activator

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"time"
)

const (
	headersWithin = 10 * time.Second // how long a request's headers may take to arrive

	// idleWithin is how long a client's connection is kept without a request:
	// longer than gateways keep theirs (60 s is common), so that it is they who
	// close it and no request meets a closing connection.
	idleWithin = 3 * time.Minute

	mostHeaders = 64 << 10 // bytes
	mostStreams = 1000     // requests at a time on one connection of HTTP/2
)

// How a process that may hold many requests sets its garbage collector. Bodies
// and stacks of held requests live long, and with Go's default (GOGC=100) as
// much again would be left lying: so GCPercent is small. A process that holds
// nothing has a small heap, and would collect many times a second: Ballast
// bytes that are allocated and never touched, and so never take memory, make
// room for 40 % of themselves between two collections.
const (
	GCPercent = 40
	Ballast   = 128 << 20
)

// spare is what a process takes beside bodies: stacks and buffers of its
// connections, and what garbage there is between two collections. An eighth of
// the bodies comes to it.
const spare = 96 << 20

// MemoryLimit is the GOMEMLIMIT, in bytes, that a process with that MaxTotal
// should set, unless its user has: without one, GCPercent alone lets garbage
// come on top of bodies that fill MaxTotal. A Ballast is to be added: the
// runtime counts it, whether it takes memory or not.
func MemoryLimit(maxTotal int64) int64 { return maxTotal + maxTotal/8 + spare }

// Server returns a server for clients: HTTP/1.1, and HTTP/2 with TLS or with
// prior knowledge (h2c). It bounds what a client may leave open, and no answer
// as a whole. Requests outlive ctx: Shutdown lets them finish, and Cut ends them.
func (a *Activator) Server(ctx context.Context) *http.Server {
	base, cut := context.WithCancelCause(context.WithoutCancel(ctx))
	a.mu.Lock()
	a.cut = append(a.cut, cut)
	a.mu.Unlock()
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Server{
		Handler: a, Protocols: &protocols,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: mostStreams, SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second},
		ReadHeaderTimeout: headersWithin, IdleTimeout: idleWithin, MaxHeaderBytes: mostHeaders,
		ErrorLog:    slog.NewLogLogger(a.opts.Logger.Handler(), slog.LevelDebug),
		BaseContext: func(net.Listener) context.Context { return base },
	}
}
