package e2e

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
)

// wire is a TCP connection to a server that a test can cut.
type wire struct {
	addr string
	to   string
	l    net.Listener

	mu    sync.Mutex
	cut   bool
	conns map[net.Conn]struct{}
}

// newWire listens and carries everything to an address.
func newWire(t *testing.T, to string) *wire {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	w := &wire{addr: l.Addr().String(), to: to, l: l, conns: map[net.Conn]struct{}{}}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { w.carry(c) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close() // ends Accept
		w.set(true)
		serving.Wait()
	})
	return w
}

// set cuts the wire: what is open is closed and what comes is refused; or mends
// it.
func (w *wire) set(cut bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = cut
	if cut {
		for c := range w.conns {
			_ = c.Close() // that is the point
		}
	}
}

func (w *wire) keep(c net.Conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cut {
		_ = c.Close() // refused
		return false
	}
	w.conns[c] = struct{}{}
	return true
}

func (w *wire) carry(c net.Conn) {
	if !w.keep(c) {
		return
	}
	up, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", w.to)
	if err != nil || !w.keep(up) {
		_ = c.Close() // nobody there
		return
	}
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{c, up}, {up, c}} {
		both.Go(func() {
			_, _ = io.Copy(way[0], way[1]) // ends with either side
			_, _ = way[0].Close(), way[1].Close()
		})
	}
	both.Wait()
	w.mu.Lock()
	delete(w.conns, c)
	delete(w.conns, up)
	w.mu.Unlock()
}

// A peer that has vanished without a word (a node that died, a firewall that
// forgot) is found out by the server's own pings, in less than a minute; without
// them its streams would stay for hours.
func TestAPeerThatVanished(t *testing.T) {
	t.Parallel()
	s := play(t, options{noScaled: true, noDeployment: true})
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", s.keda)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	_, err = io.WriteString(conn, http2.ClientPreface)
	require.NoError(t, err)
	framer := http2.NewFramer(conn, conn)
	require.NoError(t, framer.WriteSettings())
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(3*time.Minute)))
	began, pinged := time.Now(), time.Duration(0)
	for {
		frame, err := framer.ReadFrame() // and answers nothing
		if err != nil {
			var timeout net.Error
			require.False(t, errors.As(err, &timeout) && timeout.Timeout(), "the server has not closed the connection")
			break
		}
		if _, ok := frame.(*http2.PingFrame); ok && pinged == 0 {
			pinged = time.Since(began)
		}
	}
	require.Positive(t, pinged, "it was asked first")
	t.Logf("pinged after %v, closed after %v", pinged.Round(time.Second), time.Since(began).Round(time.Second))
	require.Less(t, time.Since(began), 2*time.Minute, "30 s and 10 s, and the machine's delays")
}
