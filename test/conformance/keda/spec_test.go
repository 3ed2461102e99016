package kedaconformance

import (
	"context"
	"regexp"
	"testing"

	pb "github.com/kedacore/keda/v2/pkg/scalers/externalscaler"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/pilotlight-dev/pilotlight/internal/workload/static"
)

// checks are those that a client alone can prove.
var checks = map[string]func(*testing.T){
	"01_SpecNeedsNothingButTheMetadata": specNeedsNothingButTheMetadata,
	"02_SpecWhileEverythingIsDown":      specWhileEverythingIsDown,
	"03_OneValueForTheNameAsked":        oneValueForTheNameAsked,
	"04_ValuesAreFiniteFloats":          valuesAreFiniteFloats,
	"05_NothingFinerThanAThousandth":    nothingFinerThanAThousandth,
	"06_ActivityAgreesWithTheValue":     activityAgreesWithTheValue,
	"07_CallsAreBounded":                callsAreBounded,
	"08_AskingChangesNothing":           askingChangesNothing,
	"09_StateByTheWholeTrigger":         stateByTheWholeTrigger,
	"10_BadMetadataIsRefusedByName":     badMetadataIsRefusedByName,
	"11_FailureIsNeverZero":             failureIsNeverZero,
	"12_StreamPushesEdges":              streamPushesEdges,
	"13_CancelledStreamsLeaveNothing":   cancelledStreamsLeaveNothing,
	"14_ShutdownEndsStreamsCleanly":     shutdownEndsStreamsCleanly,
	"16_AThousandStreams":               aThousandStreams,
	"18_StreamedSpecIsTheSpec":          streamedSpecIsTheSpec,
	"22_PlainTLSAndMutualTLS":           plainTLSAndMutualTLS,
	"25_HealthAndReadiness":             healthAndReadiness,
}

func TestConformance(t *testing.T) {
	for name, check := range checks {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			check(t)
		})
	}
}

// 1: for a ScaledObject that nobody has, without an activator: the same spec
// again and again, with a name that survives KEDA's way to the HPA.
func specNeedsNothingButTheMetadata(t *testing.T) {
	s := serve(t, nil, nil)
	so := object(map[string]string{"targetRequests": "2.5"})
	so.Name = "nobody-has-made-it"
	var first string
	for range 50 {
		spec, err := s.GetMetricSpec(t.Context(), so)
		require.NoError(t, err)
		names := map[string]bool{}
		for _, m := range spec.GetMetricSpecs() {
			require.Regexp(t, regexp.MustCompile(`^[a-z0-9.-]+$`), m.GetMetricName(), "it becomes part of a URL, in lower case")
			require.Greater(t, m.GetTargetSizeFloat(), 0.0)
			require.False(t, names[m.GetMetricName()], "KEDA refuses a name that is given twice")
			names[m.GetMetricName()] = true
		}
		require.Len(t, names, 1)
		if first == "" {
			first = spec.String()
		}
		require.Equal(t, first, spec.String())
	}
	_, debug := s.get("/debug/targets")
	require.JSONEq(t, "[]", debug, "nothing is looked at for a spec")
}

// 2: at zero replicas, with a dead engine, and without demand.
func specWhileEverythingIsDown(t *testing.T) {
	dead := newEngine(t, "0")
	dead.Close()
	s := serve(t, nil, []static.Target{llama()})
	for _, targets := range [][]static.Target{{llama()}, {llama(dead)}, {}} {
		s.targets(targets...)
		_, _ = s.value(object(nil)) // whatever it is
		spec, err := s.GetMetricSpec(t.Context(), object(nil))
		require.NoError(t, err)
		require.Len(t, spec.GetMetricSpecs(), 1)
		require.InDelta(t, 4, spec.GetMetricSpecs()[0].GetTargetSizeFloat(), 0)
	}
}

