package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestMedian(t *testing.T) {
	require.InDelta(t, 2, median([]float64{3, 1, 2}), 0)
	require.InDelta(t, 2.5, median([]float64{4, 1, 3, 2}), 0)
	require.Zero(t, median(nil))
}

func TestEveryPairHasItsContenders(t *testing.T) {
	names := map[string]bool{}
	for _, s := range allSeries(config{aws: "aws"}) {
		for _, p := range s.pairs {
			require.Contains(t, s.entries, p.ours)
			require.Contains(t, s.entries, p.theirs)
			require.False(t, names[p.name], p.name)
			names[p.name] = true
		}
	}
}

func TestTheSlowLinkIsSlow(t *testing.T) {
	body := strings.Repeat("x", 100_000)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) }))
	defer server.Close()
	p, err := newProxy(t.Context(), strings.TrimPrefix(server.URL, "http://"), 40*time.Millisecond, 1e6)
	require.NoError(t, err)
	transport := &http.Transport{}
	get := func() time.Duration {
		start := time.Now()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.url(), nil)
		require.NoError(t, err)
		resp, err := transport.RoundTrip(req)
		require.NoError(t, err)
		got, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, body, string(got))
		return time.Since(start)
	}
	first, second := get(), get()
	require.Greater(t, second, 135*time.Millisecond, "100 KB at 1 MB/s and a round trip")
	require.Greater(t, first, 175*time.Millisecond, "a connection has to be made first")
	transport.CloseIdleConnections()
	require.NoError(t, p.close())
}
