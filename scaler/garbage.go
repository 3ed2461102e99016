package scaler

import (
	"context"
	"runtime/debug"
	measures "runtime/metrics"
	"time"
)

// MostGCPercent is the GOGC of a program around a Scaler with few targets:
// decisions live long and are few, calls are many and short, and at the
// runtime's default a collection runs every second, which calls then wait for.
const MostGCPercent = 400

const (
	// garbage is how much of it may lie about before a collection, in bytes,
	// where that is less than MostGCPercent of what lives. With two thousand
	// targets that is a collection every few seconds.
	garbage = 100 << 20

	// leastGCPercent bounds what collecting costs where very much lives.
	leastGCPercent = 40

	tuneEvery = time.Second
)

// gcPercent is the GOGC at which live bytes (heap, stacks and globals) come with
// at most garbage bytes of garbage.
//
//	 20 MiB live: 400 (80 MiB of garbage)
//	200 MiB live:  50 (100 MiB)
//	  1 GiB live:  40 (410 MiB)
func gcPercent(live uint64) int {
	if live <= garbage*100/MostGCPercent {
		return MostGCPercent
	}
	return max(int(garbage*100/live), leastGCPercent)
}

// Garbage keeps the garbage of a program around a Scaler in bounds as its
// targets become more, until ctx ends. The caller leaves it alone if its user has
// set GOGC.
func Garbage(ctx context.Context) {
	debug.SetGCPercent(MostGCPercent)
	current := MostGCPercent
	live := []measures.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/stack:bytes"}, {Name: "/gc/scan/globals:bytes"}}
	tick := time.NewTicker(tuneEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		measures.Read(live)
		sum := uint64(0)
		for _, s := range live {
			if s.Value.Kind() == measures.KindUint64 {
				sum += s.Value.Uint64()
			}
		}
		// Each change stops the world for a moment.
		if next := gcPercent(sum); next < current*9/10 || next > current*11/10 || next == MostGCPercent && current != next {
			debug.SetGCPercent(next)
			current = next
		}
	}
}
