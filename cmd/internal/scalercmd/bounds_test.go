package scalercmd

import (
	"strings"
	"testing"

	pb "github.com/kedacore/keda/v2/pkg/scalers/externalscaler"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/pilotlight-dev/pilotlight/internal/demandpb"
)

// A message beyond what any honest peer sends is not even read.
func TestMessagesAreBounded(t *testing.T) {
	r := start(t, "--static-targets", targets(t))
	defer r.stop()
	huge := strings.Repeat("x", 3<<20)

	keda := pb.NewExternalScalerClient(dial(t, r.keda, insecure.NewCredentials()))
	_, err := keda.IsActive(t.Context(), &pb.ScaledObjectRef{Namespace: "ai", Name: "llama", ScalerMetadata: map[string]string{"caCert": huge[:maxAsked]}})
	require.Equal(t, codes.ResourceExhausted, status.Code(err))
	_, err = keda.GetMetricSpec(t.Context(), &pb.ScaledObjectRef{Namespace: "ai", Name: "llama", ScalerMetadata: map[string]string{
		"targetRequests": "4", "modelName": "llama", "caCert": huge[:maxAsked/2],
	}})
	require.NoError(t, err, "certificates have room")

	report, err := demandpb.NewDemandClient(dial(t, r.demand, insecure.NewCredentials())).Report(t.Context())
	require.NoError(t, err)
	_ = report.Send(&demandpb.Snapshot{ActivatorId: huge, BootId: "b"}) // the answer tells
	_, err = report.Recv()
	require.Equal(t, codes.ResourceExhausted, status.Code(err))
}
