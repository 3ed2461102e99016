package trace

import (
	"math"
	"time"
)

// A Shape is traffic that is made up: a rate over time, at which requests come
// independently of each other (a Poisson process).
type Shape struct {
	For  time.Duration                  // how long it lasts
	Peak float64                        // the largest rate, requests per second
	Rate func(at time.Duration) float64 // requests per second, between 0 and Peak
}

// Constant comes at the same rate all the time.
func Constant(rate float64, lasts time.Duration) Shape {
	return Shape{lasts, rate, func(time.Duration) float64 { return rate }}
}

// Square is high for the first half of every period and low for the second.
func Square(high, low float64, period, lasts time.Duration) Shape {
	return Shape{lasts, max(high, low), func(at time.Duration) float64 {
		if at%period < period/2 {
			return high
		}
		return low
	}}
}

// Flash is a flash crowd: nothing for quiet, then at once peak for lasting,
// then a trickle of rest until the end.
func Flash(peak, rest float64, quiet, lasting, lasts time.Duration) Shape {
	return Shape{lasts, max(peak, rest), func(at time.Duration) float64 {
		switch {
		case at < quiet:
			return 0
		case at < quiet+lasting:
			return peak
		}
		return rest
	}}
}

// Ramp rises evenly from zero to peak in the middle and falls to zero again.
func Ramp(peak float64, lasts time.Duration) Shape {
	return Shape{lasts, peak, func(at time.Duration) float64 {
		return peak * (1 - math.Abs(2*at.Seconds()/lasts.Seconds()-1))
	}}
}

// Requests draws the shape's requests: arrivals at the peak rate, each kept
// with the probability rate/peak. Errors are *LineErrors around ErrEmpty,
// ErrLimit or ErrOptions.
func (s Shape) Requests(o Options) ([]Request, error) {
	o, err := o.check()
	if err != nil {
		return nil, err
	}
	arrivals, lengths := source(o.Seed, 2), source(o.Seed, 3)
	var all []Request
	peak := s.Peak * o.Rate
	for at := 0.0; peak > 0; {
		at += arrivals.ExpFloat64() / peak
		if at >= s.For.Seconds() {
			break
		}
		t := time.Duration(at * float64(time.Second))
		if arrivals.Float64()*s.Peak >= s.Rate(t) {
			continue
		}
		if len(all) == o.Limit {
			return nil, &LineError{o.Name, 0, ErrLimit}
		}
		input, output := o.Lengths.draw(lengths)
		all = append(all, Request{t, input, output})
	}
	if all = o.cut(all); len(all) == 0 {
		return nil, &LineError{o.Name, 0, ErrEmpty}
	}
	return all, nil
}
