package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// proxy is a slow link: every byte takes half the round trip in either
// direction, a connection half a round trip more to be made, and each carries at
// most so many bytes per second towards the client.
type proxy struct {
	listener net.Listener
	to       string
	half     time.Duration
	rate     float64
	cancel   context.CancelFunc
	conns    sync.WaitGroup
}

func newProxy(ctx context.Context, to string, roundTrip time.Duration, bytesPerSecond float64) (*proxy, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("starting the slow link: %w", err)
	}
	p := &proxy{listener: l, to: to, half: roundTrip / 2, rate: bytesPerSecond}
	ctx, p.cancel = context.WithCancel(ctx)
	p.conns.Go(func() { p.accept(ctx) })
	return p, nil
}

func (p *proxy) url() string { return "http://" + p.listener.Addr().String() }

func (p *proxy) close() error {
	p.cancel()
	err := p.listener.Close()
	p.conns.Wait()
	return err // names the address
}

func (p *proxy) accept(ctx context.Context) {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return // closed
		}
		p.conns.Go(func() { p.serve(ctx, client) })
	}
}

func (p *proxy) serve(ctx context.Context, client net.Conn) {
	server, err := (&net.Dialer{}).DialContext(ctx, "tcp", p.to)
	if err != nil {
		_ = client.Close() // the client sees it
		return
	}
	stop := context.AfterFunc(ctx, func() { _ = errors.Join(client.Close(), server.Close()) }) // ends both copies
	defer stop()
	var both sync.WaitGroup
	both.Go(func() { p.copy(server, client, 2*p.half, 0) }) // the first bytes wait for the handshake too
	both.Go(func() { p.copy(client, server, 0, p.rate) })
	both.Wait()
	_ = errors.Join(client.Close(), server.Close()) // closed already, or of no use
}

type parcel struct {
	data []byte
	due  time.Time
}

// copy delivers what it reads after the delay and at the rate. The queue is as
// long as what can be under way, so that a slow reader slows the sender.
func (p *proxy) copy(to, from net.Conn, first time.Duration, rate float64) {
	const piece = 16 << 10
	queue := make(chan parcel, 64)
	go func() {
		defer close(queue)
		next := time.Now().Add(first)
		for {
			buf := make([]byte, piece)
			n, err := from.Read(buf)
			if n > 0 {
				if now := time.Now(); next.Before(now) {
					next = now
				}
				if rate > 0 {
					next = next.Add(time.Duration(float64(n) / rate * float64(time.Second)))
				}
				queue <- parcel{buf[:n], next.Add(p.half)}
			}
			if err != nil {
				return // the other end is told below
			}
		}
	}()
	broken := false
	for one := range queue {
		if broken {
			continue // drain, so that the reader ends
		}
		time.Sleep(time.Until(one.due))
		if _, err := to.Write(one.data); err != nil {
			broken = true
			_ = from.Close() // ends the reader
		}
	}
	if c, ok := to.(*net.TCPConn); ok {
		_ = c.CloseWrite() // the other end may have gone
	}
}
