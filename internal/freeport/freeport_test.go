package freeport_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/internal/freeport"
)

const (
	childVar = "PILOTLIGHT_TEST_FREEPORT_CHILD"
	each     = 150 // more than a block
)

// TestMain lets this binary be another process too: it prints the addresses that
// it gets, and lives until its input ends.
func TestMain(m *testing.M) {
	if os.Getenv(childVar) == "" {
		os.Exit(m.Run())
	}
	for range each {
		addr, err := freeport.Addr(context.Background())
		fmt.Println(addr, err)
	}
	_, _ = os.Stdin.Read(make([]byte, 1))
}

func TestNobodyGetsAPortTwice(t *testing.T) {
	seen := map[string]bool{}
	take := func(addr string) {
		require.False(t, seen[addr], addr)
		seen[addr] = true
		host, port, err := net.SplitHostPort(addr)
		require.NoError(t, err, addr)
		require.Equal(t, "127.0.0.1", host)
		n, err := strconv.Atoi(port)
		require.NoError(t, err)
		require.Less(t, n, 32768, "from there on systems give ports away by themselves")
	}
	for range 3 {
		child := exec.CommandContext(context.WithoutCancel(t.Context()), os.Args[0]) // ends with its input
		child.Env = append(os.Environ(), childVar+"=1")
		in, err := child.StdinPipe()
		require.NoError(t, err)
		out, err := child.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, child.Start())
		t.Cleanup(func() {
			require.NoError(t, in.Close())
			require.NoError(t, child.Wait())
		})
		lines := bufio.NewScanner(out)
		for range each {
			require.True(t, lines.Scan())
			addr, ok := strings.CutSuffix(lines.Text(), " <nil>")
			require.True(t, ok, lines.Text())
			take(addr)
		}
	}
	for range each {
		addr, err := freeport.Addr(t.Context())
		require.NoError(t, err)
		take(addr)
	}
}

func TestTheAddressCanBeListenedOn(t *testing.T) {
	addr, err := freeport.Addr(t.Context())
	require.NoError(t, err)
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", addr)
	require.NoError(t, err)
	require.NoError(t, l.Close())
}
