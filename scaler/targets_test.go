package scaler

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func version(i int) map[string]string { return map[string]string{"servingPort": fmt.Sprint(1000 + i)} }

// However often a ScaledObject is edited, its targets and series stay few.
func TestTargetsOfOneScaledObjectAreBounded(t *testing.T) {
	reg := prometheus.NewRegistry()
	r := newRig(t, Options{Registerer: reg})
	r.hold(0)
	stream, err := r.client.StreamIsActive(t.Context(), object(version(0)))
	require.NoError(t, err)
	_, err = stream.Recv()
	require.NoError(t, err)
	for i := range 200 {
		_, err := r.value(t, object(version(i)))
		require.NoError(t, err)
	}
	targets := r.scaler.Targets()
	require.Len(t, targets, 16)
	require.Eventually(t, func() bool {
		families, err := reg.Gather()
		require.NoError(t, err)
		for _, f := range families {
			if f.GetName() == "pilotlight_scaler_known" {
				return len(f.GetMetric()) <= 16
			}
		}
		return false
	}, soon, time.Millisecond, "series end with their target")

	r.hold(1)
	m, err := stream.Recv()
	require.NoError(t, err, "a target with a stream does not give way")
	require.True(t, m.GetResult())
}

func TestStreamsAreNotGivenUpForMoreTriggers(t *testing.T) {
	r := newRig(t, Options{PerObject: 2})
	r.hold(0)
	ctx, cancel := context.WithCancel(t.Context())
	for i := range 2 {
		stream, err := r.client.StreamIsActive(ctx, object(version(i)))
		require.NoError(t, err)
		_, err = stream.Recv()
		require.NoError(t, err)
	}
	_, err := r.value(t, object(version(2)))
	require.Equal(t, codes.ResourceExhausted, status.Code(err))
	require.ErrorContains(t, err, "ScaledObject ai/llama")
	cancel()
	require.Eventually(t, func() bool { _, err := r.value(t, object(version(2))); return err == nil }, soon, time.Millisecond)
}

// Where nobody asks about any trigger, all stay.
func TestOnlyATriggerThatIsAskedAboutSupersedes(t *testing.T) {
	r := newRig(t, Options{Interval: time.Hour, Superseded: time.Second}) // no target ends by itself
	r.hold(0)
	for _, i := range []int{1, 2} {
		_, err := r.value(t, object(version(i)))
		require.NoError(t, err)
	}
	both, now := r.scaler.all(), time.Now()
	require.Len(t, both, 2)
	for _, target := range both {
		target.used.Store(now.UnixNano())
	}
	later := now.Add(1500 * time.Millisecond)
	require.False(t, r.scaler.superseded(both[0], later), "it was not asked about, but neither was the other")
	require.False(t, r.scaler.superseded(both[1], later))
	both[1].used.Store(now.Add(time.Second).UnixNano())
	require.True(t, r.scaler.superseded(both[0], later), "only the other was asked about")
	require.False(t, r.scaler.superseded(both[1], later))
}

// After an edit only what KEDA still asks about goes on.
func TestAnEditedTriggerEndsSoon(t *testing.T) {
	r := newRig(t, Options{Superseded: 100 * time.Millisecond})
	r.hold(0)
	for _, i := range []int{1, 2} {
		_, err := r.value(t, object(version(i)))
		require.NoError(t, err)
	}
	require.Eventually(t, func() bool {
		_, err := r.value(t, object(version(2)))
		return err == nil && len(r.scaler.Targets()) == 1
	}, soon, time.Millisecond)
}

// buffer is a log that goroutines share.
type buffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

// Nothing grows with what a request holds.
func TestHugeRequestsAreRefused(t *testing.T) {
	var log buffer
	r := newRig(t, Options{Logger: slog.New(slog.NewJSONHandler(&log, nil))})
	huge := strings.Repeat("x", 1<<20)
	named, spaced := object(nil), object(nil)
	named.Name, spaced.Namespace = huge, "ai\nlevel=ERROR"
	for name, so := range map[string]error{
		"Model":     func() error { _, err := r.value(t, object(map[string]string{"modelName": huge})); return err }(),
		"Key":       func() error { _, err := r.value(t, object(map[string]string{huge: "1"})); return err }(),
		"Name":      func() error { _, err := r.value(t, named); return err }(),
		"Namespace": func() error { _, err := r.value(t, spaced); return err }(),
	} {
		require.Equal(t, codes.InvalidArgument, status.Code(so), name)
		require.Less(t, len(so.Error()), 2*maxText, name)
	}
	require.Empty(t, r.scaler.Targets())

	r.set(func(c *cluster) { c.err = fmt.Errorf("the API server says %s", huge) })
	_, err := r.value(t, object(nil))
	require.Equal(t, codes.Unavailable, status.Code(err))
	require.Less(t, len(err.Error()), 2*maxText)
	r.scaler.Close()
	require.Contains(t, log.String(), "the API server says xxx")
	require.Less(t, log.Len(), 4*maxText)
}
