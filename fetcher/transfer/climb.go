package transfer

import "time"

// climbEvery is how often the rate is looked at. Shorter, and one slow answer
// looks like a trend.
const climbEvery = 250 * time.Millisecond

const (
	climbGain  = 1.10 // more connections must bring so much more, over climbWait
	climbClear = 1.40 // so much more needs no longer look
	climbWait  = 3    // ticks over which a rate is averaged
	climbRest  = 20   // ticks until more are tried again: 5 s
	climbAfter = 40   // the same after a refusal: 10 s
	climbIdle  = 0.08 // with less of the processors idle, no more are tried
)

// climber finds how many connections bring the most bytes, by trying. It is
// pure: the caller measures, and applies the limit that it returns.
//
// From 16 it doubles for as long as that brings a tenth more, on an average of
// three ticks; the first doubling that brings less is taken back. Example, in
// MB/s: 16 connections bring 80, 32 bring 160, 64 bring 320, 128 bring 330: the
// limit goes 16, 32, 64, 128, and three ticks later back to 64, where it rests
// for 5 s before 128 is tried again.
//
// While the machine's processors are all busy, nothing is tried: more
// connections would only share them, and cost memory.
type climber struct {
	limit, ceiling int

	back  int     // the limit before a raise that is still judged; 0 if none is
	base  float64 // the average rate before it
	sum   float64 // of the rates since
	ticks int     // that sum has
	skip  bool    // the next tick does not count: connections are being made
	rest  int     // ticks left to rest
}

// interval is what was seen since the last tick.
type interval struct {
	rate      float64 // bytes per second
	saturated bool    // every connection was busy
	refused   bool    // the store refused one
	idle      float64 // share of the machine's processor time, 0 to 1; 1 if unknown
}

// tick looks at an interval and returns the limit.
func (c *climber) tick(seen interval) int {
	switch {
	case seen.refused:
		c.settle(max(1, c.limit/2), climbAfter)
	case !seen.saturated:
		// The rate is what there is to do, not what the network carries.
		c.sum, c.ticks = 0, 0
	case c.rest > 0:
		c.rest--
	case c.skip:
		c.skip = false
	case seen.idle < climbIdle && c.back == 0:
		c.sum, c.ticks = 0, 0 // the processors are the limit
	default:
		c.look(seen.rate)
	}
	return c.limit
}

// look averages the rate, and moves when it is sure.
func (c *climber) look(rate float64) {
	c.sum += rate
	c.ticks++
	average := c.sum / float64(c.ticks)
	switch {
	case c.back > 0 && average >= climbClear*c.base:
		c.raise(average)
	case c.ticks < climbWait:
	case c.back > 0 && average < climbGain*c.base:
		c.settle(c.back, climbRest)
	default:
		c.raise(average)
	}
}

// raise doubles the limit and begins to judge that.
func (c *climber) raise(average float64) {
	c.settle(c.limit, 0)
	if c.limit < c.ceiling && average > 0 {
		c.back, c.base, c.skip = c.limit, average, true
		c.limit = min(2*c.limit, c.ceiling)
	}
}

// settle ends what is being judged.
func (c *climber) settle(limit, rest int) {
	*c = climber{limit: limit, ceiling: c.ceiling, rest: rest}
}
