package activatorcmd

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/pilotlight-dev/pilotlight/cmd/internal/cli"
	"github.com/pilotlight-dev/pilotlight/cmd/internal/clusterflags"
	"github.com/pilotlight-dev/pilotlight/internal/tlsconf"
	"github.com/pilotlight-dev/pilotlight/warmup/activator"
	"github.com/pilotlight-dev/pilotlight/warmup/activator/affinity"
	"github.com/pilotlight-dev/pilotlight/warmup/activator/apikey"
)

type flags struct {
	listen, httpListen, scaler, id string
	cluster                        clusterflags.Flags
	log                            cli.LogFlags
	insecure                       bool
	delay, drainHold, grace        time.Duration
	keys, affinity, serverName     string
	unverified                     bool
	opts                           activator.Options

	tls, listenTLS, engineTLS tlsconf.Files // towards the scaler, the clients, the engines
}

func (f *flags) add(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&f.listen, "listen", ":8000", "address for clients (HTTP/1.1 and HTTP/2)")
	fs.StringVar(&f.httpListen, "http-listen", ":8081", "address for probes, metrics and debugging")
	fs.StringVar(&f.scaler, "scaler", "", "host:port of the scaler's demand service (required)")
	fs.StringVar(&f.id, "id", "", "name of this replica (default: the host name)")
	fs.StringVar(&f.tls.CA, "tls-ca-file", "", "verify the scaler's certificate with these")
	fs.StringVar(&f.tls.Cert, "tls-cert-file", "", "certificate to show to the scaler (mTLS)")
	fs.StringVar(&f.tls.Key, "tls-key-file", "", "its private key")
	fs.BoolVar(&f.insecure, "insecure", false, "talk to the scaler without TLS")
	fs.DurationVar(&f.delay, "shutdown-delay", 5*time.Second, "how long to go on accepting, unready, after a stop was asked for")
	fs.DurationVar(&f.drainHold, "drain-hold", 30*time.Second, "how long held requests may go on waiting after that")
	fs.DurationVar(&f.grace, "grace", 5*time.Minute, "how long requests may go on after that")
	f.addBounds(cmd)
	f.addClients(cmd)
	f.addEngines(cmd)
	f.cluster.Add(cmd)
	f.log.Add(cmd)
}

func (f *flags) addBounds(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.DurationVar(&f.opts.MaxHold, "max-hold", 10*time.Minute, "longest wait of a request for a ready replica")
	fs.IntVar(&f.opts.MaxHeld, "max-held", 1000, "requests that may wait for one model")
	fs.IntVar(&f.opts.MaxHeldTotal, "max-held-total", 10000, "requests that may wait for all models")
	fs.Int64Var(&f.opts.MaxBytes, "max-held-bytes", 256<<20, "bytes of all requests that wait for one model")
	fs.Int64Var(&f.opts.MaxTotal, "max-total-bytes", 1<<30, "bytes of all requests in memory; half of it may wait")
	fs.Int64Var(&f.opts.MaxBody, "max-body-bytes", 32<<20, "largest request")
	fs.DurationVar(&f.opts.Pause, "upload-pause", 15*time.Second, "how long a client may send nothing of its request")
	fs.Int64Var(&f.opts.UploadRate, "upload-rate", 16<<10, "bytes per second that a request must come with on average, after --upload-pause")
	fs.DurationVar(&f.opts.WriteTimeout, "write-timeout", time.Minute, "how long a client may take nothing of its answer")
}

func (f *flags) addClients(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&f.listenTLS.Cert, "listen-tls-cert-file", "", "serve clients over TLS with this certificate")
	fs.StringVar(&f.listenTLS.Key, "listen-tls-key-file", "", "its private key")
	fs.StringVar(&f.listenTLS.CA, "listen-tls-client-ca-file", "", "ask clients for a certificate signed by one of these (mTLS)")
	fs.StringVar(&f.keys, "api-keys-sha256", "", "file with the SHA-256 of each API key that may use the models (default: anybody may)")
	fs.StringSliceVar(&f.opts.Origins, "cors-origins", []string{"*"}, "web origins that a preflight allows; none with an empty value")
	fs.DurationVar(&f.opts.Comments, "hold-comments", 0, "send held streams a comment this often, with status 200 (default: none)")
	fs.StringVar(&f.opts.PriorityHeader, "priority-header", "", "header with a held request's class: high, normal, low or -10 to 10 (default: none)")
}

func (f *flags) addEngines(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&f.affinity, "affinity", "off", "off, or prefix: send what begins alike to the same replica")
	fs.StringVar(&f.opts.Affinity.Header, "affinity-header", "", "header that names the conversation, before anything in the body")
	fs.IntVar(&f.opts.Affinity.Bytes, "affinity-bytes", 8<<10, "bytes of a conversation's beginning that are compared")
	fs.Float64Var(&f.opts.Affinity.Factor, "affinity-factor", affinity.DefaultFactor, "how much busier than the average a replica may get by it")
	fs.StringVar(&f.engineTLS.CA, "engine-tls-ca-file", "", "verify the certificates of engines with these (servingScheme https)")
	fs.StringVar(&f.engineTLS.Cert, "engine-tls-cert-file", "", "certificate to show to engines (mTLS)")
	fs.StringVar(&f.engineTLS.Key, "engine-tls-key-file", "", "its private key")
	fs.StringVar(&f.serverName, "engine-tls-server-name", "", "name that the certificates of engines must be for (default: the pod's address)")
	fs.BoolVar(&f.unverified, "engine-tls-insecure", false, "do not verify the certificates of engines")
}

