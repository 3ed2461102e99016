package line

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func drain(l *Line[string]) (out []string) {
	for it := l.Pop(); it != nil; it = l.Pop() {
		out = append(out, it.Value)
	}
	return out
}

func TestOrder(t *testing.T) {
	type arrival struct {
		name  string
		after time.Duration
		class int
	}
	cases := map[string]struct {
		arrivals []arrival
		want     []string
	}{
		"FirstComeFirstServed": {[]arrival{{"a", 0, 0}, {"b", 1, 0}, {"c", 1, 0}, {"d", 2, 0}}, []string{"a", "b", "c", "d"}},
		"HighGoesAhead":        {[]arrival{{"low", 0, -1}, {"normal", 0, 0}, {"high", 0, 1}}, []string{"high", "normal", "low"}},
		"AClassIsAStep":        {[]arrival{{"normal", 0, 0}, {"high", Step - 1, 1}}, []string{"high", "normal"}},
		"NobodyStarves":        {[]arrival{{"low", 0, -1}, {"a", Step, 1}, {"b", 2*Step + 1, 1}, {"c", 3 * Step, 1}}, []string{"a", "low", "b", "c"}},
		"BoundsHold":           {[]arrival{{"ten", 0, 10}, {"million", 1, 1e6}}, []string{"ten", "million"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var l Line[string]
			for _, a := range tc.arrivals {
				l.Push(a.name, noon.Add(a.after), a.class)
			}
			require.Equal(t, tc.want, drain(&l))
		})
	}
}

func TestLeaveAndReturn(t *testing.T) {
	var l Line[string]
	require.Nil(t, l.Peek())
	require.Nil(t, l.Pop())
	a, b := l.Push("a", noon, 0), l.Push("b", noon, 0)
	l.Push("c", noon, 0)
	require.True(t, l.Remove(b))
	require.False(t, l.Remove(b), "only once")
	require.Same(t, a, l.Pop())
	require.False(t, l.Remove(a))
	l.Push("d", noon, 0)
	l.Return(a)
	l.Return(a)
	require.Equal(t, 3, l.Len())
	n := 0
	l.Each(func(string) { n++ })
	require.Equal(t, 3, n)
	require.Equal(t, []string{"a", "c", "d"}, drain(&l), "who was refused stands where he stood")
}
