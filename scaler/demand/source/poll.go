package source

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"net/url"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// A poller keeps the answers of one source up to date while somebody asks.
type poller struct {
	entry   Entry
	fetch   *fetcher
	log     *slog.Logger
	metrics *sourceMetrics
	begun   chan struct{} // holds one: somebody has begun to ask

	mu      sync.Mutex
	watches map[question]*watch

	problem string // as last logged; owned by run
}

// A watch is one question with its answer.
type watch struct {
	users   int
	first   chan struct{} // closed with the first poll
	polled  bool
	number  float64 // of held requests, or of both kinds; not used for arrivals
	at      time.Time
	err     error // of the last poll
	counter counter
	wakers  map[chan<- struct{}]int
}

// A tally is what all processes of a source answered to one question.
type tally struct {
	sum    float64
	counts map[string]float64 // by process
	at     time.Time
	err    error
}

// join begins to ask q, or asks along; leave ends it.
func (p *poller) join(q question, c chan<- struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := p.watches[q]
	if w == nil {
		w = &watch{first: make(chan struct{}), wakers: map[chan<- struct{}]int{}}
		p.watches[q] = w
	}
	w.users++
	w.wakers[c]++
	select {
	case p.begun <- struct{}{}:
	default:
	}
}

func (p *poller) leave(q question, c chan<- struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := p.watches[q]
	if w.wakers[c]--; w.wakers[c] == 0 {
		delete(w.wakers, c)
	}
	if w.users--; w.users == 0 {
		delete(p.watches, q)
	}
}

// run polls once an interval while there are questions, until ctx ends.
func (p *poller) run(ctx context.Context) {
	tick := time.NewTicker(time.Duration(p.entry.Interval))
	defer tick.Stop()
	defer p.fetch.client.CloseIdleConnections()
	for {
		p.poll(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-p.begun:
		}
	}
}

// questions groups what is asked by the query that answers it: one for all but
// Prometheus.
func (p *poller) questions() map[string][]question {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := map[string][]question{}
	for q := range p.watches {
		key := ""
		if p.entry.Type == Prometheus {
			key = q.query
		}
		out[key] = append(out[key], q)
	}
	return out
}

// poll asks everything once and takes the answers in.
func (p *poller) poll(ctx context.Context) {
	groups := p.questions()
	if len(groups) == 0 {
		return
	}
	bounded, cancel := context.WithTimeout(ctx, p.entry.Stale()) // later answers would be of no use
	defer cancel()
	began := time.Now()
	var mu sync.Mutex
	tallies := map[question]tally{}
	var group errgroup.Group
	group.SetLimit(maxAsked)
	for query, questions := range groups {
		group.Go(func() error {
			got := p.ask(bounded, query, questions)
			mu.Lock()
			defer mu.Unlock()
			for q, t := range got {
				tallies[q] = t
			}
			return nil
		})
	}
	_ = group.Wait() // the functions above return no error
	if ctx.Err() != nil {
		return
	}
	p.take(tallies, began, time.Now())
}

// maxAsked bounds the queries of a source that are asked at the same time, and
// the processes that one of them is asked of.
const maxAsked = 8

