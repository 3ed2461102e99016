package demand

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/pilotlight-dev/pilotlight/internal/demandpb"
	"github.com/pilotlight-dev/pilotlight/internal/workload"
)

type ready struct{}

func (ready) TargetState(ref workload.Ref) *demandpb.TargetState {
	return &demandpb.TargetState{Namespace: ref.Namespace, ScaledObject: ref.Name, State: demandpb.State_STATE_READY}
}

// The first answer is about every target. Of a flood of snapshots each is
// answered about what is held, and only now and then about all.
func TestAnswers(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	srv, done := grpc.NewServer(), make(chan struct{})
	demandpb.RegisterDemandServer(srv, &Server{Tracker: NewTracker(), States: ready{}, Done: done})
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	t.Cleanup(func() { srv.Stop(); require.NoError(t, <-served) })
	conn, err := grpc.NewClient("passthrough:///"+l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close()) })
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	stream, err := demandpb.NewDemandClient(conn).Report(ctx)
	require.NoError(t, err)
	seq := uint64(0)
	answered := func() []string {
		seq++
		require.NoError(t, stream.Send(&demandpb.Snapshot{ActivatorId: "a", BootId: "b", Seq: seq, Targets: []*demandpb.TargetDemand{
			{Namespace: "ai", ScaledObject: "held", Held: 1}, {Namespace: "ai", ScaledObject: "busy", InFlight: 1}, {Namespace: "ai", ScaledObject: "idle"},
		}}))
		ack, err := stream.Recv()
		require.NoError(t, err)
		require.Equal(t, seq, ack.GetSeq())
		var names []string
		for _, s := range ack.GetTargets() {
			require.Equal(t, demandpb.State_STATE_READY, s.GetState())
			names = append(names, s.GetScaledObject())
		}
		return names
	}
	all := []string{"held", "busy", "idle"}
	require.Equal(t, all, answered())
	began, full, flood := time.Now(), 0, 0
	for ; time.Since(began) < 2*tellAll || full == 0; flood++ {
		if names := answered(); len(names) == len(all) {
			full++
		} else {
			require.Equal(t, []string{"held"}, names)
		}
	}
	require.LessOrEqual(t, full, int(time.Since(began)/tellAll)+1, "of %d answers", flood)
	close(done)
	_, err = stream.Recv()
	require.Error(t, err, "the stream ends")
}
