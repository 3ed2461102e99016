package activatorcmd

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	pb "github.com/kedacore/keda/v2/pkg/scalers/externalscaler"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/pilotlight-dev/pilotlight/cmd/internal/cli"
	"github.com/pilotlight-dev/pilotlight/cmd/internal/scalercmd"
)

// sleeper is a model at zero, its scaler, and KEDA.
type sleeper struct {
	targets, demand string
	keda            pb.ExternalScalerClient
}

// metadata is the trigger's; a start has failed after two seconds.
var metadata = map[string]string{"targetRequests": "8", "modelName": "llama", "startDeadline": "2s"}

func newSleeper(t *testing.T) *sleeper {
	t.Helper()
	s := &sleeper{targets: filepath.Join(t.TempDir(), "targets.yaml")}
	s.pods(t, "")
	ctx, cancel := context.WithCancel(t.Context())
	logs, w := io.Pipe()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		scalercmd.Main(ctx, cli.Env{
			Args:   []string{"--listen=127.0.0.1:0", "--demand-listen=127.0.0.1:0", "--http-listen=127.0.0.1:0", "--interval=20ms", "--static-targets", s.targets},
			Getenv: func(string) string { return "" }, Stdout: io.Discard, Stderr: w,
		})
		_ = w.Close()
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	var at struct{ Keda, Demand string }
	for lines := bufio.NewScanner(logs); at.Keda == ""; {
		require.True(t, lines.Scan(), "the scaler ended")
		require.NoError(t, json.Unmarshal(lines.Bytes(), &at), lines.Text())
	}
	go func() { _, _ = io.Copy(io.Discard, logs) }()
	s.demand = at.Demand
	s.connect(t, at.Keda)
	return s
}

// connect makes KEDA's client. Its stream would say only that the model is to
// wake; the other answers it gets by asking.
func (s *sleeper) connect(t *testing.T, addr string) {
	t.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	s.keda = pb.NewExternalScalerClient(conn)
	s.told(t, false)
}

// told waits until KEDA is told so.
func (s *sleeper) told(t *testing.T, active bool) {
	t.Helper()
	require.Eventually(t, func() bool {
		r, err := s.keda.IsActive(t.Context(), &pb.ScaledObjectRef{Namespace: "ai", Name: "llama", ScalerMetadata: metadata})
		return err == nil && r.GetResult() == active
	}, 30*time.Second, 20*time.Millisecond, "KEDA was not told active=%v", active)
}

// pods replaces what runs: more is the rest of a pod's entry, "" is no pod.
func (s *sleeper) pods(t *testing.T, more string) {
	t.Helper()
	pods := ""
	if more != "" {
		pods = ", pods: [{name: llama-0, host: \"\", created: " + time.Now().UTC().Format(time.RFC3339Nano) + more + "}]"
	}
	text := fmt.Sprintf("targets:\n- {namespace: ai, name: llama, maxReplicaCount: 1, metadata: {targetRequests: %q, modelName: llama, startDeadline: 2s}%s}\n", "8", pods)
	require.NoError(t, os.WriteFile(s.targets+".new", []byte(text), 0o600))
	require.NoError(t, os.Rename(s.targets+".new", s.targets))
}

// refused is what a client hears.
type refused struct {
	status int
	code   string
	text   string
	reason string
	retry  int
}

func (r running) refused(ctx context.Context, t *testing.T) (out refused) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.clients+"/v1/chat/completions", strings.NewReader(`{"model":"llama"}`))
	require.NoError(t, err)
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	var said struct {
		Error struct{ Code, Message string }
	}
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&said))
	retry, err := strconv.Atoi(resp.Header.Get("Retry-After"))
	require.NoError(t, err)
	return refused{resp.StatusCode, said.Error.Code, said.Error.Message, resp.Header.Get("X-Pilotlight-Reason"), retry}
}

// A start fails, its pod is scaled in, and the activator is restarted: nobody
// who comes now is held for a model that cannot start, and everybody is told
// why, as the scaler remembers it.
func TestAFailedStartIsToldAtZeroByARestartedActivator(t *testing.T) {
	for reason, failure := range map[string]string{
		"image":    ", failure: image, detail: no such tag",
		"pointer":  ", failure: pointer, detail: llama@champion does not exist",
		"deadline": ", scheduled: 2026-01-01T00:00:00Z", // nothing is seen to be wrong
	} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			s := newSleeper(t)
			before := start(t, "--static-targets", s.targets, "--scaler", s.demand, "--shutdown-delay", "1ms")
			held := make(chan refused, 1)
			go func() { held <- before.refused(ctx, t) }()
			s.told(t, true)
			s.pods(t, failure)
			got := <-held
			require.Equal(t, http.StatusServiceUnavailable, got.status, "who was held is told at once, or at the deadline")
			require.Equal(t, reason, got.reason)
			s.told(t, false)
			s.pods(t, "") // scaled in
			before.stop()
			<-before.code
			time.Sleep(time.Second) // the scaler looks, again and again, at nothing

			after := start(t, "--static-targets", s.targets, "--scaler", s.demand, "--shutdown-delay", "1ms")
			began := time.Now()
			got = after.refused(ctx, t)
			require.Less(t, time.Since(began), 15*time.Second, "not held, which it would be for minutes")
			require.Equal(t, http.StatusServiceUnavailable, got.status)
			require.Equal(t, "model_start_failed", got.code)
			require.Equal(t, reason, got.reason)
			require.Contains(t, got.text, reason)
			require.Greater(t, got.retry, 5, "when the scaler tries again")
			require.LessOrEqual(t, got.retry, 30)
			require.Equal(t, "0", after.held(t, "llama"))
		})
	}
}
