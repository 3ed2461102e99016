// Package freeport finds loopback addresses for programs that are about to
// listen.
//
// A port that the system picks for 127.0.0.1:0 is free only as long as it is
// held: once closed, the next client or listener may be given it, and a program
// that needs a second to start finds it taken. The ports of this package lie
// below those that systems give away by themselves, a process gets none twice,
// and no two processes get the same one: each takes blocks of ports, and listens
// on the first port of a block as long as it lives to say that the block is its
// own.
package freeport

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// Systems give ports from 32768 (Linux) or 49152 to outgoing connections and
// to listeners on port 0.
const (
	firstPort = 15000
	lastPort  = 32000
	blockSize = 100
)

var errNone = errors.New("no free loopback port")

// ports is how far this process is. Where it begins is random.
var ports = struct {
	sync.Mutex
	last   int
	blocks map[int]net.Listener // our own, by their first ports
}{
	last:   firstPort + blockSize*rand.IntN((lastPort-firstPort)/blockSize) - 1, //nolint:gosec // not a secret
	blocks: map[int]net.Listener{},
}

// Addr returns an address of 127.0.0.1 that nobody listens on.
func Addr(ctx context.Context) (string, error) {
	port, err := Port(ctx)
	return address(port), err
}

// Port returns the port of such an address.
func Port(ctx context.Context) (int, error) {
	ports.Lock()
	defer ports.Unlock()
	for range lastPort - firstPort {
		if ports.last++; ports.last >= lastPort {
			ports.last = firstPort
		}
		if ports.last%blockSize == 0 {
			if !claim(ctx, ports.last) {
				ports.last += blockSize - 1
			}
			continue
		}
		if l, err := listen(ctx, ports.last); err == nil {
			return ports.last, l.Close()
		}
	}
	return 0, errors.Join(errNone, ctx.Err())
}

// claim takes a block for this process. The caller holds the lock.
func claim(ctx context.Context, block int) bool {
	if ports.blocks[block] != nil {
		return true
	}
	l, err := listen(ctx, block)
	if err == nil {
		ports.blocks[block] = l
	}
	return err == nil
}

func listen(ctx context.Context, port int) (net.Listener, error) {
	return (&net.ListenConfig{}).Listen(ctx, "tcp", address(port))
}

func address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
