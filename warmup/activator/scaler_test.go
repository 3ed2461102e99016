package activator

import (
	"context"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/pilotlight-dev/pilotlight/internal/demandpb"
	"github.com/pilotlight-dev/pilotlight/warmup/activator/line"
)

const scalerAt = "scaler:6001"

// council is a scaler that adds up what it hears.
type council struct {
	demandpb.UnimplementedDemandServer

	mu   sync.Mutex
	held map[string]uint64
	deaf int // streams that are taken and never answered
}

func (c *council) Report(stream grpc.BidiStreamingServer[demandpb.Snapshot, demandpb.Ack]) error {
	c.mu.Lock()
	c.deaf--
	deaf := c.deaf >= 0
	c.mu.Unlock()
	for {
		s, err := stream.Recv()
		if err != nil {
			return nil //nolint:nilerr // the activator has hung up
		}
		if deaf {
			continue
		}
		c.mu.Lock()
		c.held[s.GetActivatorId()] = 0
		for _, d := range s.GetTargets() {
			c.held[s.GetActivatorId()] += d.GetHeld()
		}
		c.mu.Unlock()
		if err := stream.Send(&demandpb.Ack{Seq: s.GetSeq()}); err != nil {
			return err
		}
	}
}

func (c *council) total() (n uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, held := range c.held {
		n += held
	}
	return n
}

// scaler starts one that knows nothing yet.
func (f *fabric) scaler(t *testing.T, deaf int) (*council, func()) {
	t.Helper()
	c := &council{deaf: deaf, held: map[string]uint64{}}
	l := f.listen(scalerAt)
	srv := grpc.NewServer()
	demandpb.RegisterDemandServer(srv, c)
	go func() { _ = srv.Serve(l) }()
	stop := sync.OnceFunc(func() {
		f.mu.Lock()
		delete(f.listeners, scalerAt)
		f.mu.Unlock()
		srv.Stop()
	})
	t.Cleanup(stop)
	return c, stop
}

// report runs the town's reporter until the test ends.
func (tn *town) report(t *testing.T, id string, to *fabric) {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+scalerAt, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) { return to.dial(ctx, "tcp", addr) }),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, MaxDelay: 500 * time.Millisecond}, MinConnectTimeout: time.Second}))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		Reporter{ID: id, Conn: conn}.Run(ctx, tn.Activator)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
		_ = conn.Close()
	})
}

// Requests that came while no scaler was there, for a minute, are told to the
// next one within a second; so are those of several activators.
func TestFaultScalerDownForAMinuteAtZero(t *testing.T) {
	in(t, Options{}, func(t *testing.T, tn *town) {
		other := newTown(t, Options{})
		tn.report(t, "one", tn.fabric)
		other.report(t, "two", tn.fabric)
		tn.set(t, target(llama, nil))
		other.set(t, target(llama, nil))
		first, stop := tn.scaler(t, 0)
		time.Sleep(time.Second)
		require.Zero(t, first.total())
		stop()

		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		tn.asks(ctx, ask)
		tn.asks(ctx, ask)
		other.asks(ctx, ask)
		time.Sleep(time.Minute)
		second, _ := tn.scaler(t, 0)
		time.Sleep(time.Second)
		require.Equal(t, uint64(3), second.total(), "both replicas have said what they hold")
	})
}

// A scaler that is restarted knows the whole again within a second, and an
// edge reaches it at once.
func TestActivatorsAndARestartedScalerAgree(t *testing.T) {
	in(t, Options{}, func(t *testing.T, tn *town) {
		other := newTown(t, Options{})
		tn.report(t, "one", tn.fabric)
		other.report(t, "two", tn.fabric)
		tn.set(t, target(llama, nil))
		other.set(t, target(llama, nil))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		tn.asks(ctx, ask)
		for range 5 {
			c, stop := tn.scaler(t, 0)
			time.Sleep(time.Second)
			require.Equal(t, uint64(1), c.total())
			stop()
		}
		c, _ := tn.scaler(t, 0)
		time.Sleep(time.Second)
		other.asks(ctx, ask)
		time.Sleep(time.Millisecond)
		require.Equal(t, uint64(2), c.total(), "the first request of a replica does not wait for the next report")
	})
}

// A stream on which nothing comes back is left for a new one.
func TestASilentStreamIsLeft(t *testing.T) {
	in(t, Options{}, func(t *testing.T, tn *town) {
		tn.set(t, target(llama, nil))
		c, _ := tn.scaler(t, 2)
		tn.report(t, "one", tn.fabric)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		tn.asks(ctx, ask)
		time.Sleep(silence)
		require.Zero(t, c.total())
		time.Sleep(2 * silence)
		require.Equal(t, uint64(1), c.total())
		require.NotZero(t, tn.reported.Load())
	})
}

// One sleeping model's flood fills its own line and nobody else's, up to the
// bounds of all together.
func TestFloodOfOneModelLeavesOthersTheirRoom(t *testing.T) {
	in(t, Options{MaxHeld: 20, MaxHeldTotal: 30}, func(t *testing.T, tn *town) {
		mixtral := llama
		mixtral.Name = "mixtral"
		tn.set(t, target(llama, nil), target(mixtral, nil))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var llamas []<-chan reply
		for range 25 {
			llamas = append(llamas, tn.asks(ctx, ask))
		}
		synctest.Wait()
		require.Equal(t, uint64(20), tn.Snapshot()[0].GetHeld())
		refused := 0
		for _, c := range llamas {
			select {
			case got := <-c:
				require.Equal(t, 429, got.status)
				refused++
			default:
			}
		}
		require.Equal(t, 5, refused)
		for range 10 {
			tn.asks(ctx, `{"model":"mixtral"}`)
		}
		synctest.Wait()
		require.Equal(t, uint64(10), tn.Snapshot()[1].GetHeld())
		got := tn.ask(ctx, `{"model":"mixtral"}`)
		require.Equal(t, 503, got.status)
		require.Contains(t, got.body, "overloaded")
	})
}

func TestPriorityValues(t *testing.T) {
	for value, want := range map[string]int{"": 0, "normal": 0, "HIGH": 1, "low": -1, "3": 3, "-2": -2, "99": line.Highest, "-99": line.Lowest} {
		got, err := priority(value)
		require.NoError(t, err)
		require.Equal(t, want, got, value)
	}
	for _, bad := range []string{"urgent", "1.5", " "} {
		_, err := priority(bad)
		require.ErrorIs(t, err, errPriority)
	}
}
