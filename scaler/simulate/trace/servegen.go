package trace

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"
)

// window is the width of ServeGen's windows.
const window = 10 * time.Minute

// serveGen draws the requests of a client's windows.
//
// A window says at which mean rate requests came and how their inter-arrival
// times were distributed. n = rate x 600 s requests leave n + 1 gaps to draw,
// which are stretched so that together they fill the window: the rate is kept
// exactly and the burstiness by distribution. Only the shape therefore
// matters, the scale cancels out.
type serveGen struct {
	o        Options
	arrivals *rand.Rand
	lengths  *rand.Rand
	began    bool
	first    float64       // timestamp of the first row, seconds
	next     time.Duration // when the next window may begin at the earliest
	gaps     []float64
	all      []Request
}

func newServeGen(o Options) *serveGen {
	return &serveGen{o: o, arrivals: source(o.Seed, 0), lengths: source(o.Seed, 1)}
}

// A windowRow is one row, checked.
type windowRow struct {
	start, rate  float64 // seconds, requests per second
	weibull      bool    // else Gamma
	shape, scale float64
}

func isWindow(line string) bool {
	_, err := parseWindow(line)
	return err == nil
}

func parseWindow(line string) (windowRow, error) {
	fields := strings.Split(line, ",")
	if len(fields) != 6 {
		return windowRow{}, fmt.Errorf("%w: %d fields, want 6", ErrRow, len(fields))
	}
	var x [6]float64
	for _, i := range []int{0, 1, 4, 5} {
		v, err := strconv.ParseFloat(strings.TrimSpace(fields[i]), 64)
		if err != nil || v < 0 || !(v < 1e9) {
			return windowRow{}, fmt.Errorf("%w: %.40q is not a number between 0 and a billion", ErrRow, fields[i])
		}
		x[i] = v
	}
	w := windowRow{start: x[0], rate: x[1], shape: x[4], scale: x[5]}
	pattern := strings.ToLower(strings.TrimSpace(fields[3]))
	w.weibull = pattern == "weibull"
	if w.rate > 0 && (!w.weibull && pattern != "gamma" || w.shape == 0 || w.scale == 0) {
		return windowRow{}, fmt.Errorf("%w: a window with requests needs the pattern Gamma or Weibull, a shape and a scale", ErrRow)
	}
	return w, nil
}

func (s *serveGen) row(line string) error {
	w, err := parseWindow(line)
	if err != nil {
		return err
	}
	if !s.began {
		s.began, s.first = true, w.start
	}
	start := time.Duration((w.start - s.first) * float64(time.Second))
	if start < s.next {
		return fmt.Errorf("%w: a window begins before the one before it ends", ErrOrder)
	}
	s.next = start + window
	n := math.Round(w.rate * s.o.Rate * window.Seconds())
	if float64(len(s.all))+n > float64(s.o.Limit) {
		return fmt.Errorf("%w: more than %d", ErrLimit, s.o.Limit)
	}
	s.draw(w, start, int(n))
	return nil
}

func (s *serveGen) draw(w windowRow, start time.Duration, n int) {
	gaps := slices.Grow(s.gaps[:0], n+1)[:n+1]
	s.gaps = gaps
	total := 0.0
	for i := range gaps {
		if w.weibull {
			gaps[i] = weibull(s.arrivals, w.shape)
		} else {
			gaps[i] = gamma(s.arrivals, w.shape)
		}
		total += gaps[i]
	}
	if !(total > 0) || math.IsInf(total, 0) { // the shape is beyond what a float64 can tell from 0
		for i := range gaps {
			gaps[i] = 1
		}
		total = float64(len(gaps))
	}
	at := 0.0
	for _, gap := range gaps[:n] {
		at += gap / total
		input, output := s.o.Lengths.draw(s.lengths)
		s.all = append(s.all, Request{start + time.Duration(min(at, 1)*float64(window-1)), input, output})
	}
}

func (s *serveGen) requests() []Request { return s.all }

// weibull draws with scale 1: (-ln U)^(1/shape).
func weibull(rng *rand.Rand, shape float64) float64 {
	return math.Pow(rng.ExpFloat64(), 1/shape)
}

// gamma draws with scale 1 by the method of Marsaglia and Tsang (2000); below
// shape 1 it draws with shape + 1 and multiplies by U^(1/shape).
func gamma(rng *rand.Rand, shape float64) float64 {
	if shape < 1 {
		return gamma(rng, shape+1) * math.Pow(1-rng.Float64(), 1/shape)
	}
	d := shape - 1.0/3
	c := 1 / math.Sqrt(9*d)
	for {
		x := rng.NormFloat64()
		v := 1 + c*x
		if v <= 0 {
			continue
		}
		v = v * v * v
		u := 1 - rng.Float64()
		if math.Log(u) < x*x/2+d-d*v+d*math.Log(v) {
			return d * v
		}
	}
}
