package coldstart_test

import (
	"encoding/binary"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/warmup/coldstart"
)

// watch has l see pods from their birth to Ready.
func watch(l *coldstart.Learner, all []coldstart.Pod) {
	starting := slices.Clone(all)
	for i := range starting {
		starting[i].Ready = time.Time{}
	}
	l.Observe(llama, starting, epoch)
	l.Observe(llama, all, epoch)
}

// of are the quantiles of starts that took so many seconds.
func of(took ...float64) coldstart.Quantiles {
	var l coldstart.Learner
	watch(&l, pods("a", took...))
	return l.Quantiles(llama, "a", said)
}

func TestQuantiles(t *testing.T) {
	cases := map[string]struct {
		took     []float64
		p50, p95 float64
		reason   string
	}{
		"WorkedExample": {[]float64{80, 85, 90, 95, 600}, 90, 103.3, "the example above the formula"},
		"Even":          {[]float64{50, 100, 100, 200}, 100, 233.2, "the middle two, on the logarithm"},
		"NoSpread":      {[]float64{90, 90, 90}, 90, 99, "a spread of nothing is not believed"},
		"Wild":          {[]float64{1, 60, 3600}, 60, 240, "nor one of more than four"},
		"Instant":       {[]float64{0, 0, 0}, 0.001, 0.0011, "a time of nothing has no logarithm"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			q := of(tc.took...)
			require.InEpsilon(t, tc.p50, q.P50.Seconds(), 0.01, tc.reason)
			require.InEpsilon(t, tc.p95, q.P95.Seconds(), 0.01, tc.reason)
		})
	}
}

// One start of an hour among nine: a node had to be made, or the registry was
// slow. The next one is not expected to be like it.
func TestOneOutlierMovesLittle(t *testing.T) {
	usual := []float64{82, 85, 88, 90, 91, 94, 97, 101}
	without, with := of(usual...), of(append(usual, 3600)...)
	require.InEpsilon(t, without.P50.Seconds(), with.P50.Seconds(), 0.05)
	require.InEpsilon(t, without.P95.Seconds(), with.P95.Seconds(), 0.1)
}

// A change that stays is followed: after as many starts as there were before.
func TestChangeIsFollowed(t *testing.T) {
	var took []float64
	for i := range coldstart.Kept {
		took = append(took, 60+float64(i%5))
	}
	for i := range coldstart.Kept/2 + 1 {
		took = append(took, 300+float64(i%5))
	}
	require.Greater(t, of(took...).P50, 290*time.Second)
}

func FuzzQuantiles(f *testing.F) {
	f.Add([]byte{}, int64(120e9))
	f.Add([]byte("\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff\xff\xff\xff\xff\xff\x7f\x00\x00\x00\x80\x00\x00\x00\x00"), int64(-1))
	f.Add([]byte("aaaaaaaabbbbbbbbccccccccdddddddd"), int64(1<<62))
	f.Fuzz(func(t *testing.T, times []byte, said int64) {
		var l coldstart.Learner
		for i := 0; len(times) >= 8 && i < 100; i, times = i+1, times[8:] {
			at := epoch.Add(time.Duration(binary.LittleEndian.Uint64(times)))
			watch(&l, []coldstart.Pod{{Name: fmt.Sprint(i), Template: fmt.Sprint(i % 5), Created: epoch, Ready: at}})
		}
		for _, template := range []string{"", "0", "4", "9"} {
			q := l.Quantiles(llama, template, time.Duration(said))
			if q.P50 < time.Millisecond || q.P95 < q.P50 || q.P50 > coldstart.Longest || q.P95 > 4*q.P50+time.Microsecond {
				t.Fatalf("template %q, said %v: %v", template, time.Duration(said), q)
			}
		}
	})
}
