package activator

import (
	"context"
	"time"
)

const (
	tidyEvery = 5 * time.Second
	flood     = 64 << 20 // bytes of bodies that are worth giving back
)

// Tidy calls collect, which is runtime.GC in a program, when bodies that took
// much memory have gone, until ctx ends. A process with little to do collects
// once in two minutes, and the runtime gives back what it finds unused in
// several collections, one after the other: without this a flood's memory
// stays for many minutes.
func (a *Activator) Tidy(ctx context.Context, collect func()) {
	tick := time.NewTicker(tidyEvery)
	defer tick.Stop()
	var t tide
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if t.ebbs(a.memory.used.Load()) {
				collect()
			}
		}
	}
}

// collections is how many it takes after a flood: the runtime keeps what was in
// use before the last one, and a tenth.
const collections = 3

// A tide is what bodies have taken since the last flood ended.
type tide struct {
	most int64 // bytes, at once
	left int   // collections to come
}

// ebbs reports whether it is time to collect, with that many bytes taken: a
// flood has fallen to an eighth, or has done so a few calls ago.
func (t *tide) ebbs(used int64) bool {
	t.most = max(t.most, used)
	if t.most >= flood && used <= t.most/8 {
		t.most, t.left = used, collections
	}
	if t.left == 0 {
		return false
	}
	t.left--
	return true
}
