package activator

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/pilotlight-dev/pilotlight/internal/trigger"
	"github.com/pilotlight-dev/pilotlight/internal/workload"
)

const (
	// dialTimeout is how long a connection to a pod may take to be made.
	dialTimeout = 2 * time.Second

	// shunFor is how long a pod whose dial was refused gets no request: longer
	// than a listen call takes, shorter than anybody notices. It doubles with
	// every refusal in a row up to shunMost.
	shunFor  = 200 * time.Millisecond
	shunMost = 5 * time.Second

	// shunDraining is how long a pod gets no request that has said that it goes
	// down. By then the watch has told that it is terminating.
	shunDraining = 30 * time.Second

	// idleFor is how long a connection to a pod is kept without a request. vLLM
	// closes its own after five seconds.
	idleFor = 4 * time.Second
)

// A backend is one Ready pod. Its connections are its own: what was dialled
// for one pod is never used for another that got its address.
type backend struct {
	id        string
	hash      uint64
	name      string
	addr      string
	scheme    string
	transport *http.Transport
	gone      atomic.Bool // no longer Ready; its requests go on

	// Guarded by the pool's lock.
	inFlight int
	shunned  time.Time // until
	refusals int       // in a row
}

// identity tells pods apart, also those that have an address or a name after
// one another.
func identity(t trigger.Trigger, pod workload.Pod) (id, addr string) {
	port := t.ServingPort
	if pod.Port != 0 {
		port = pod.Port
	}
	addr = net.JoinHostPort(pod.Host, strconv.Itoa(port))
	return fmt.Sprintf("%s %s://%s %d", pod.Name, t.ServingScheme, addr, pod.Created.UnixNano()), addr
}

func (a *Activator) newBackend(t trigger.Trigger, pod workload.Pod) *backend {
	b := &backend{name: pod.Name, scheme: t.ServingScheme, hash: hash(pod.Name)}
	b.id, b.addr = identity(t, pod)
	b.transport = &http.Transport{
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			return b.dial(ctx, a.opts.Dial, network, addr)
		},

		MaxIdleConnsPerHost: 1024,
		IdleConnTimeout:     idleFor,
		DisableCompression:  true,
		WriteBufferSize:     4 << 10,
		ReadBufferSize:      4 << 10,
	}
	if b.scheme == "https" {
		b.transport.DialTLSContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := b.transport.DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return shake(ctx, conn, a.opts.EngineTLS(), pod.Host)
		}
	}
	return b
}

// shake makes a TLS connection to the host, or closes conn.
func shake(ctx context.Context, conn net.Conn, config *tls.Config, host string) (net.Conn, error) {
	if config.ServerName == "" {
		config.ServerName = host
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	secure := tls.Client(conn, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return secure, nil
}

// errLeft is a dial that was not made, or not used: the pod is not Ready any
// more, and its address may be another's by now.
var errLeft = errors.New("the pod has left")

// dial connects to the pod if it is still there, before and after.
func (b *backend) dial(ctx context.Context, dial func(context.Context, string, string) (net.Conn, error), network, addr string) (net.Conn, error) {
	if b.gone.Load() {
		return nil, &net.OpError{Op: "dial", Net: network, Err: errLeft}
	}
	conn, err := dial(ctx, network, addr)
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: network, Err: err}
	}
	if b.gone.Load() {
		_ = conn.Close()
		return nil, &net.OpError{Op: "dial", Net: network, Err: errLeft}
	}
	return conn, nil
}

// neverSent reports whether a request certainly did not reach an engine: its
// connection could not be made. Only then is it safe to send it again.
func neverSent(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}
