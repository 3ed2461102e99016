package trace

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
)

// gaps returns mean and coefficient of variation of the inter-arrival times.
func gaps(requests []Request) (mean, cv float64) {
	var sum, squares float64
	for i := 1; i < len(requests); i++ {
		d := (requests[i].At - requests[i-1].At).Seconds()
		sum += d
		squares += d * d
	}
	n := float64(len(requests) - 1)
	mean = sum / n
	return mean, math.Sqrt(squares/n-mean*mean) / mean
}

func TestServeGenKeepsRateAndBurstiness(t *testing.T) {
	cases := map[string]struct {
		reason  string
		pattern string
		cv      float64
	}{
		"Poisson":       {"Gamma with shape 1 is exponential", "Gamma,1,0.02", 1},
		"BurstyGamma":   {"the CV of a Gamma is 1/sqrt(shape)", "Gamma,0.25,0.02", 2},
		"RegularGamma":  {"and small for large shapes", "Gamma,25,0.02", 0.2},
		"BurstyWeibull": {"a Weibull with shape 1/2: sqrt(5)", "Weibull,0.5,0.02", math.Sqrt(5)},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := Read(strings.NewReader("0,50,1,"+tc.pattern+"\n"), Options{Seed: 1})
			require.NoError(t, err)
			require.Len(t, got, 30_000, "the rate is kept exactly")
			mean, cv := gaps(got)
			require.InEpsilon(t, 0.02, mean, 0.01)
			require.InEpsilon(t, tc.cv, cv, 0.08, tc.reason)
			require.Less(t, got[len(got)-1].At, window)
		})
	}
}

// However extreme the shape, arrivals stay inside their window and in order.
func TestServeGenExtremeShapes(t *testing.T) {
	for _, pattern := range []string{"Gamma,1e-9,1", "Weibull,1e-9,1", "Weibull,0.001,1", "Gamma,1e8,1", "Weibull,1e8,1"} {
		got, err := Read(strings.NewReader("600,1,1,"+pattern+"\n1200,1,1,"+pattern+"\n"), Options{})
		require.NoError(t, err, pattern)
		require.Len(t, got, 1200)
		for i, q := range got {
			require.GreaterOrEqual(t, q.At, window*time.Duration(i/600), pattern)
			require.Less(t, q.At, window*time.Duration(i/600+1), pattern)
			require.True(t, i == 0 || got[i-1].At <= q.At, pattern)
		}
	}
}

func TestDrawnTracesRepeat(t *testing.T) {
	draw := func(seed uint64) []Request {
		windows, err := Read(strings.NewReader("0,1,1,Gamma,0.5,1\n"), Options{Seed: seed})
		require.NoError(t, err)
		shape, err := Ramp(2, 10*time.Minute).Requests(Options{Seed: seed})
		require.NoError(t, err)
		return append(windows, shape...)
	}
	require.Empty(t, cmp.Diff(draw(1), draw(1)))
	require.NotEmpty(t, cmp.Diff(draw(1), draw(2)))
}

func TestShapes(t *testing.T) {
	minutes := func(requests []Request) []float64 {
		perMinute := make([]float64, 20)
		for _, q := range requests {
			perMinute[int(q.At/time.Minute)]++
		}
		return perMinute
	}
	cases := map[string]struct {
		s    Shape
		want func(minute int) float64 // mean requests in that minute
	}{
		"Constant": {Constant(10, 20*time.Minute), func(int) float64 { return 600 }},
		"Square": {Square(10, 0, 10*time.Minute, 20*time.Minute), func(m int) float64 {
			if m%10 < 5 {
				return 600
			}
			return 0
		}},
		"Flash": {Flash(10, 1, 5*time.Minute, 5*time.Minute, 20*time.Minute), func(m int) float64 {
			return []float64{0, 600, 60, 60}[m/5]
		}},
		"Ramp": {Ramp(10, 20*time.Minute), func(m int) float64 {
			return 600 * (1 - math.Abs(float64(m)+0.5-10)/10)
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := tc.s.Requests(Options{Seed: 3})
			require.NoError(t, err)
			for m, n := range minutes(got) {
				want := tc.want(m)
				require.InDelta(t, want, n, 5*math.Sqrt(want), "minute %d: within five standard deviations", m)
			}
		})
	}
	_, err := Constant(0, time.Hour).Requests(Options{})
	require.ErrorIs(t, err, ErrEmpty)
	_, err = Constant(100, time.Hour).Requests(Options{Limit: 1000})
	require.ErrorIs(t, err, ErrLimit)
}
