package activator

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/pilotlight-dev/pilotlight/internal/demandpb"
)

const (
	// reportEvery is the longest time between two snapshots: by its absence the
	// scaler notices that an activator is gone.
	reportEvery = time.Second

	// reportChanges is the shortest time between two snapshots of changing
	// counts. The scaler adds what is held here to what it has just read from
	// the engines; a request that moves in between would count twice until the
	// next snapshot, and a burst would be ordered twice.
	reportChanges = 100 * time.Millisecond
	redialAfter   = 200 * time.Millisecond
	goodbye       = time.Second // how long the last snapshot may take to arrive

	// silence is how long the scaler may leave snapshots without an answer. A
	// connection that swallows everything looks like that.
	silence = 5 * time.Second

	// sayAgain is the least time between two reasons in the log: some name a port
	// that is another one at each try.
	sayAgain = 10 * time.Second
)

// Reporter tells one scaler what the activator holds.
type Reporter struct {
	ID     string // stable name of this replica, its pod name
	Conn   grpc.ClientConnInterface
	Logger *slog.Logger // nil: discard
}

// errSilent ends a stream on which nothing comes back.
var errSilent = errors.New("the scaler does not answer")

// Run reports once a second, ten times a second while counts change, and at
// once when a target begins to hold requests, until ctx ends; then it sends
// one last, empty snapshot. A stream that breaks, or on which nothing comes
// back, is opened again; the first snapshot on it is whole, so a scaler that
// has just started knows at once what is held.
func (r Reporter) Run(ctx context.Context, a *Activator) {
	if r.Logger == nil {
		r.Logger = slog.New(slog.DiscardHandler)
	}
	boot := rand.Text()
	var seq uint64
	said, saidAt := "", time.Time{} // the reason why it fails, and when it was logged
	for ctx.Err() == nil {
		err := r.stream(ctx, a, boot, &seq)
		switch {
		case err == nil:
			said = ""
		case ctx.Err() == nil && err.Error() != said && (said == "" || time.Since(saidAt) >= sayAgain):
			said, saidAt = err.Error(), time.Now()
			r.Logger.Warn("the scaler does not hear from us", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(redialAfter):
		}
	}
}

func (r Reporter) stream(ctx context.Context, a *Activator, boot string, seq *uint64) error {
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	stream, err := demandpb.NewDemandClient(r.Conn).Report(life)
	if err != nil {
		return err
	}
	acks := make(chan error, 1)
	var heard atomic.Int64 // when the last answer came
	heard.Store(time.Now().UnixNano())
	go func() { acks <- listen(stream, a, &heard) }() // ends with life
	send := func(targets []*demandpb.TargetDemand) error {
		*seq++
		return stream.Send(&demandpb.Snapshot{ActivatorId: r.ID, BootId: boot, Seq: *seq, Targets: targets})
	}
	tick := time.NewTicker(reportChanges)
	defer tick.Stop()
	var sent []*demandpb.TargetDemand
	var sentAt time.Time
	for {
		now := a.Snapshot()
		if time.Since(sentAt) >= reportEvery || changed(sent, now) {
			if err := send(now); err != nil && !errors.Is(err, io.EOF) {
				return err
			}
			sent, sentAt = now, time.Now()
		}
		if time.Since(time.Unix(0, heard.Load())) > silence {
			return errSilent
		}
		select {
		case <-ctx.Done():
			err := errors.Join(send(nil), stream.CloseSend())
			select {
			case aerr := <-acks:
				return errors.Join(err, aerr)
			case <-time.After(goodbye):
				return err
			}
		case err := <-acks:
			return err
		case <-tick.C:
		case <-a.edge:
		}
	}
}

// changed reports whether any count differs. The age of the oldest hold always
// does and does not matter.
func changed(before, after []*demandpb.TargetDemand) bool {
	return !slices.EqualFunc(before, after, func(x, y *demandpb.TargetDemand) bool {
		return x.GetNamespace() == y.GetNamespace() && x.GetScaledObject() == y.GetScaledObject() &&
			x.GetHeld() == y.GetHeld() && x.GetInFlight() == y.GetInFlight() &&
			x.GetArrivalsTotal() == y.GetArrivalsTotal() && x.GetCompletedTotal() == y.GetCompletedTotal()
	})
}

func listen(stream grpc.BidiStreamingClient[demandpb.Snapshot, demandpb.Ack], a *Activator, heard *atomic.Int64) error {
	for {
		ack, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		heard.Store(time.Now().UnixNano())
		a.Learn(ack.GetTargets())
	}
}
