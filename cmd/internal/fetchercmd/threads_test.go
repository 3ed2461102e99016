package fetchercmd

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestThreadsFollowTheWork(t *testing.T) {
	var told []bool
	e := effort{threads: func(many bool) { told = append(told, many) }}
	e.work(func() {})
	require.Empty(t, told, "there are many from the beginning")
	e.rest()
	e.rest()
	require.Equal(t, []bool{false}, told)
	e.work(func() {
		require.Equal(t, []bool{false, true}, told)
		e.work(func() {})
		e.rest()
		require.Equal(t, []bool{false, true}, told, "somebody still works")
	})
	require.Equal(t, []bool{false, true, false}, told)

	begins := effort{threads: func(many bool) { told = append(told, many) }}
	told = nil
	begins.work(func() {
		begins.rest()
		require.Empty(t, told)
	})
	require.Equal(t, []bool{false}, told)

	var nobody effort
	nobody.rest()
	nobody.work(func() {})
}
