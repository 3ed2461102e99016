package transfer

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/pilotlight-dev/pilotlight/fetcher/checksum"
)

// class tells work that waits for bytes from work that waits for round trips.
type class int

const (
	large class = iota // ranges
	small              // whole objects
)

// startLarge is how many ranges are read at once in the beginning. On two cores
// over loopback more brought nothing, and over a network it doubles quickly.
const startLarge = 16

type phase int

const (
	fresh     phase = iota // nothing is known
	preparing              // a task finds out what there is and what is needed
	open                   // ranges are handed out
	closed                 // all of it is on disk and verified
)

// object is one object under way. Its fields below the line belong to the board.
type object struct {
	Object
	index int

	file   File
	verify plan // chosen once the facts are known

	phase   phase
	todo    []span // not handed out
	pending int    // ranges in flight
	pieces  []checksum.Piece
	failed  int // times that the whole did not verify
}

type span struct{ off, n int64 }

// task is what one connection does next: prepare an object (n < 0), read a range
// of it, or all of it.
type task struct {
	class class
	obj   *object
	span
	prepare bool
}

type state int

const (
	work state = iota
	nothingNow
	allDone
)

// board hands out the work: who gets what, and how many at once.
type board struct {
	ceiling int
	wake    chan struct{} // capacity one: something may have changed
	opts    Options

	mu       sync.Mutex
	all      []*object
	queue    [2][]*object // largest first
	unclosed int
	left     int64 // bytes of large objects not handed out
	// perSecond is what one connection brings, 0 until it is known.
	perSecond int64
	inUse     [2]int
	limit     [2]int
	halved    time.Time
}

func newBoard(objects []Object, opts Options, ceiling int) *board {
	b := &board{
		ceiling: ceiling, wake: make(chan struct{}, 1), opts: opts, unclosed: len(objects),
		limit: [2]int{min(startLarge, ceiling), ceiling},
	}
	for i, o := range objects {
		c := small
		if o.Size > opts.WholeMax {
			c = large
			b.left += o.Size
		}
		one := &object{Object: o, index: i}
		b.all = append(b.all, one)
		b.queue[c] = append(b.queue[c], one)
	}
	for _, q := range b.queue {
		slices.SortStableFunc(q, func(a, b *object) int { return cmp.Compare(b.Size, a.Size) })
	}
	return b
}

// next takes the next task and a place for it.
func (b *board) next() (task, state) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.unclosed == 0 {
		return task{}, allDone
	}
	for _, c := range []class{large, small} {
		if b.inUse[c] >= b.limit[c] || b.inUse[large]+b.inUse[small] >= b.ceiling {
			continue
		}
		if t, ok := b.take(c); ok {
			b.inUse[c]++
			return t, work
		}
	}
	return task{}, nothingNow
}

// take finds work of a class; objects with none left leave the queue, and come
// back if they have to be fetched again.
func (b *board) take(c class) (task, bool) {
	for i := 0; i < len(b.queue[c]); {
		o := b.queue[c][i]
		switch {
		case c == small:
			b.queue[c] = b.queue[c][1:]
			o.phase = open
			return task{class: c, obj: o, span: span{0, o.Size}}, true
		case o.phase == fresh:
			o.phase = preparing
			return task{class: c, obj: o, prepare: true}, true
		case o.phase == open && len(o.todo) > 0:
			return task{class: c, obj: o, span: b.cut(o)}, true
		case o.phase == preparing:
			i++
		default:
			b.queue[c] = slices.Delete(b.queue[c], i, i+1)
		}
	}
	return task{}, false
}

// cut takes a range from the front of what an object still needs: about a second
// of one connection's time, less when little is left for each. A slow connection
// that holds a long range would be waited for when all others are done. Ends are
// multiples of rangeAlign, of the file or of a stored part.
func (b *board) cut(o *object) span {
	s := &o.todo[0]
	n := min(b.left/int64(2*max(1, b.limit[large])), b.perSecond)
	n = max(bufferAlign, min(max(n, b.opts.RangeMin), b.opts.RangeMax)/bufferAlign*bufferAlign)
	end := s.off + s.n
	if s.off+n < end {
		end = max((s.off+n)/rangeAlign*rangeAlign, s.off+min(n, rangeAlign))
		end = o.verify.lastPartEnd(s.off, end)
	}
	got := span{s.off, end - s.off}
	s.off, s.n = end, s.n-got.n
	if s.n == 0 {
		o.todo = o.todo[1:]
	}
	o.pending++
	b.left -= got.n
	return got
}

// opened makes an object's needs known; with none it can be verified at once.
func (b *board) opened(o *object, have []checksum.Piece, todo []span) (complete bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	o.phase, o.pieces, o.todo = open, have, todo
	for _, p := range have {
		b.left -= p.Len
	}
	b.nudge()
	return len(todo) == 0
}

// arrived notes that a range is on disk and reports whether it was the last.
func (b *board) arrived(o *object, pieces []checksum.Piece) (complete bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	o.pieces = append(o.pieces, pieces...)
	o.pending--
	return o.pending == 0 && len(o.todo) == 0
}

// again puts all of an object back, and returns how often that has happened.
func (b *board) again(o *object, c class) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	o.failed++
	o.pieces, o.pending, o.todo = nil, 0, []span{{0, o.Size}}
	if c == large {
		b.left += o.Size
	}
	b.queue[c] = append(b.queue[c], o)
	b.nudge()
	return o.failed
}

// finished takes an object off the board.
func (b *board) finished(o *object) {
	b.mu.Lock()
	defer b.mu.Unlock()
	o.phase, o.file = closed, nil
	b.unclosed--
	b.nudge()
}

// release gives back a connection's place.
func (b *board) release(c class) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.inUse[c]--
	b.nudge()
}

// nudge wakes the dispatcher; a nudge that is already there says the same.
func (b *board) nudge() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

func (b *board) limitOf(c class) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.limit[c]
}

func (b *board) setLimit(c class, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n > b.limit[c] {
		b.nudge()
	}
	b.limit[c] = n
}

// measured takes the rate of all connections together, in bytes per second.
func (b *board) measured(rate float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if busy := b.inUse[large]; busy > 0 && rate > 0 {
		b.perSecond = int64(rate / float64(busy))
	}
}

// inUseNow is how many connections are busy.
func (b *board) inUseNow() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.inUse[large] + b.inUse[small]
}

// saturated reports whether every place for ranges is taken: only then does the
// rate say something about their number.
func (b *board) saturated() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.inUse[large] >= b.limit[large] && len(b.queue[large]) > 0
}

// slowDown halves both limits, at most once a second: one refusal comes to many
// connections at once.
func (b *board) slowDown(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if now.Sub(b.halved) < time.Second {
		return
	}
	b.halved = now
	for c := range b.limit {
		b.limit[c] = max(1, b.limit[c]/2)
	}
}

// recover gives back a part of the ceiling, once a tick without refusals: from
// half to all takes four seconds.
func (b *board) recover(c class) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.limit[c] < b.ceiling {
		b.limit[c] = min(b.ceiling, b.limit[c]+max(1, b.ceiling/32))
		b.nudge()
	}
}

// closeFiles closes what a failed run left open.
func (b *board) closeFiles() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, o := range b.all {
		if o.file != nil {
			_ = o.file.Close() // the run has failed already
		}
	}
}
