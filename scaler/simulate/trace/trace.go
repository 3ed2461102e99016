package trace

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

// A Request is one call of a client.
type Request struct {
	At     time.Duration // since the beginning of the trace, >= 0
	Input  int           // prompt tokens, >= 0
	Output int           // tokens generated, >= 0
}

// Options say how a trace is read or drawn. The zero value works.
type Options struct {
	Name    string        // what errors call the trace; "" = trace
	Seed    uint64        // of what is drawn
	Rate    float64       // multiplies the rates of ServeGen windows; 0 = 1. Refused for recorded requests
	From    time.Duration // leave out what comes earlier, and count from here
	For     time.Duration // leave out what comes later than From + For; 0 = keep all
	Lengths Lengths       // tokens of requests that are drawn
	Limit   int           // most requests; 0 = DefaultLimit
}

// DefaultLimit is the most requests a trace may have unless Options say
// otherwise: some 500 MB of them.
const DefaultLimit = 20_000_000

// What can be wrong with a trace. Every error of Read but those of its reader
// is a *LineError around one of them.
var (
	ErrFormat  = errors.New("unknown trace format")
	ErrRow     = errors.New("malformed row")
	ErrOrder   = errors.New("out of order")
	ErrEmpty   = errors.New("no requests")
	ErrLimit   = errors.New("too many requests")
	ErrOptions = errors.New("impossible options")
)

// A LineError says where in a trace something is wrong.
type LineError struct {
	Name string // of the trace
	Line int    // 1 is the first; 0 = the trace as a whole
	Err  error
}

func (e *LineError) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("%s: %v", e.Name, e.Err)
	}
	return fmt.Sprintf("%s:%d: %v", e.Name, e.Line, e.Err)
}

func (e *LineError) Unwrap() error { return e.Err }

// check completes o with its defaults and refuses what cannot be.
func (o Options) check() (Options, error) {
	if o.Name == "" {
		o.Name = "trace"
	}
	if o.Rate == 0 {
		o.Rate = 1
	}
	if o.Limit == 0 {
		o.Limit = DefaultLimit
	}
	o.Lengths = o.Lengths.orDefault()
	switch {
	case !(o.Rate > 0) || math.IsInf(o.Rate, 0):
		return o, &LineError{Name: o.Name, Err: fmt.Errorf("%w: rate %v must be above 0", ErrOptions, o.Rate)}
	case o.From < 0 || o.For < 0:
		return o, &LineError{Name: o.Name, Err: fmt.Errorf("%w: from %v and for %v must not be negative", ErrOptions, o.From, o.For)}
	case o.Limit < 0:
		return o, &LineError{Name: o.Name, Err: fmt.Errorf("%w: limit %d must not be negative", ErrOptions, o.Limit)}
	}
	return o, nil
}

// cut keeps what comes within [From, From + For) and counts from From.
func (o Options) cut(requests []Request) []Request {
	at := func(r Request, d time.Duration) int { return int(min(max(r.At-d, -1), 1)) }
	first, _ := slices.BinarySearchFunc(requests, o.From, at)
	requests = requests[first:]
	if o.For > 0 {
		end, _ := slices.BinarySearchFunc(requests, o.From+o.For, at)
		requests = requests[:end]
	}
	if o.From > 0 {
		for i := range requests {
			requests[i].At -= o.From
		}
	}
	return requests
}
