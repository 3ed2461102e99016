package transfer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/pilotlight-dev/pilotlight/fetcher/checksum"
	"github.com/pilotlight-dev/pilotlight/internal/retry"
)

// Defaults of Options' zero values.
const (
	DefaultConnections = 256
	DefaultStall       = 30 * time.Second
	DefaultWholeMax    = 8 << 20
	DefaultRangeMin    = 4 << 20
	DefaultRangeMax    = 32 << 20
)

// Object is one file to move.
type Object struct {
	// Path names the file, and the object to the Source.
	Path string
	// Size is in bytes.
	Size int64
	// Want is a sum that somebody more trusted than the store gave; may be zero.
	Want checksum.Sum
}

// Facts are what a store says about the content of an object.
type Facts struct {
	Sums []checksum.Sum
	// PartSizes are the sizes of the stored parts in their order, if known.
	PartSizes []int64
	// ETag is that of an upload in parts, which may or may not be made of the
	// parts' MD5s (checksum.FromMultipartETag); zero for any other.
	ETag checksum.Sum
}

// Body is the content that a store sends.
type Body struct {
	io.ReadCloser
	// Facts come with an object that was asked for as a whole.
	Facts Facts
}

// Source is a store. Objects are pinned: it answers with the content that was
// listed, or an error of the classes of this package.
type Source interface {
	// Facts asks what is known about an object that will be read in ranges.
	Facts(ctx context.Context, o Object) (Facts, error)
	// Get opens n bytes from off; off 0 with n the size is the whole object.
	// Exactly n bytes are announced. The caller closes the body.
	Get(ctx context.Context, o Object, off, n int64) (Body, error)
}

// File is a file of known size, written at any offset by several goroutines.
// Buffers handed to WriteAt begin at addresses that direct writes can take, and
// so does their capacity end.
type File interface {
	io.WriterAt
	io.ReaderAt
	// Finish gives the file its final form and closes it.
	Finish() error
	// Close closes an unfinished file.
	Close() error
}

// Sink makes files. What it returns as an error is final.
type Sink interface {
	Create(o Object) (File, error)
}

// Journal remembers what is on disk, so that another run need not fetch it.
type Journal interface {
	// Left returns what an earlier run left of an object: verified as a whole
	// (sum), or pieces with their CRCs. It is a claim, to be checked.
	Left(path string) Record
	// Piece notes a range that is on disk; Whole, a verified object of that size.
	Piece(path string, a checksum.Algorithm, p checksum.Piece) error
	Whole(path string, sum checksum.Sum, size int64) error
}

// Record is what a journal holds of one object.
type Record struct {
	Whole     checksum.Sum
	Algorithm checksum.Algorithm
	Pieces    []checksum.Piece
}

// Observer is told what happens, from several goroutines at once.
type Observer interface {
	// Advanced reports bytes that are on disk; a negative number takes back
	// what will be fetched again.
	Advanced(n int64)
	// Retried reports an attempt that failed and will be repeated.
	Retried(path string, err error)
}

// Options adjusts Run. Source and Sink are required.
type Options struct {
	Source Source
	Sink   Sink
	// Journal may be nil.
	Journal Journal
	// Connections is the most requests at once, 1 to 256; 0 is 256.
	Connections int
	// Memory is what buffers and sockets may take, in bytes; 0 is half of what
	// the memory cgroup leaves, at most 1 GiB.
	Memory int64
	// Bandwidth is in bytes per second over all connections; 0 is no limit.
	Bandwidth int64
	// Stall is how long a connection may bring nothing; 0 is 30 s.
	Stall time.Duration
	// Backoff gives Base and Max of the waits between attempts.
	Backoff retry.Policy
	// ETags makes Run compare an object that has no other proof with the ETag of
	// its upload in parts, by reading it back.
	ETags bool
	// Observer and Logger may be nil.
	Observer Observer
	Logger   *slog.Logger
	// WholeMax is the largest object that is read in one request, RangeMin and
	// RangeMax bound the ranges of others; in bytes, 0 is 8, 4 and 32 MiB.
	WholeMax, RangeMin, RangeMax int64
}

