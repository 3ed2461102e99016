package plane

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// Ports that FreePort hands out lie below those that systems give to outgoing
// connections (from 32768 on Linux), so that no client takes one away before its
// program listens.
const (
	firstPort = 15000
	lastPort  = 32000
)

// handedOut remembers the last port. Where it begins is random, so that two runs
// on one machine hardly meet.
var handedOut = struct {
	sync.Mutex
	last int
}{last: firstPort + rand.IntN(lastPort-firstPort)} //nolint:gosec // not a secret

// FreePort finds a port of 127.0.0.1 that nobody listens on, and none twice.
// Another run could be quicker in using it; then a program does not start.
func FreePort(ctx context.Context) (int, error) {
	handedOut.Lock()
	defer handedOut.Unlock()
	for range lastPort - firstPort {
		if handedOut.last++; handedOut.last >= lastPort {
			handedOut.last = firstPort
		}
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(handedOut.last)))
		if err != nil {
			continue
		}
		return handedOut.last, l.Close()
	}
	return 0, fmt.Errorf("no free port from %d to %d", firstPort, lastPort)
}
