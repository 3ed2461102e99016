package activatorcmd

import (
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/pilotlight-dev/pilotlight/internal/demandpb"
	"github.com/pilotlight-dev/pilotlight/internal/freeport"
	"github.com/pilotlight-dev/pilotlight/internal/tlsconf"
	"github.com/pilotlight-dev/pilotlight/internal/tlsconf/tlstest"
)

// heard is a scaler that notes who reports.
type heard struct {
	demandpb.UnimplementedDemandServer
	reports chan struct{}
}

func (h heard) Report(stream demandpb.Demand_ReportServer) error {
	for {
		if _, err := stream.Recv(); err != nil {
			return err
		}
		select {
		case h.reports <- struct{}{}:
		default:
		}
	}
}

// When both sides get certificates of another CA, the activator finds its way
// back to the scaler without a restart.
func TestItReportsOnAfterTheCAWasReplaced(t *testing.T) {
	dir := t.TempDir()
	issue := func(name string) (scaler, activator tlsconf.Files) {
		ca, err := tlstest.New(name)
		require.NoError(t, err)
		scaler, err = ca.Issue(dir, "scaler")
		require.NoError(t, err)
		activator, err = ca.Issue(dir, "activator")
		require.NoError(t, err)
		return scaler, activator
	}
	theirs, ours := issue("first")
	serve := func(addr string) (heard, func()) {
		config, err := tlsconf.Server(theirs)
		require.NoError(t, err)
		l, err := net.Listen("tcp", addr) //nolint:noctx // a test's own listener
		require.NoError(t, err)
		h := heard{reports: make(chan struct{}, 1)}
		s := grpc.NewServer(grpc.Creds(credentials.NewTLS(config)))
		demandpb.RegisterDemandServer(s, h)
		go func() { _ = s.Serve(l) }()
		t.Cleanup(s.Stop)
		return h, s.Stop
	}
	addr, err := freeport.Addr(t.Context()) // where it can come back
	require.NoError(t, err)
	first, stop := serve(addr)
	targets := filepath.Join(t.TempDir(), "targets.yaml")
	targetsFile(t, targets, "127.0.0.1:1", false)
	r := start(t, "--static-targets", targets, "--scaler", addr, "--insecure=false",
		"--tls-cert-file", ours.Cert, "--tls-key-file", ours.Key, "--tls-ca-file", ours.CA)
	require.Eventually(t, func() bool { return r.get(t, r.probes+"/readyz") == http.StatusOK }, 30*time.Second, 10*time.Millisecond)
	expect := func(h heard, why string) {
		select {
		case <-h.reports:
		case <-time.After(time.Minute):
			t.Fatal(why)
		}
	}
	expect(first, "it does not report at all")

	stop()
	issue("second")
	later := time.Now().Add(time.Hour)
	for _, name := range []string{theirs.Cert, theirs.Key, theirs.CA, ours.Cert, ours.Key, ours.CA} {
		require.NoError(t, os.Chtimes(name, later, later))
	}
	second, _ := serve(addr)
	expect(second, "it does not report any more")
}
