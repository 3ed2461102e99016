package kedaconformance

import (
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/pilotlight-dev/pilotlight/internal/tlsconf"
	"github.com/pilotlight-dev/pilotlight/internal/tlsconf/tlstest"
	"github.com/pilotlight-dev/pilotlight/internal/workload/static"
)

// 22: KEDA checks the certificate for the host in scalerAddress, which is the
// Service's name.
func plainTLSAndMutualTLS(t *testing.T) {
	const service = "pilotlight-scaler.keda.svc"
	ours, theirs := authority(t), authority(t)
	server, keda := issue(t, ours, service), issue(t, theirs, "keda")
	client := func(own bool, name string) credentials.TransportCredentials {
		files := tlsconf.Files{CA: server.CA}
		if own {
			files.Cert, files.Key = keda.Cert, keda.Key
		}
		config, err := tlsconf.Client(files)
		require.NoError(t, err)
		config.ServerName = name
		return credentials.NewTLS(config)
	}
	oneWay := []string{"--tls-cert-file", server.Cert, "--tls-key-file", server.Key}
	bothWays := append(append([]string{}, oneWay...), "--tls-client-ca-file", keda.CA)
	for name, c := range map[string]struct {
		flags []string
		creds credentials.TransportCredentials
		ok    bool
	}{
		"Plain":             {nil, nil, true},
		"TLS":               {oneWay, client(false, service), true},
		"TLSOtherName":      {oneWay, client(false, "another.keda.svc"), false},
		"PlainToTLS":        {oneWay, insecure.NewCredentials(), false},
		"MutualTLS":         {bothWays, client(true, service), true},
		"MutualTLSWithNone": {bothWays, client(false, service), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, c.creds, []static.Target{llama()}, c.flags...)
			ctx, cancel := context.WithTimeout(t.Context(), soon)
			defer cancel()
			for call, do := range calls(s, object(nil)) {
				err := do(ctx)
				require.Equal(t, c.ok, err == nil, "%s: %v", call, err)
			}
		})
	}
}

func authority(t *testing.T) *tlstest.CA {
	t.Helper()
	ca, err := tlstest.New("ca")
	require.NoError(t, err)
	return ca
}

func issue(t *testing.T, ca *tlstest.CA, name string) tlsconf.Files {
	t.Helper()
	files, err := ca.Issue(t.TempDir(), name)
	require.NoError(t, err)
	return files
}

// 25: gRPC health is served, and the program is Ready only once it has seen the
// cluster.
func healthAndReadiness(t *testing.T) {
	s := serve(t, nil, []static.Target{llama()})
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	for _, name := range []string{"", "externalscaler.ExternalScaler"} {
		require.Eventually(t, func() bool {
			resp, err := healthpb.NewHealthClient(s.conn).Check(ctx, &healthpb.HealthCheckRequest{Service: name})
			return err == nil && resp.GetStatus() == healthpb.HealthCheckResponse_SERVING
		}, soon, 10*time.Millisecond, name)
	}
	status, _ := s.get("/readyz")
	require.Equal(t, http.StatusOK, status)

	// An API server that takes connections and says nothing.
	silent, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = silent.Close() })
	config := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(config, []byte(`apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c, user: c}}]
clusters: [{name: c, cluster: {server: "http://`+silent.Addr().String()+`"}}]
users: [{name: c, user: {token: t}}]
`), 0o600))
	blind := &server{t: t}
	blind.launch("--kubeconfig", config)
	for range 10 {
		status, _ = blind.get("/readyz")
		require.Equal(t, http.StatusServiceUnavailable, status, "nothing has been listed")
		status, _ = blind.get("/healthz")
		require.Equal(t, http.StatusOK, status, "but it lives")
		time.Sleep(100 * time.Millisecond)
	}
}
