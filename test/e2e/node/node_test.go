package node

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Two nodes on one machine, of two runs, never have an address in common.
func TestAddressesAreOfOneNode(t *testing.T) {
	var a, b, c addresses
	held, err := a.claim(t.Context())
	require.NoError(t, err)
	other, err := b.claim(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = other.Close() })
	network := func(addr string) string { return strings.Join(strings.Split(addr, ".")[:2], ".") }
	first, second := a.next(), a.next()
	require.NotEqual(t, first, second)
	require.Equal(t, network(first), network(second))
	require.NotEqual(t, network(first), network(b.next()))

	require.NoError(t, held.Close())
	again, err := c.claim(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = again.Close() })
	require.NotEqual(t, network(b.next()), network(c.next()))
}
