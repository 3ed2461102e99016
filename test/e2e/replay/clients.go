package replay

import (
	"cmp"
	"context"
	"math"
	"slices"
	"time"

	"github.com/pilotlight-dev/pilotlight/scaler/simulate"
	"github.com/pilotlight-dev/pilotlight/scaler/simulate/trace"
	"github.com/pilotlight-dev/pilotlight/test/e2e/timeline"
)

// A client asks, and asks again as soon as it has its answer. What it asks in the
// simulator comes when the answer came there, else two of its requests would be
// under way at once.
type client struct {
	requests []timeline.Request // one after the other
	leaves   time.Duration      // when it goes in the middle of an answer, 0 = never
}

// The next request of a client comes so long after the end of the one before; by
// the activator's log it may also be a little earlier.
const (
	mostThought = 250 * time.Millisecond
	mostHaste   = 20 * time.Millisecond
)

// clients are those whose requests were recorded. Which request is whose was not,
// so each that comes as another ends is taken for its successor.
func (in input) clients() []*client {
	var all []*client
	for _, r := range in.trace.Requests {
		if r.At < in.trace.Began {
			continue // came before there was anything to scale
		}
		var whose *client
		for _, c := range all {
			gap := duration(r.At - c.last())
			if c.leaves == 0 && gap >= -mostHaste && gap <= mostThought && (whose == nil || c.last() > whose.last()) {
				whose = c
			}
		}
		if whose == nil {
			whose = &client{}
			all = append(all, whose)
		}
		whose.requests = append(whose.requests, r)
		if r.Gone {
			whose.leaves = in.since(end(r))
		}
	}
	return all
}

// last is when the client's last request ended.
func (c *client) last() float64 { return end(c.requests[len(c.requests)-1]) }

func end(r timeline.Request) float64 { return r.At + r.Held + r.Served }

// play simulates, again and again: each time more of what the clients ask comes
// when it should, from the beginning on, until nothing changes any more.
func (in input) play(ctx context.Context) (*simulate.Result, error) {
	s, c := in.scenario(), in.controller()
	s.KeepEnds = true
	clients := in.clients()
	arrivals := make([][]time.Duration, len(clients)) // by client
	for i, one := range clients {
		for _, r := range one.requests {
			arrivals[i] = append(arrivals[i], in.since(r.At))
		}
	}
	for round := 0; ; round++ {
		calls := ask(&s, clients, arrivals)
		result, err := simulate.Run(ctx, s, c)
		if err != nil || round == mostRounds || !follow(clients, arrivals, calls, result.Ends) {
			return result, err
		}
	}
}

// mostRounds is more than any client asks within a scenario.
const mostRounds = 200

// A call is a request of a client.
type call struct{ client, n int }

// ask fills in the requests of a scenario. The one in whose middle a client leaves
// would have had more.
func ask(s *simulate.Scenario, clients []*client, arrivals [][]time.Duration) []call {
	var calls []call
	s.Requests, s.Leaves = nil, nil
	for i, c := range clients {
		for n, at := range arrivals[i] {
			if at < s.End && (c.leaves == 0 || at < c.leaves) {
				calls = append(calls, call{i, n})
			}
		}
	}
	slices.SortStableFunc(calls, func(a, b call) int {
		return cmp.Compare(arrivals[a.client][a.n], arrivals[b.client][b.n])
	})
	for id, one := range calls {
		c := clients[one.client]
		r := c.requests[one.n]
		output := int(duration(r.Served) / token)
		if r.Gone {
			output = math.MaxInt32
		}
		if c.leaves > 0 {
			s.Leaves = append(s.Leaves, simulate.Leave{Request: id, At: c.leaves})
		}
		s.Requests = append(s.Requests, trace.Request{At: arrivals[one.client][one.n], Output: 1 + output})
	}
	slices.SortStableFunc(s.Leaves, func(a, b simulate.Leave) int { return cmp.Compare(a.At, b.At) })
	return calls
}

// follow lets each request come when the one before it has ended, and reports
// whether that is another time than before.
func follow(clients []*client, arrivals [][]time.Duration, calls []call, ends []time.Duration) (changed bool) {
	ended := map[call]time.Duration{}
	for id, one := range calls {
		ended[one] = ends[id]
	}
	for i, c := range clients {
		for n := 1; n < len(c.requests); n++ {
			at := never
			if e := ended[call{i, n - 1}]; e > 0 {
				at = e + max(duration(c.requests[n].At-end(c.requests[n-1])), 0)
			}
			if arrivals[i][n] != at {
				arrivals[i][n], changed = at, true
			}
		}
	}
	return changed
}

// never is later than any scenario ends.
const never = time.Duration(math.MaxInt64)
