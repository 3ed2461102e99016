package e2e

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// logged counts the lines of a program's log that hold a text.
func (s *scenario) logged(path, text string) int {
	s.t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(s.t, err)
	return strings.Count(string(data), text)
}

// lives demands that the scaler has not ended and has said something once.
func (s *scenario) lives(text string) {
	s.t.Helper()
	select {
	case <-s.scaler.Done():
		require.Fail(s.t, "the scaler has ended", s.scaler.Tail())
	default:
	}
	require.Equal(s.t, 1, s.logged(s.scaler.Log, text), "said once: %s", s.scaler.Tail())
}

func (s *scenario) deniedMetric(resource string) {
	s.t.Helper()
	want := fmt.Sprintf("pilotlight_scaler_denied{namespace=%q,resource=%q} 1", s.ns, resource)
	eventually(s.t, 30*time.Second, "the metric says what is denied", func() (string, bool) {
		_, metrics := s.get("http://" + s.debug + "/metrics")
		return metrics, strings.Contains(metrics, want)
	})
}

// Without the right to read ScaledObjects nothing can be done: the programs are
// not Ready, say why, and go on as soon as they may.
func TestNoRightToScaledObjects(t *testing.T) {
	t.Parallel()
	s := play(t, options{without: "scaledobjects", noScaler: true, noScaled: true})
	s.launchScaler()
	s.launchActivator()
	probes := []string{"http://" + s.debug + "/readyz", "http://" + s.probes + "/readyz"}
	for _, probe := range probes {
		eventually(t, 60*time.Second, "the probe says what is missing", func() (string, bool) {
			status, body := s.get(probe)
			return body, status == http.StatusServiceUnavailable && strings.Contains(body, "forbidden") && strings.Contains(body, "scaledobjects")
		})
	}
	time.Sleep(10 * time.Second) // they try on
	s.lives("a right is missing")
	require.Equal(t, 1, s.logged(s.activator.Log, "a right is missing"), s.activator.Tail())
	s.deniedMetric("scaledobjects")
	s.giveBack()
	for _, probe := range probes {
		eventually(t, 2*time.Minute, "the program is ready", func() (string, bool) {
			status, body := s.get(probe)
			return body, status == http.StatusOK
		})
	}
	s.scaledObject(options{})
	s.awaitScaledObject()
	s.good(s.ask(t.Context(), 5))
	s.await(0, 90*time.Second)
}

// Without the right to read pods, or the scale of the target, KEDA gets an error
// that says so, and leaves the replicas as they are.
func TestNoRightToPodsOrScale(t *testing.T) {
	t.Parallel()
	for resource, denied := range map[string]string{"pods": "pods", "*/scale": "deployments.apps/scale"} {
		t.Run(strings.TrimPrefix(resource, "*/"), func(t *testing.T) {
			t.Parallel()
			s := play(t, options{without: resource, noScaled: true, replicas: 1})
			s.scaledObject(options{spec: patient(nil)})
			eventually(t, 60*time.Second, "the target's error says what is missing", func() (string, bool) {
				d := s.decision()
				return fmt.Sprintf("%+v", d), d != nil && strings.Contains(d.Error, "forbidden") && d.Replicas == nil
			})
			s.steady(1, 15*time.Second, "unknown is not idle")
			s.lives("a right is missing")
			s.deniedMetric(denied)
			s.giveBack()
			s.awaitScaledObjectWithin(2 * time.Minute)
			s.good(s.ask(t.Context(), 5))
		})
	}
}

// Without ConfigMaps nothing is remembered, without Events nothing is written on
// the ScaledObject; both are said once, and the model is served all the same.
func TestNoRightToRemember(t *testing.T) {
	t.Parallel()
	s := play(t, options{without: "configmaps"})
	s.good(s.ask(t.Context(), 5))
	s.await(0, 90*time.Second)
	s.lives("what was learned before could not be reached")
}

func TestNoRightToEvents(t *testing.T) {
	t.Parallel()
	s := play(t, options{without: "events", engine: map[string]string{"SIM_HANG_START": "1"}, trigger: map[string]string{"startDeadline": "10s"}})
	require.Equal(t, http.StatusServiceUnavailable, s.ask(t.Context(), 5).status)
	s.await(0, 90*time.Second)
	eventually(t, 30*time.Second, "it says that it may not", func() (string, bool) {
		return s.scaler.Tail(), s.logged(s.scaler.Log, "events cannot be written") > 0
	})
	s.lives("events cannot be written")
}

// Without Leases a replica stands by, however long, and leads when it may.
func TestNoRightToLeases(t *testing.T) {
	t.Parallel()
	s := play(t, options{without: "leases", noScaler: true, noScaled: true, noDeployment: true})
	r := s.replicaOf("scaler-a")
	s.scaler = r.process
	time.Sleep(10 * time.Second) // tries on
	s.lives("a right is missing")
	require.Zero(t, s.logged(r.process.Log, "Error retrieving lease lock"), "nor does client-go say it every second")
	require.Nil(t, s.leader(r))
	s.ready("http://"+r.debug+"/readyz", r.process) // a standby is
	s.giveBack()
	require.Equal(t, r, s.awaitLeader(r))
}
