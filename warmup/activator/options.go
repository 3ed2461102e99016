package activator

import (
	"cmp"
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pilotlight-dev/pilotlight/internal/workload"
	"github.com/pilotlight-dev/pilotlight/warmup/activator/affinity"
)

// Source lists the workloads to route to, each with its trigger's metadata.
type Source interface {
	All(ctx context.Context) ([]workload.Workload, error)
}

// Keys knows the API keys that may use the models.
type Keys interface {
	Allowed(key string) bool
}

// Options configures an Activator. Source is required; whatever is zero or
// negative gets its default.
type Options struct {
	Source  Source
	Refresh time.Duration // between looks at the Source; default 200 ms, and 25 ms while something is held
	Linger  time.Duration // how long a target that the Source no longer lists is still served; default 30 s

	MaxHold      time.Duration // how long a request may wait for a place; default 10 min
	MaxHeld      int           // requests that may wait for one target; default 1000
	MaxHeldTotal int           // requests that may wait for all targets; default 10000
	MaxBytes     int64         // bytes of all requests waiting for one target; default 256 MiB
	MaxBody      int64         // bytes of one request; default 32 MiB
	MaxTotal     int64         // bytes of all bodies in memory, whatever their target; default 1 GiB
	Pause        time.Duration // how long a client may send nothing of its body; default 15 s
	UploadRate   int64         // bytes per second that a body must come with on average, after Pause; default 16 KiB
	WriteTimeout time.Duration // how long a client may take nothing of its answer; default 1 min

	Comments       time.Duration // between comments on a held stream, 0 = none
	PriorityHeader string        // header that names a request's class, "" = none
	Affinity       Affinity
	Keys           Keys     // nil: anybody
	Origins        []string // web origins that a preflight allows; "*" = all, none = none

	EngineTLS  func() *tls.Config // for servingScheme https, asked for each handshake; nil: the system's roots
	Dial       func(ctx context.Context, network, addr string) (net.Conn, error)
	Registerer prometheus.Registerer // nil: no metrics
	Logger     *slog.Logger          // default: discard
}

// Affinity sends the requests of one conversation to the same pod. The zero
// value does not.
type Affinity struct {
	On     bool
	Header string  // whose value names the conversation, before anything in the body; "" = none
	Bytes  int     // of the conversation's beginning that are compared; default 8 KiB
	Factor float64 // how much busier than the average a pod may get; default 1.25
}

func (o Options) withDefaults() Options {
	duration := func(d *time.Duration, def time.Duration) { *d = cmp.Or(max(*d, 0), def) }
	number := func(n *int, def int) { *n = cmp.Or(max(*n, 0), def) }
	size := func(n *int64, def int64) { *n = cmp.Or(max(*n, 0), def) }
	duration(&o.Refresh, 200*time.Millisecond)
	duration(&o.Linger, 30*time.Second)
	duration(&o.MaxHold, 10*time.Minute)
	duration(&o.Pause, 15*time.Second)
	duration(&o.WriteTimeout, time.Minute)
	number(&o.MaxHeld, 1000)
	number(&o.MaxHeldTotal, 10000)
	number(&o.Affinity.Bytes, 8<<10)
	size(&o.MaxBytes, 256<<20)
	size(&o.MaxBody, 32<<20)
	size(&o.MaxTotal, 1<<30)
	size(&o.UploadRate, 16<<10)
	if o.Affinity.Factor < 1 {
		o.Affinity.Factor = affinity.DefaultFactor
	}
	if o.EngineTLS == nil {
		o.EngineTLS = func() *tls.Config { return &tls.Config{MinVersion: tls.VersionTLS12} }
	}
	if o.Dial == nil {
		o.Dial = (&net.Dialer{Timeout: dialTimeout, KeepAliveConfig: net.KeepAliveConfig{
			Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 6,
		}}).DialContext
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}
