package transfer

import (
	"fmt"
	"sync/atomic"
	"time"
)

// Stats are the figures of a run.
type Stats struct {
	// Fetched is in bytes that came over the network and stayed, Resumed in
	// bytes that an earlier run had left.
	Fetched, Resumed int64
	Retries          int64
	// Throttled counts the answers that asked to slow down.
	Throttled int64
	// Connections is the most that were busy at once, Ceiling what they could
	// have been.
	Connections, Ceiling int
	Duration             time.Duration
	// Bottleneck is what the run waited for, Why the evidence.
	Bottleneck Bottleneck
	Why        string
}

// Bottleneck is what bounds the rate of a run.
type Bottleneck string

// The bottlenecks.
const (
	Network       Bottleneck = "network"
	Disk          Bottleneck = "disk"
	CPU           Bottleneck = "cpu"
	StoreThrottle Bottleneck = "store throttling"
	BandwidthCap  Bottleneck = "bandwidth cap"
	NothingToDo   Bottleneck = "none"
)

// meter adds up where the connections' time went, in nanoseconds.
type meter struct {
	received        atomic.Int64 // bytes
	read, write     atomic.Int64
	refused, capped atomic.Int64
}

// timed adds the time since start to a counter.
func timed(counter *atomic.Int64, start time.Time) { counter.Add(int64(time.Since(start))) }

// evidence is what is known at the end of a run.
type evidence struct {
	wall, cpu                    time.Duration
	processors                   int
	read, write, refused, capped time.Duration // over all connections
}

func (m *meter) evidence(before, after time.Duration, s Stats) evidence {
	return evidence{
		wall: s.Duration, cpu: after - before, processors: processors(),
		read: time.Duration(m.read.Load()), write: time.Duration(m.write.Load()),
		refused: time.Duration(m.refused.Load()), capped: time.Duration(m.capped.Load()),
	}
}

// bottleneck names what the run waited for. In this order:
//
//   - a cap that we were given, if connections waited for it a quarter of
//     their time;
//   - the store, if they waited a quarter because it had asked to slow down;
//   - the processors, if this process kept them 85 % busy, for then time spent
//     in reading and writing is time spent computing;
//   - else what they waited for longer: the disk or the network.
//
// Example: 16 connections over 10 s have 160 s; 120 s in reads, 30 s in writes
// and 6 of 20 processor seconds make it the network.
func (e evidence) bottleneck() (Bottleneck, string) {
	total := e.read + e.write + e.refused + e.capped
	if total <= 0 || e.wall <= 0 {
		return NothingToDo, "nothing was fetched"
	}
	share := func(d time.Duration) float64 { return 100 * float64(d) / float64(total) }
	busy := 100 * float64(e.cpu) / (float64(e.wall) * float64(max(1, e.processors)))
	why := fmt.Sprintf("of the connections' time %.0f%% was reading, %.0f%% writing, %.0f%% waiting for a throttling store, %.0f%% for the bandwidth cap; %.0f%% of %d processors was used",
		share(e.read), share(e.write), share(e.refused), share(e.capped), busy, e.processors)
	switch {
	case share(e.capped) >= 25:
		return BandwidthCap, why
	case share(e.refused) >= 25:
		return StoreThrottle, why
	case busy >= 85:
		return CPU, why
	case e.write > e.read:
		return Disk, why
	}
	return Network, why
}
