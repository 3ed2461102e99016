package demand

import (
	"errors"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/pilotlight-dev/pilotlight/internal/demandpb"
	"github.com/pilotlight-dev/pilotlight/internal/workload"
)

// States tells how a target is doing, for the answers to activators.
type States interface {
	TargetState(ref workload.Ref) *demandpb.TargetState
}

// Server serves the demand protocol from a Tracker.
type Server struct {
	demandpb.UnimplementedDemandServer
	Tracker *Tracker
	States  States
	Done    <-chan struct{} // closed at shutdown: streams then end without an error
}

// tellAll is how often an activator hears of every target. While its counts
// change it reports ten times a second, and in between only those that it holds
// requests for can matter to it: with thousands of targets the rest is most of
// the work.
const tellAll = 500 * time.Millisecond

// Report implements demandpb.DemandServer.
func (s *Server) Report(stream grpc.BidiStreamingServer[demandpb.Snapshot, demandpb.Ack]) error {
	snapshots := make(chan *demandpb.Snapshot)
	failed := make(chan error, 1)
	var told time.Time // when all targets were answered about last
	go receive(stream, snapshots, failed)
	for {
		select {
		case <-s.Done:
			return nil
		case err := <-failed:
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		case snapshot := <-snapshots:
			if snapshot.GetActivatorId() == "" || snapshot.GetBootId() == "" {
				return status.Error(codes.InvalidArgument, "snapshot without activator_id or boot_id")
			}
			now := time.Now()
			s.Tracker.Report(snapshot, now)
			all := now.Sub(told) >= tellAll
			if all {
				told = now
			}
			if err := stream.Send(s.ack(snapshot, all)); err != nil {
				return err
			}
		}
	}
}

func receive(stream grpc.BidiStreamingServer[demandpb.Snapshot, demandpb.Ack], out chan<- *demandpb.Snapshot, failed chan<- error) {
	for {
		snapshot, err := stream.Recv()
		if err != nil {
			failed <- err
			return
		}
		select {
		case out <- snapshot:
		case <-stream.Context().Done():
			return
		}
	}
}

// ack answers about all targets of a snapshot, or only those with held requests.
func (s *Server) ack(snapshot *demandpb.Snapshot, all bool) *demandpb.Ack {
	ack := &demandpb.Ack{Seq: snapshot.GetSeq()}
	if s.States == nil {
		return ack
	}
	for _, d := range snapshot.GetTargets() {
		if !all && d.GetHeld() == 0 {
			continue
		}
		ref := workload.Ref{Namespace: d.GetNamespace(), Name: d.GetScaledObject()}
		ack.Targets = append(ack.Targets, s.States.TargetState(ref))
	}
	return ack
}
