package affinity

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

type pod struct {
	id   uint64
	load int
	full bool
}

func (p *pod) ID() uint64 { return p.id }
func (p *pod) Load() int  { return p.load }
func (p *pod) Free() bool { return !p.full }

func pods(n int) (out []*pod) {
	for i := range n {
		out = append(out, &pod{id: mix(uint64(i) + 1)})
	}
	return out
}

func TestBound(t *testing.T) {
	require.Equal(t, 3, Bound(1.25, 7, 4), "the example of the package comment")
	require.Equal(t, 1, Bound(1.25, 0, 4), "an idle pod takes one")
	require.Equal(t, 1, Bound(0, 0, 1))
	require.Equal(t, 0, Bound(1.25, 0, 0))
}

func TestSameKeySamePod(t *testing.T) {
	all := pods(8)
	for key := range uint64(100) {
		home := Pick(key, all, 1.25)
		require.GreaterOrEqual(t, home, 0)
		require.Equal(t, home, Pick(key, all, 1.25))
	}
}

// A popular key spreads; nobody carries more than the bound.
func TestLoadIsBounded(t *testing.T) {
	all := pods(4)
	for i := range 100 {
		bound := Bound(1.25, i, 4)
		at := Pick(7, all, 1.25)
		require.GreaterOrEqual(t, at, 0)
		all[at].load++
		require.LessOrEqual(t, all[at].load, bound)
	}
}

func TestFullPodsAreLeftOut(t *testing.T) {
	all := pods(3)
	home := Pick(7, all, 1.25)
	all[home].full = true
	next := Pick(7, all, 1.25)
	require.NotEqual(t, home, next)
	for _, p := range all {
		p.full = true
	}
	require.Equal(t, -1, Pick(7, all, 1.25))
	require.Equal(t, -1, Pick(7, []*pod{}, 1.25))
}

// A pod that comes takes keys to itself and moves no other; keys spread evenly.
func TestFewKeysMove(t *testing.T) {
	before, after := pods(4), pods(5)
	random := rand.New(rand.NewPCG(1, 2))
	const n = 10000
	moved := 0
	count := make([]int, 5)
	for range n {
		key := random.Uint64()
		was, is := Pick(key, before, 1.25), Pick(key, after, 1.25)
		count[is]++
		if was != is {
			require.Equal(t, 4, is, "keys move to the new pod only")
			moved++
		}
	}
	require.InDelta(t, n/5, moved, n/50)
	for _, c := range count {
		require.InDelta(t, n/5, c, n/50)
	}
}