func (o Options) withDefaults() Options {
	set := func(v *int64, def int64) {
		if *v <= 0 {
			*v = def
		}
	}
	set(&o.WholeMax, DefaultWholeMax)
	set(&o.RangeMin, DefaultRangeMin)
	set(&o.RangeMax, DefaultRangeMax)
	set(&o.Memory, defaultMemory())
	if o.Connections <= 0 || o.Connections > DefaultConnections {
		o.Connections = DefaultConnections
	}
	if o.Stall <= 0 {
		o.Stall = DefaultStall
	}
	if o.Observer == nil {
		o.Observer = nobody{}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

type nobody struct{}

func (nobody) Advanced(int64)        {}
func (nobody) Retried(string, error) {}

// Report is what a run did.
type Report struct {
	// Sums are what was verified, in the order of the objects; zero where the
	// store gave nothing to compare with.
	Sums  []checksum.Sum
	Stats Stats
}

// engine is one run.
type engine struct {
	Options
	board   *board
	buffers *buffers
	pace    *pace
	hashing chan struct{} // a place for each processor, for MD5s
	meter   meter
	sums    []checksum.Sum
	retries atomic.Int64
	last    atomic.Pointer[error] // what was last tried again
	slowed  atomic.Int64
	resumed atomic.Int64
	fetched atomic.Int64
	peak    atomic.Int64
}

// Run moves the objects. On an error what is on disk stays, and the journal
// knows of it. The error wraps one of the classes of this package, or is the
// Sink's.
func Run(ctx context.Context, opts Options, objects []Object) (Report, error) {
	opts = opts.withDefaults()
	start := time.Now()
	before := readCPU()
	ceiling := affordable(opts.Memory, opts.Connections)
	e := &engine{
		Options: opts, buffers: newBuffers(), pace: newPace(opts.Bandwidth), sums: make([]checksum.Sum, len(objects)), hashing: make(chan struct{}, processors()),
		board: newBoard(objects, opts, ceiling),
	}
	err := e.run(ctx)
	// Time that ran out says less than what it ran out on.
	if last := e.last.Load(); err != nil && last != nil && ctx.Err() != nil && !errors.Is(err, *last) {
		err = fmt.Errorf("%w: %w", err, *last)
	}
	e.board.closeFiles()
	err = errors.Join(err, e.buffers.close())
	r := Report{Sums: e.sums, Stats: Stats{
		Fetched: e.fetched.Load(), Resumed: e.resumed.Load(), Retries: e.retries.Load(), Throttled: e.slowed.Load(),
		Connections: int(e.peak.Load()), Ceiling: ceiling, Duration: time.Since(start),
	}}
	ev := e.meter.evidence(before, readCPU(), r.Stats)
	r.Stats.Bottleneck, r.Stats.Why = ev.bottleneck()
	return r, err
}

func (e *engine) run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	done := make(chan struct{})
	group.Go(func() error { return e.watchRate(ctx, done) })
	group.Go(func() error {
		defer close(done)
		return e.dispatch(ctx, group)
	})
	return group.Wait() // the tasks name themselves
}

// dispatch hands out a task whenever a connection is free and there is work, to
// a worker that waits for one or else to a new one. Workers are kept because a
// goroutine that has sent a request has a stack that took long to grow.
func (e *engine) dispatch(ctx context.Context, group *errgroup.Group) error {
	tasks := make(chan task)
	defer close(tasks)
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		t, state := e.board.next()
		switch state {
		case allDone:
			return nil
		case nothingNow:
			select {
			case <-ctx.Done():
			case <-e.board.wake:
			}
			continue
		}
		select {
		case tasks <- t:
		default:
			group.Go(func() error { return e.work(ctx, t, tasks) })
		}
	}
}

// work does a task, and then others until there are no more.
func (e *engine) work(ctx context.Context, t task, more <-chan task) error {
	for ok := true; ok; t, ok = <-more {
		err := e.perform(ctx, t)
		e.board.release(t.class)
		if err != nil {
			return fmt.Errorf("fetching %s: %w", t.obj.Path, err)
		}
	}
	return nil
}

// watchRate lets the number of connections follow the rate.
func (e *engine) watchRate(ctx context.Context, done <-chan struct{}) error {
	ticker := time.NewTicker(climbEvery)
	defer ticker.Stop()
	climb := climber{limit: e.board.limitOf(large), ceiling: e.board.ceiling}
	var bytes, slowed int64
	last := time.Now()
	idle, ticks := readTicks()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-done:
			return nil
		case <-ticker.C:
		}
		now := time.Now()
		got, slow := e.meter.received.Load(), e.slowed.Load()
		rate := float64(got-bytes) / math.Max(now.Sub(last).Seconds(), 1e-3)
		e.board.measured(rate)
		idleNow, ticksNow := readTicks()
		limit := climb.tick(interval{
			rate: rate, saturated: e.board.saturated(), refused: slow > slowed,
			idle: share(idleNow-idle, ticksNow-ticks),
		})
		e.board.setLimit(large, limit)
		if slow == slowed {
			e.board.recover(small)
		}
		bytes, slowed, last = got, slow, now
		idle, ticks = idleNow, ticksNow
	}
}

// share is part of whole, or 1 if that is not known.
func share(part, whole int64) float64 {
	if whole <= 0 || part < 0 {
		return 1
	}
	return float64(part) / float64(whole)
}

// defaultMemory is half of what the memory cgroup leaves, at most 1 GiB.
func defaultMemory() int64 {
	const most = 1 << 30
	if free := cgroupHeadroom(); free > 0 {
		return min(free/2, most)
	}
	return most
}

const (
	socketMemory = 2 << 20 // measured: 0.7 to 1.9 MiB are held for a busy socket
	baseMemory   = 24 << 20
)

// affordable is how many connections a budget pays for, at least one.
func affordable(memory int64, connections int) int {
	n := (memory - baseMemory) / (socketMemory + smallBuffer)
	return int(max(1, min(n, int64(connections))))
}

// processors is how many threads run Go code at once.
func processors() int { return runtime.GOMAXPROCS(0) }
