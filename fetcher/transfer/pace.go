package transfer

import (
	"context"
	"sync"
	"time"

	"github.com/pilotlight-dev/pilotlight/internal/retry"
)

// pace keeps all connections together below a rate. Each reservation is booked
// behind the one before; who comes too early waits. Unused time is not saved up
// for longer than paceBurst.
type pace struct {
	perByte float64 // seconds; 0 is no limit

	mu   sync.Mutex
	next time.Time // when the next byte may come
}

const paceBurst = 100 * time.Millisecond

func newPace(bytesPerSecond int64) *pace {
	p := &pace{}
	if bytesPerSecond > 0 {
		p.perByte = 1 / float64(bytesPerSecond)
	}
	return p
}

// wait books n bytes and returns when they may have come, and how long it
// waited.
func (p *pace) wait(ctx context.Context, n int) (time.Duration, error) {
	if p.perByte == 0 || n == 0 {
		return 0, nil
	}
	p.mu.Lock()
	now := time.Now()
	if p.next.Before(now.Add(-paceBurst)) {
		p.next = now.Add(-paceBurst)
	}
	p.next = p.next.Add(time.Duration(float64(n) * p.perByte * float64(time.Second)))
	delay := p.next.Sub(now)
	p.mu.Unlock()
	if delay <= 0 {
		return 0, nil
	}
	return delay, retry.Sleep(ctx, delay)
}
