package coldstart

import (
	"math"
	"slices"
	"time"
)

const (
	// Enough is the number of starts from which on they are believed. With
	// three, one odd start is outvoted.
	Enough = 3

	// Kept is the number of starts remembered for each template.
	Kept = 32

	// DefaultSpread is P95 over P50 until it was measured: the 150 s over 90 s
	// of a production fleet's large models.
	DefaultSpread = 5.0 / 3

	leastSpread, mostSpread = 1.1, 4.0

	// normal95 is the 95th percentile of the standard normal distribution.
	normal95 = 1.6449

	// madToSigma turns the median absolute deviation of normal values into
	// their standard deviation.
	madToSigma = 1.4826
)

// Quantiles are the usual and the slow time to ready.
type Quantiles struct{ P50, P95 time.Duration }

// seeded is what is assumed of a start that should take d, at most Longest.
func seeded(d time.Duration) Quantiles {
	d = bounded(d)
	return Quantiles{P50: d, P95: time.Duration(float64(d) * DefaultSpread)}
}

// quantiles estimates P50 by the median, and P95 as that of a lognormal
// distribution whose spread is taken from the median absolute deviation of the
// logarithms: start times are skewed, a few samples have no 95th percentile of
// their own, and a single wild one must not make it.
//
//	80 85 90 95 600 s: median 90; deviations of ln 0.118 0.057 0 0.054 1.897,
//	median 0.057, sigma 0.085; P95 = 90 x exp(1.645 x 0.085) = 103 s
//
// d must not be empty. 1 ms <= P50 <= P95 <= 4 x P50, and P50 <= Longest.
func quantiles(d []time.Duration) Quantiles {
	logs := make([]float64, len(d))
	for i, x := range d {
		logs[i] = math.Log(bounded(x).Seconds())
	}
	middle := median(logs)
	for i, l := range logs {
		logs[i] = math.Abs(l - middle)
	}
	spread := math.Exp(normal95 * madToSigma * median(logs))
	p50 := min(math.Exp(middle), Longest.Seconds()) // the exponential rounds
	return Quantiles{
		P50: seconds(p50),
		P95: seconds(p50 * min(max(spread, leastSpread), mostSpread)),
	}
}

// bounded keeps d from 1 ms, which has a logarithm, to Longest.
func bounded(d time.Duration) time.Duration { return min(max(d, time.Millisecond), Longest) }

// median sorts v and returns its middle, the mean of the two for an even
// number.
func median(v []float64) float64 {
	slices.Sort(v)
	n := len(v)
	return (v[(n-1)/2] + v[n/2]) / 2
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
