package tlsconf_test

import (
	"crypto/tls"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/internal/tlsconf"
	"github.com/pilotlight-dev/pilotlight/internal/tlsconf/tlstest"
)

// shake makes one handshake and returns the name in the server's certificate.
func shake(t *testing.T, server, client *tls.Config) (string, error) {
	t.Helper()
	a, b := net.Pipe()
	defer func() { _ = a.Close(); _ = b.Close() }()
	deadline := time.Now().Add(5 * time.Second)
	require.NoError(t, a.SetDeadline(deadline))
	require.NoError(t, b.SetDeadline(deadline))
	done := make(chan error, 1)
	go func() {
		s := tls.Server(a, server)
		err := s.HandshakeContext(t.Context())
		if err == nil {
			_, err = s.Write([]byte("x"))
		}
		_ = a.Close()
		done <- err
	}()
	c := client.Clone()
	c.ServerName = "localhost"
	conn := tls.Client(b, c)
	err := conn.HandshakeContext(t.Context())
	if err == nil {
		_, err = conn.Read(make([]byte, 1))
	}
	if serverErr := <-done; err == nil {
		err = serverErr
	}
	if err != nil {
		return "", err
	}
	return conn.ConnectionState().PeerCertificates[0].Subject.CommonName, nil
}

func TestMutualTLS(t *testing.T) {
	ours, err := tlstest.New("ours")
	require.NoError(t, err)
	theirs, err := tlstest.New("theirs")
	require.NoError(t, err)
	serverFiles, err := ours.Issue(t.TempDir(), "server")
	require.NoError(t, err)
	clientFiles, err := ours.Issue(t.TempDir(), "client")
	require.NoError(t, err)
	strangerFiles, err := theirs.Issue(t.TempDir(), "stranger")
	require.NoError(t, err)

	server, err := tlsconf.Server(serverFiles)
	require.NoError(t, err)
	client, err := tlsconf.Client(clientFiles)
	require.NoError(t, err)
	name, err := shake(t, server, client)
	require.NoError(t, err)
	require.Equal(t, "server", name)

	anonymous, err := tlsconf.Client(tlsconf.Files{CA: clientFiles.CA})
	require.NoError(t, err)
	_, err = shake(t, server, anonymous)
	require.Error(t, err, "a client without a certificate")

	stranger, err := tlsconf.Client(tlsconf.Files{CA: clientFiles.CA, Cert: strangerFiles.Cert, Key: strangerFiles.Key})
	require.NoError(t, err)
	_, err = shake(t, server, stranger)
	require.Error(t, err, "a client with somebody else's certificate")

	plain, err := tlsconf.Server(tlsconf.Files{Cert: serverFiles.Cert, Key: serverFiles.Key})
	require.NoError(t, err)
	_, err = shake(t, plain, anonymous)
	require.NoError(t, err, "without a CA no client certificate is asked for")
}

func TestCertificatesAreReloaded(t *testing.T) {
	ca, err := tlstest.New("ours")
	require.NoError(t, err)
	dir := t.TempDir()
	files, err := ca.Issue(dir, "first")
	require.NoError(t, err)
	server, err := tlsconf.Server(tlsconf.Files{Cert: files.Cert, Key: files.Key})
	require.NoError(t, err)
	client, err := tlsconf.Client(tlsconf.Files{CA: files.CA})
	require.NoError(t, err)
	name, err := shake(t, server, client)
	require.NoError(t, err)
	require.Equal(t, "first", name)

	second, err := ca.Issue(dir, "second")
	require.NoError(t, err)
	require.NoError(t, os.Rename(second.Key, files.Key))
	later := time.Now().Add(time.Hour)
	require.NoError(t, os.Chtimes(files.Key, later, later))
	require.Never(t, func() bool { _, err := shake(t, server, client); return err != nil }, 1200*time.Millisecond, 100*time.Millisecond,
		"a key without its certificate is not taken")
	require.NoError(t, os.Rename(second.Cert, files.Cert))
	require.Eventually(t, func() bool { name, err := shake(t, server, client); return err == nil && name == "second" }, 30*time.Second, 50*time.Millisecond)
}

// When a CA is replaced, its certificate and what it signs come at different
// times; in the end everybody is trusted again without a restart.
func TestTheCAIsReloadedForEachHandshake(t *testing.T) {
	dir := t.TempDir()
	issue := func(ca string) tlsconf.Files {
		authority, err := tlstest.New(ca)
		require.NoError(t, err)
		files, err := authority.Issue(dir, "server")
		require.NoError(t, err)
		return files
	}
	first := issue("first")
	server, err := tlsconf.Server(tlsconf.Files{Cert: first.Cert, Key: first.Key})
	require.NoError(t, err)
	each, err := tlsconf.Clients(tlsconf.Files{CA: first.CA})
	require.NoError(t, err)
	_, err = shake(t, server, each())
	require.NoError(t, err)

	later := time.Now().Add(time.Hour)
	for _, name := range []string{issue("second").CA, first.Cert, first.Key} {
		require.NoError(t, os.Chtimes(name, later, later))
	}
	require.Eventually(t, func() bool { _, err := shake(t, server, each()); return err == nil }, 30*time.Second, 50*time.Millisecond)

	require.NoError(t, os.WriteFile(first.CA, []byte("half a certi"), 0o600))
	require.Never(t, func() bool { _, err := shake(t, server, each()); return err != nil }, 1200*time.Millisecond, 100*time.Millisecond,
		"a broken CA leaves the last good one in use")
}

func TestBrokenFilesAreNamed(t *testing.T) {
	_, err := tlsconf.Server(tlsconf.Files{Cert: "only.crt"})
	require.ErrorIs(t, err, tlsconf.ErrFiles)
	_, err = tlsconf.Server(tlsconf.Files{Cert: "none.crt", Key: "none.key"})
	require.ErrorIs(t, err, tlsconf.ErrFiles)
	require.ErrorContains(t, err, "none.crt")
	empty := t.TempDir() + "/empty.pem"
	require.NoError(t, os.WriteFile(empty, nil, 0o600))
	_, err = tlsconf.Client(tlsconf.Files{CA: empty})
	require.ErrorContains(t, err, "holds no certificate")
}