// 3: KEDA gives every value it gets the name it has asked for, and adds them up.
func oneValueForTheNameAsked(t *testing.T) {
	s := serve(t, nil, []static.Target{llama(newEngine(t, "6"))})
	s.report()
	so := object(nil)
	s.becomes(so, 8, "6 requests, 4 for each: 2 replicas")
	for _, name := range []string{s.name(so), "s0-" + s.name(so), "s7-" + s.name(so)} {
		resp, err := s.GetMetrics(t.Context(), &pb.GetMetricsRequest{ScaledObjectRef: so, MetricName: name})
		require.NoError(t, err, name)
		require.Len(t, resp.GetMetricValues(), 1)
		require.Equal(t, name, resp.GetMetricValues()[0].GetMetricName())
	}
	for _, name := range []string{"", "another", s.name(so) + "-2"} {
		_, err := s.GetMetrics(t.Context(), &pb.GetMetricsRequest{ScaledObjectRef: so, MetricName: name})
		require.Equal(t, codes.InvalidArgument, status.Code(err), "%q", name)
	}
}

// 5: KEDA passes values on with three decimals.
func nothingFinerThanAThousandth(t *testing.T) {
	s := serve(t, nil, []static.Target{llama(newEngine(t, "1"))})
	s.report()
	for _, target := range []string{"0.0005", "1.23456", "0", "-1", "NaN", "Inf"} {
		_, err := s.GetMetricSpec(t.Context(), object(map[string]string{"targetRequests": target}))
		require.Equal(t, codes.InvalidArgument, status.Code(err), target)
		require.ErrorContains(t, err, "targetRequests", target)
	}
	s.becomes(object(map[string]string{"targetRequests": "0.125"}), 1, "8 replicas at most, times 0.125")
	s.becomes(object(map[string]string{"targetRequests": "2.5"}), 2.5, "one replica")
}

// calls are the five, which all read the metadata.
func calls(s *server, so *pb.ScaledObjectRef) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"IsActive":      func(ctx context.Context) error { _, err := s.IsActive(ctx, so); return err },
		"GetMetricSpec": func(ctx context.Context) error { _, err := s.GetMetricSpec(ctx, so); return err },
		"GetMetrics": func(ctx context.Context) error {
			_, err := s.GetMetrics(ctx, &pb.GetMetricsRequest{ScaledObjectRef: so, MetricName: "s0-pilotlight-requests"})
			return err
		},
		"StreamIsActive": func(ctx context.Context) error {
			stream, err := s.StreamIsActive(ctx, so)
			if err == nil {
				_, err = stream.Recv()
			}
			return err
		},
		"StreamMetricSpec": func(ctx context.Context) error {
			stream, err := s.StreamMetricSpec(ctx, so)
			if err == nil {
				_, err = stream.Recv()
			}
			return err
		},
	}
}

// 10: KEDA sends all of the trigger's metadata, its own keys included.
func badMetadataIsRefusedByName(t *testing.T) {
	s := serve(t, nil, []static.Target{llama()})
	s.report()
	keda := object(map[string]string{
		"enableTLS": "true", "unsafeSsl": "false", "caCert": "c", "tlsClientCert": "c", "tlsClientKey": "k", "metadata": "",
		"targetRequests": "", "targetRequestsFromEnv": "4",
	})
	bad := object(map[string]string{"treshold": "5", "engine": "ollama"})
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	for name, call := range calls(s, keda) {
		require.NoError(t, call(ctx), name)
	}
	for name, call := range calls(s, bad) {
		err := call(ctx)
		require.Equal(t, codes.InvalidArgument, status.Code(err), "%s: never inactive, never zero", name)
		require.ErrorContains(t, err, "treshold", name)
		require.ErrorContains(t, err, "ollama", "%s: all faults at once", name)
	}
}

// 18: the specs come at once, are never empty, and are those of GetMetricSpec.
// KEDA before 2.21 has no such call, and goes without: nothing else depends on it.
func streamedSpecIsTheSpec(t *testing.T) {
	s := serve(t, nil, []static.Target{llama()})
	s.report()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	stream, err := s.StreamMetricSpec(ctx, object(nil))
	require.NoError(t, err)
	streamed, err := stream.Recv()
	require.NoError(t, err)
	spec, err := s.GetMetricSpec(ctx, object(nil))
	require.NoError(t, err)
	require.NotEmpty(t, spec.GetMetricSpecs())
	require.Equal(t, spec.String(), streamed.String())

	older := serve(t, nil, []static.Target{llama(newEngine(t, "6"))})
	older.report()
	older.becomes(object(nil), 8, "without the stream")
	active, err := older.IsActive(ctx, object(nil))
	require.NoError(t, err)
	require.True(t, active.GetResult())
}
