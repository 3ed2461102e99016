package demand

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/internal/demandpb"
	"github.com/pilotlight-dev/pilotlight/internal/workload"
	"github.com/pilotlight-dev/pilotlight/scaler/policy"
)

var (
	epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	llama = workload.Ref{Namespace: "ai", Name: "llama"}
)

func snapshot(id string, seq, held, inFlight uint64) *demandpb.Snapshot {
	return &demandpb.Snapshot{ActivatorId: id, BootId: id + "-boot", Seq: seq, Targets: []*demandpb.TargetDemand{
		{Namespace: "ai", ScaledObject: "llama", Held: held, InFlight: inFlight},
	}}
}

func TestDemandAddsUpReplicas(t *testing.T) {
	tr := NewTracker()
	require.Equal(t, policy.Demand{}, tr.Demand(llama, epoch), "nobody has reported: unknown")
	tr.Report(snapshot("a", 1, 2, 3), epoch)
	tr.Report(snapshot("b", 1, 1, 0), epoch)
	require.Equal(t, policy.Demand{Known: true, Held: 3, InFlight: 3}, tr.Demand(llama, epoch))
	require.Equal(t, policy.Demand{Known: true}, tr.Demand(workload.Ref{Namespace: "ai", Name: "other"}, epoch))
	tr.Report(&demandpb.Snapshot{ActivatorId: "a", BootId: "a-boot", Seq: 2}, epoch)
	require.Equal(t, policy.Demand{Known: true, Held: 1}, tr.Demand(llama, epoch), "a target that is left out has no request")
}

func TestSilentActivators(t *testing.T) {
	tr := NewTracker()
	tr.Report(snapshot("a", 1, 2, 3), epoch)
	require.Equal(t, policy.Demand{Known: true, Held: 2, InFlight: 3}, tr.Demand(llama, epoch.Add(3*time.Second)))
	require.Equal(t, policy.Demand{Held: 2, InFlight: 3}, tr.Demand(llama, epoch.Add(4*time.Second)), "silent: unknown")
	later := epoch.Add(11 * time.Second)
	tr.Report(snapshot("b", 1, 0, 0), later)
	require.Equal(t, policy.Demand{Known: true, InFlight: 3}, tr.Demand(llama, later), "its streams may go on for a while")
	later = epoch.Add(61 * time.Second)
	tr.Report(snapshot("b", 2, 0, 0), later)
	require.Equal(t, policy.Demand{Known: true}, tr.Demand(llama, later), "but not for ever")
}

func TestOldSnapshotsAreIgnored(t *testing.T) {
	tr := NewTracker()
	tr.Report(snapshot("a", 7, 0, 0), epoch)
	tr.Report(snapshot("a", 6, 9, 9), epoch)
	require.Zero(t, tr.Demand(llama, epoch).Held)
	restarted := snapshot("a", 1, 4, 0)
	restarted.BootId = "second"
	tr.Report(restarted, epoch)
	require.InDelta(t, 4, tr.Demand(llama, epoch).Held, 0, "a restarted activator counts from one again")
}

func TestTrafficCountsAcrossRestarts(t *testing.T) {
	tr := NewTracker()
	report := func(id, boot string, seq, arrivals, completed uint64, seconds float64) {
		tr.Report(&demandpb.Snapshot{ActivatorId: id, BootId: boot, Seq: seq, Targets: []*demandpb.TargetDemand{
			{Namespace: "ai", ScaledObject: "llama", ArrivalsTotal: arrivals, CompletedTotal: completed, ServiceSecondsTotal: seconds},
		}}, epoch)
	}
	require.False(t, tr.Traffic(llama).Known)
	report("a", "1", 1, 100, 90, 500)
	require.Equal(t, policy.Traffic{Known: true}, tr.Traffic(llama), "what was counted before we listened is not traffic now")
	report("a", "1", 2, 110, 95, 530)
	report("b", "1", 1, 7, 7, 7)
	report("b", "1", 2, 8, 8, 9)
	require.Equal(t, policy.Traffic{Known: true, Arrivals: 11, Completions: 6, ServiceSeconds: 32}, tr.Traffic(llama))
	report("a", "2", 1, 3, 1, 4)
	require.Equal(t, policy.Traffic{Known: true, Arrivals: 14, Completions: 7, ServiceSeconds: 36}, tr.Traffic(llama), "a restarted activator counts from zero")
}

// A request that moves from the activator to an engine between two snapshots
// is seen in one place only.
func TestSinceWaitsForNews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := NewTracker()
		now := time.Now()
		tr.Report(snapshot("a", 1, 1, 0), now.Add(-50*time.Millisecond))
		require.InDelta(t, 1, tr.Since(t.Context(), llama, time.Time{}).Held, 0, "nothing was read: what is known will do")
		go func() {
			time.Sleep(20 * time.Millisecond)
			tr.Report(snapshot("a", 2, 0, 1), time.Now())
		}()
		d := tr.Since(t.Context(), llama, now)
		require.Equal(t, policy.Demand{Known: true, InFlight: 1}, d)

		tr.Report(snapshot("a", 3, 2, 1), now)
		began := time.Now()
		d = tr.Since(t.Context(), llama, began)
		require.InDelta(t, 2, d.Held, 0, "an activator whose counts stand still need not report")
		require.Equal(t, freshWithin, time.Since(began))
	})
}

func TestWakeOnEdgeOnly(t *testing.T) {
	tr := NewTracker()
	c := make(chan struct{}, 1)
	stop := tr.Wake(llama, c)
	woken := func() bool {
		select {
		case <-c:
			return true
		default:
			return false
		}
	}
	tr.Report(snapshot("a", 1, 0, 5), epoch)
	require.False(t, woken(), "in flight is not held")
	tr.Report(snapshot("a", 2, 1, 5), epoch)
	require.True(t, woken())
	tr.Report(snapshot("a", 3, 2, 5), epoch)
	require.False(t, woken(), "already holding")
	tr.Report(snapshot("b", 1, 1, 0), epoch)
	require.True(t, woken(), "another replica starts to hold")
	stop()
	tr.Report(snapshot("a", 4, 0, 0), epoch)
	tr.Report(snapshot("a", 5, 1, 0), epoch)
	require.False(t, woken())
	require.Empty(t, tr.wakers)
}
