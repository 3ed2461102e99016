package agent

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestWhatAnEngineServes(t *testing.T) {
	type look struct {
		health health
		names  string // digest that the link or current names
	}
	tests := map[string]struct {
		frozen bool
		looks  []look
		state  EngineState
		loads  string
		since  int // index of the look since when it is ready, -1 never
	}{
		"NothingSeen":      {false, nil, "", "", -1},
		"Loading":          {false, []look{{refused, "a"}, {refused, "a"}}, EngineLoading, "a", -1},
		"Ready":            {false, []look{{refused, "a"}, {healthy, "a"}, {healthy, "a"}}, EngineReady, "a", 1},
		"MovedAfterLoad":   {false, []look{{refused, "a"}, {healthy, "a"}, {healthy, "b"}}, EngineReady, "a", 1},
		"MovedDuringLoad":  {false, []look{{refused, "a"}, {refused, "b"}, {healthy, "b"}}, EngineReady, "", 2},
		"MovedAtTheEnd":    {false, []look{{refused, "a"}, {healthy, "b"}}, EngineReady, "", 1},
		"UpBeforeUs":       {false, []look{{healthy, "a"}}, EngineReady, "", 0},
		"UpBeforeUsFrozen": {true, []look{{healthy, "a"}}, EngineReady, "a", 0},
		"Restarted":        {false, []look{{refused, "a"}, {healthy, "a"}, {refused, "b"}, {healthy, "b"}}, EngineReady, "b", 3},
		"BusyIsNoRestart":  {false, []look{{refused, "a"}, {healthy, "a"}, {unclear, "b"}, {healthy, "b"}}, EngineReady, "a", 1},
		"Busy":             {false, []look{{refused, "a"}, {healthy, "a"}, {unclear, "a"}}, EngineUnknown, "a", 1},
		"LinkSetLate":      {true, []look{{refused, ""}, {refused, "a"}, {healthy, "a"}}, EngineReady, "a", 2},
	}
	start := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var e engine
			for i, l := range tc.looks {
				e.see(l.health, l.names, tc.frozen, start.Add(time.Duration(i)*time.Second))
			}
			require.Equal(t, tc.state, e.state)
			require.Equal(t, tc.loads, e.loads)
			if tc.since < 0 {
				require.Zero(t, e.since)
				return
			}
			require.Equal(t, start.Add(time.Duration(tc.since)*time.Second), e.since)
		})
	}
}

func TestProbe(t *testing.T) {
	status := http.StatusOK
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
	defer server.Close()
	client := server.Client()
	require.Equal(t, healthy, probe(t.Context(), client, server.URL+"/health"))
	status = http.StatusServiceUnavailable
	require.Equal(t, unclear, probe(t.Context(), client, server.URL+"/health"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.Equal(t, unclear, probe(ctx, client, server.URL))

	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	require.Equal(t, refused, probe(t.Context(), client, "http://"+l.Addr().String()))
}