// ask gets the answers to questions that share a query from every process.
// One process that does not answer leaves the sum unknown.
func (p *poller) ask(ctx context.Context, query string, questions []question) map[question]tally {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(p.entry.Timeout))
	defer cancel()
	out := map[question]tally{}
	for _, q := range questions {
		out[q] = tally{counts: map[string]float64{}}
	}
	failAll := func(err error) map[question]tally {
		for _, q := range questions {
			out[q] = tally{err: err}
		}
		return out
	}
	targets, err := p.fetch.targets(ctx, query)
	if err != nil {
		return failAll(err)
	}
	pages := make([]page, len(targets))
	var group errgroup.Group
	group.SetLimit(maxAsked)
	for i, u := range targets {
		group.Go(func() error {
			var err error
			if pages[i], err = p.fetch.get(ctx, u); err != nil {
				return fmt.Errorf("%s: %w", u.Host, err)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return failAll(err)
	}
	answered := time.Now()
	for _, q := range questions {
		t := out[q]
		t.at = answered
		for i, page := range pages {
			t = t.with(targets[i], page, q)
		}
		out[q] = t
	}
	return out
}

// with adds what one process says.
func (t tally) with(u *url.URL, p page, q question) tally {
	n, process, err := p.number(q)
	if t.err != nil || err != nil {
		if t.err == nil {
			t.err = fmt.Errorf("%s: %w", u.Host, err)
		}
		return t
	}
	t.sum += n
	t.counts[u.Host+" "+strconv.FormatFloat(process, 'f', 3, 64)] = n
	return t
}

// take stores the answers of a poll and wakes whoever waits for requests.
func (p *poller) take(tallies map[question]tally, began, now time.Time) {
	failed := p.store(tallies, began)
	p.metrics.polled(p.entry.Name, failed, now)
	p.complain(failed)
}

// store returns the first error, by its text.
func (p *poller) store(tallies map[question]tally, began time.Time) (failed error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for q, t := range tallies {
		w := p.watches[q]
		if w == nil {
			continue // nobody asks any more
		}
		w.err = t.err
		switch {
		case t.err == nil:
			w.answer(p.entry.Sees(), t, began)
		case failed == nil || t.err.Error() < failed.Error():
			failed = t.err
		}
		if !w.polled {
			w.polled = true
			close(w.first)
		}
	}
	return failed
}

// answer takes an answer in. The wakers hear of requests where there were none.
func (w *watch) answer(sees Sight, t tally, began time.Time) {
	more := false
	if sees == SeesArrivals {
		more = w.counter.count(t.counts, began) > 0
	} else {
		more = t.sum > 0 && w.number == 0
		w.number = t.sum
	}
	w.at = t.at
	if !more {
		return
	}
	for c := range w.wakers {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

// complain logs when what is wrong with a source changes.
func (p *poller) complain(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	switch text {
	case p.problem:
	case "":
		p.log.Info("demand source answers again", "source", p.entry.Name)
	default:
		p.log.Warn("demand source is unknown", "source", p.entry.Name, "reason", reason(err), "error", text)
	}
	p.problem = text
}

// A counter adds up what several processes count, each from its own beginning.
type counter struct {
	total float64
	known bool
	last  map[string]seen // by process
	since time.Time       // first poll
}

type seen struct {
	count float64
	at    time.Time
}

// forgetAfter is how long a process that is not seen is remembered: one behind
// a load balancer comes back.
const forgetAfter = 10 * time.Minute

// count takes in the counters of a poll that began at the given moment, and
// returns how many came since the one before. A process that is new to us
// counts from zero if it has started since we began to listen; what an older one
// has counted so far is not news. A counter that falls has been reset.
func (c *counter) count(counts map[string]float64, began time.Time) float64 {
	if c.last == nil {
		c.last, c.since = map[string]seen{}, began
	}
	for process, s := range c.last {
		if began.Sub(s.at) > forgetAfter {
			delete(c.last, process)
		}
	}
	more := 0.0
	for process, n := range counts {
		before, known := c.last[process]
		switch {
		case known && n >= before.count:
			more += n - before.count
		case known, startedAfter(process, c.since):
			more += n
		}
		c.last[process] = seen{n, began}
	}
	if math.IsInf(c.total+more, 0) {
		more = 0
	}
	c.total += more
	c.known = true
	return more
}

// startedAfter reads the start time in a process's name, 0 if it gave none.
func startedAfter(process string, t time.Time) bool {
	for i := len(process) - 1; i >= 0; i-- {
		if process[i] == ' ' {
			start, err := strconv.ParseFloat(process[i+1:], 64)
			return err == nil && start > float64(t.UnixNano())/1e9
		}
	}
	return false
}
