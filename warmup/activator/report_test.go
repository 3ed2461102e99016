package activator

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/pilotlight-dev/pilotlight/internal/demandpb"
)

// ledger is a scaler that writes down what it is told.
type ledger struct {
	demandpb.UnimplementedDemandServer
	got   chan *demandpb.Snapshot
	state demandpb.State
}

func (l *ledger) Report(stream grpc.BidiStreamingServer[demandpb.Snapshot, demandpb.Ack]) error {
	for {
		s, err := stream.Recv()
		if err != nil {
			return nil //nolint:nilerr // the activator has hung up
		}
		l.got <- s
		ack := &demandpb.Ack{Seq: s.GetSeq(), Targets: []*demandpb.TargetState{{Namespace: "ai", ScaledObject: "llama", State: l.state, Reason: "image"}}}
		if err := stream.Send(ack); err != nil {
			return err
		}
	}
}

// dial serves the ledger and returns a connection to it.
func (l *ledger) dial(t *testing.T) *grpc.ClientConn {
	t.Helper()
	var lc net.ListenConfig
	lis, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	srv := grpc.NewServer()
	demandpb.RegisterDemandServer(srv, l)
	go func() { _ = srv.Serve(lis) }()
	t.Cleanup(srv.Stop)
	conn, err := grpc.NewClient(lis.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func TestReporter(t *testing.T) {
	l := &ledger{got: make(chan *demandpb.Snapshot, 100)}
	conn := l.dial(t)
	r := newRig(t, Options{})
	r.set(t, target(llama, nil))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		Reporter{ID: "a-0", Conn: conn}.Run(ctx, r.Activator)
		close(ended)
	}()
	first := <-l.got
	require.Equal(t, "a-0", first.GetActivatorId())
	require.NotEmpty(t, first.GetBootId())
	require.Zero(t, first.GetTargets()[0].GetHeld())

	// As a rule: the machine may be busy now and then.
	reported := func(held bool) (last *demandpb.Snapshot) {
		for last = range l.got {
			if (last.GetTargets()[0].GetHeld() > 0) == held {
				break
			}
		}
		return last
	}
	var took []time.Duration
	for range 20 {
		one, giveUp := context.WithCancel(t.Context())
		began := time.Now()
		gone := r.async(one)
		require.Greater(t, reported(true).GetSeq(), first.GetSeq())
		took = append(took, time.Since(began))
		giveUp()
		require.Error(t, (<-gone).err)
		reported(false)
	}
	slices.Sort(took)
	require.Less(t, took[len(took)/2], 200*time.Millisecond, "an edge does not wait for the next second")
	answer := r.async(t.Context())
	reported(true)

	r.set(t, target(llama, nil, podAt(t, "a", serve(t, &echo{}))))
	require.NoError(t, (<-answer).err)
	cancel()
	<-ended
	require.Eventually(t, func() bool { // the other side reads it a moment later
		for len(l.got) > 0 {
			if len((<-l.got).GetTargets()) == 0 {
				return true
			}
		}
		return false
	}, 30*time.Second, time.Millisecond, "a goodbye: nothing is held here any more")
}

func TestReporterLearnsOfFailedStarts(t *testing.T) {
	l := &ledger{got: make(chan *demandpb.Snapshot, 100), state: demandpb.State_STATE_FAILED}
	conn := l.dial(t)
	r := newRig(t, Options{})
	r.set(t, target(llama, nil))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		Reporter{ID: "a-0", Conn: conn}.Run(ctx, r.Activator)
		close(ended)
	}()
	got := <-r.async(t.Context())
	require.Equal(t, 503, got.status)
	require.Contains(t, got.body, "image")
	cancel()
	<-ended
}

// refusing fails each time with another text, as an address in it brings about.
type refusing struct {
	grpc.ClientConnInterface
	tries int
}

func (r *refusing) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	r.tries++
	return nil, fmt.Errorf("read tcp 10.0.0.1:%d: reset", r.tries)
}

// Each reason is said, but an outage does not fill the log.
func TestReporterSaysWhyNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, err := New(Options{Source: &world{}})
		require.NoError(t, err)
		var log bytes.Buffer
		conn := &refusing{}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		Reporter{ID: "a-0", Conn: conn, Logger: slog.New(slog.NewTextHandler(&log, nil))}.Run(ctx, a)
		require.Greater(t, conn.tries, 20)
		require.Contains(t, log.String(), "10.0.0.1:1: reset", "at once")
		lines := strings.Count(log.String(), "the scaler does not hear from us")
		require.GreaterOrEqual(t, lines, 4)
		require.LessOrEqual(t, lines, 7)
	})
}