// check refuses what cannot work, each fault with its flag.
func (f *flags) check() (err error) {
	if f.scaler == "" {
		return cli.Usage("--scaler is required: the scaler must hear of held requests to wake a model")
	}
	if host, port, err := net.SplitHostPort(f.scaler); err != nil || host == "" || port == "" {
		return cli.Usage("--scaler %q must be host:port", f.scaler)
	}
	for _, bound := range []struct {
		flag  string
		value int64
	}{
		{"--max-hold", int64(f.opts.MaxHold)},
		{"--max-held", int64(f.opts.MaxHeld)},
		{"--max-held-total", int64(f.opts.MaxHeldTotal)},
		{"--max-held-bytes", f.opts.MaxBytes},
		{"--max-total-bytes", f.opts.MaxTotal},
		{"--max-body-bytes", f.opts.MaxBody},
		{"--upload-pause", int64(f.opts.Pause)},
		{"--upload-rate", f.opts.UploadRate},
		{"--write-timeout", int64(f.opts.WriteTimeout)},
		{"--affinity-bytes", int64(f.opts.Affinity.Bytes)},
		{"--grace", int64(f.grace)},
	} {
		if bound.value <= 0 {
			return cli.Usage("%s must be above 0", bound.flag)
		}
	}
	switch {
	case f.delay < 0:
		return cli.Usage("--shutdown-delay must not be negative")
	case f.drainHold < 0:
		return cli.Usage("--drain-hold must not be negative")
	case f.opts.Comments < 0 || f.opts.Comments > 0 && f.opts.Comments < time.Second:
		return cli.Usage("--hold-comments must be 0 or at least 1s")
	case f.affinity != "off" && f.affinity != "prefix":
		return cli.Usage("--affinity %q must be off or prefix", f.affinity)
	case !(f.opts.Affinity.Factor >= 1 && f.opts.Affinity.Factor <= 100):
		return cli.Usage("--affinity-factor must be from 1 to 100")
	case (f.listenTLS.Cert == "") != (f.listenTLS.Key == "") || f.listenTLS.CA != "" && f.listenTLS.Cert == "":
		return cli.Usage("--listen-tls-cert-file and --listen-tls-key-file belong together, and --listen-tls-client-ca-file needs both")
	case f.unverified && (f.engineTLS.CA != "" || f.serverName != ""):
		return cli.Usage("--engine-tls-insecure verifies nothing: leave out --engine-tls-ca-file and --engine-tls-server-name")
	}
	f.opts.Affinity.On = f.affinity == "prefix"
	if f.id == "" {
		if f.id, err = os.Hostname(); err != nil {
			return cli.Usage("--id is required: the host name is not known: %w", err)
		}
	}
	return nil
}

// open reads the files that the flags name.
func (f *flags) open(ctx context.Context, env cli.Env, log *slog.Logger) (clusterflags.Source, error) {
	if f.keys != "" {
		keys, err := apikey.Open(f.keys, log)
		if err != nil {
			return nil, cli.Usage("--api-keys-sha256: %w", err)
		}
		f.opts.Keys = keys
	}
	if _, err := f.scalerCredentials(); err != nil {
		return nil, err
	}
	engine, err := f.engine()
	if err != nil {
		return nil, err
	}
	f.opts.EngineTLS = engine
	source, err := f.cluster.Open(ctx, env.Getenv, log)
	f.opts.Source = source
	return source, err
}

// engine returns what makes the configuration for a handshake with an engine,
// from the files as they are then.
func (f *flags) engine() (func() *tls.Config, error) {
	each, err := tlsconf.Clients(f.engineTLS)
	if err != nil {
		return nil, err
	}
	return func() *tls.Config {
		c := each()
		c.ServerName = f.serverName
		c.InsecureSkipVerify = f.unverified // the user has asked for it by name
		return c
	}, nil
}

func (f *flags) scalerCredentials() (credentials.TransportCredentials, error) {
	if f.insecure {
		return insecure.NewCredentials(), nil
	}
	each, err := tlsconf.Clients(f.tls)
	if err != nil {
		return nil, err
	}
	return renewed{credentials.NewTLS(each()), each}, nil
}

// renewed makes each handshake by the files as they are then: both the CA and
// our own certificate may be replaced while the process runs.
type renewed struct {
	credentials.TransportCredentials
	each func() *tls.Config
}

// ClientHandshake implements credentials.TransportCredentials.
func (r renewed) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return credentials.NewTLS(r.each()).ClientHandshake(ctx, authority, conn)
}

// Clone implements credentials.TransportCredentials.
func (r renewed) Clone() credentials.TransportCredentials {
	return renewed{r.TransportCredentials.Clone(), r.each}
}
