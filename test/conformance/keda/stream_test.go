package kedaconformance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	pb "github.com/kedacore/keda/v2/pkg/scalers/externalscaler"
	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/internal/workload/static"
)

// pushes collects what a stream brings, until it ends.
type pushes struct {
	mu   sync.Mutex
	got  []bool
	at   []time.Time
	err  error
	done chan struct{}
}

// listen opens a stream as KEDA does, on the target's trigger.
func (s *server) listen(ctx context.Context, so *pb.ScaledObjectRef) *pushes {
	s.t.Helper()
	stream, err := s.StreamIsActive(ctx, so)
	require.NoError(s.t, err)
	p := &pushes{done: make(chan struct{})}
	go func() {
		defer close(p.done)
		for {
			m, err := stream.Recv()
			p.mu.Lock()
			if err != nil {
				p.err = err
				p.mu.Unlock()
				return
			}
			p.got, p.at = append(p.got, m.GetResult()), append(p.at, time.Now())
			p.mu.Unlock()
		}
	}()
	return p
}

func (p *pushes) all() []bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]bool{}, p.got...)
}

// 12: the present state when it is opened, `true` when it becomes active, now and
// then again while KEDA has not woken it (it may have dropped the first), and
// nothing at all while nothing changes.
func streamPushesEdges(t *testing.T) {
	s := serve(t, nil, []static.Target{llama()})
	a := s.report()
	s.becomes(object(nil), 0, "nobody asks")
	opened := time.Now()
	p := s.listen(t.Context(), object(nil))
	require.Eventually(t, func() bool { return len(p.all()) == 1 }, soon, time.Millisecond)
	require.Equal(t, []bool{false}, p.all(), "at once, as it is")
	time.Sleep(time.Second) // ten looks
	require.Equal(t, []bool{false}, p.all(), "looks alone are no news")

	a.hold(1)
	require.Eventually(t, func() bool { return len(p.all()) == 2 }, soon, time.Millisecond)
	late := s.listen(t.Context(), object(nil))
	require.Eventually(t, func() bool { return len(late.all()) == 1 }, soon, time.Millisecond)
	require.Equal(t, []bool{true}, late.all(), "who opens it later hears of it, too")

	require.Eventually(t, func() bool { return len(p.all()) == 3 }, soon, 10*time.Millisecond, "again, while it is still at zero")
	require.Equal(t, []bool{false, true, true}, p.all())
	p.mu.Lock()
	again := p.at[2].Sub(opened)
	p.mu.Unlock()
	t.Logf("said again %v after the stream was opened", again.Round(time.Millisecond))
	require.GreaterOrEqual(t, again, 9*time.Second, "every ten seconds: each costs KEDA a status update")

	e := newEngine(t, "1")
	s.targets(llama(e)) // it is awake now
	s.becomes(object(nil), 4, "one request")
	n := len(p.all())
	time.Sleep(2 * time.Second)
	require.LessOrEqual(t, len(p.all()), n+1, "nothing more once a replica is there")
}

var goroutines = regexp.MustCompile(`(?m)^go_goroutines (\d+)`)

func (s *server) goroutines() int {
	_, metrics := s.get("/metrics")
	m := goroutines.FindStringSubmatch(metrics)
	require.NotNil(s.t, m, metrics)
	n, err := strconv.Atoi(m[1])
	require.NoError(s.t, err)
	return n
}

// 13: a ScaledObject that is paused or deleted is a stream that is cancelled.
func cancelledStreamsLeaveNothing(t *testing.T) {
	s := serve(t, nil, []static.Target{llama()})
	s.report()
	s.becomes(object(nil), 0, "nobody asks")
	before := s.goroutines()
	ctx, cancel := context.WithCancel(t.Context())
	var all []*pushes
	for range 200 {
		all = append(all, s.listen(ctx, object(nil)))
	}
	require.Eventually(t, func() bool { return s.goroutines() >= before+200 }, soon, 10*time.Millisecond, "they are open")
	cancel()
	for _, p := range all {
		<-p.done
	}
	require.Eventually(t, func() bool { return s.goroutines() < before+20 }, soon, 10*time.Millisecond, "and nothing of them is left")
}

// 14: EOF makes KEDA come again in two seconds; an error would make it climb its
// back-off, up to a minute.
func shutdownEndsStreamsCleanly(t *testing.T) {
	s := serve(t, nil, []static.Target{llama()})
	s.report()
	s.becomes(object(nil), 0, "nobody asks")
	p := s.listen(t.Context(), object(nil))
	specs, err := s.StreamMetricSpec(t.Context(), object(nil))
	require.NoError(t, err)
	_, err = specs.Recv()
	require.NoError(t, err)
	require.Eventually(t, func() bool { return len(p.all()) == 1 }, soon, time.Millisecond)
	require.NoError(t, s.Signal(syscall.SIGTERM))
	select {
	case <-p.done:
	case <-time.After(soon):
		require.Fail(t, "the stream has not ended")
	}
	require.ErrorIs(t, p.err, io.EOF)
	_, err = specs.Recv()
	require.ErrorIs(t, err, io.EOF)
	select {
	case <-s.Done():
	case <-time.After(soon):
		require.Fail(t, "the scaler has not ended")
	}
	require.Zero(t, s.ExitCode())
}

// 16: KEDA has one connection for all ScaledObjects with the same address.
func aThousandStreams(t *testing.T) {
	const many = 1000
	targets := make([]static.Target, many)
	for i := range targets {
		targets[i] = target("ai", fmt.Sprintf("model-%d", i))
	}
	s := serve(t, nil, targets, "--interval", "5s")
	a := s.report()
	a.mu.Lock()
	for _, one := range targets {
		a.held["ai/"+one.Name] = 0
	}
	a.mu.Unlock()
	ctx, cancel := context.WithTimeout(t.Context(), 2*soon)
	defer cancel()
	began := time.Now()
	var open sync.WaitGroup
	errs := make(chan error, many)
	for i := range many {
		open.Go(func() {
			so := object(nil)
			so.Name = fmt.Sprintf("model-%d", i)
			stream, err := s.StreamIsActive(ctx, so)
			if err != nil {
				errs <- err
				return
			}
			if m, err := stream.Recv(); err != nil || m.GetResult() {
				errs <- errors.Join(err, fmt.Errorf("%s: %v", so.GetName(), m))
			}
		})
	}
	open.Wait()
	t.Logf("%d streams on one connection have said their state within %v", many, time.Since(began).Round(time.Millisecond))
	require.Empty(t, errs)
	require.GreaterOrEqual(t, s.goroutines(), many, "all of them are open at a time")
	_, err := s.IsActive(ctx, object(map[string]string{"modelName": "model-1"}))
	require.Error(t, err, "and other calls are answered beside them")
}
