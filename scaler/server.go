package scaler

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	pb "github.com/kedacore/keda/v2/pkg/scalers/externalscaler"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/pilotlight-dev/pilotlight/internal/trigger"
	"github.com/pilotlight-dev/pilotlight/internal/workload"
	"github.com/pilotlight-dev/pilotlight/scaler/policy"
)

// MetricName is the one metric of every target. It is lower-case and safe in a
// URL path, and the same for all: KEDA tells triggers apart by a prefix of its
// own (s0-, s1-, ...).
const MetricName = "pilotlight-requests"

// indexPrefix is what KEDA puts before a metric's name.
var indexPrefix = regexp.MustCompile(`^s\d+-`)

// IsActive tells whether at least one replica is wanted.
func (s *Scaler) IsActive(ctx context.Context, ref *pb.ScaledObjectRef) (*pb.IsActiveResponse, error) {
	d, err := s.decision(ctx, ref)
	if err != nil {
		return nil, err
	}
	return &pb.IsActiveResponse{Result: d.Active}, nil
}

// GetMetricSpec answers from the metadata alone, so that it succeeds whatever
// the state of the cluster.
func (s *Scaler) GetMetricSpec(_ context.Context, ref *pb.ScaledObjectRef) (*pb.GetMetricSpecResponse, error) {
	t, err := s.read(ref)
	if err != nil {
		return nil, err
	}
	return spec(t), nil
}

// GetMetrics answers with exactly one value: replicas wanted x target.
func (s *Scaler) GetMetrics(ctx context.Context, req *pb.GetMetricsRequest) (*pb.GetMetricsResponse, error) {
	t, err := s.lookup(req.GetScaledObjectRef())
	if err != nil {
		return nil, err
	}
	name := req.GetMetricName()
	if !strings.EqualFold(indexPrefix.ReplaceAllString(strings.ToLower(name), ""), MetricName) {
		return nil, status.Errorf(codes.InvalidArgument, "metric %q is not served here: the only one is %q", name[:min(len(name), maxObjectName)], MetricName)
	}
	d, err := t.wait(ctx)
	if err != nil {
		return nil, rpcError(err)
	}
	return &pb.GetMetricsResponse{MetricValues: []*pb.MetricValue{{MetricName: name, MetricValueFloat: d.Value}}}, nil
}

// StreamIsActive pushes activity: the present state as soon as it is known, `true` on each
// change from inactive to active, and `true` again every Resend while the
// target is still at zero (KEDA may have dropped the first). KEDA ignores
// `false`, and each needless `true` would cost it a status update, so nothing
// else is sent. It ends without an error at shutdown: KEDA then redials in two
// seconds instead of climbing its back-off.
func (s *Scaler) StreamIsActive(ref *pb.ScaledObjectRef, stream grpc.ServerStreamingServer[pb.IsActiveResponse]) error {
	t, err := s.lookup(ref)
	if err != nil {
		return err
	}
	changes, stop := t.subscribe()
	defer stop()
	ctx := stream.Context()
	said, sent := false, false // whether the peer was told the state, and believes the target active
	d, err := t.wait(ctx)
	if rerr := rpcError(err); status.Code(rerr) == codes.InvalidArgument {
		return rerr
	}
	if err == nil {
		if err := stream.Send(&pb.IsActiveResponse{Result: d.Active}); err != nil {
			return err
		}
		said, sent = true, d.Active
	}
	resend := time.NewTicker(s.opts.Resend)
	defer resend.Stop()
	for {
		repeat := false
		select {
		case <-s.done:
			return nil
		case <-ctx.Done():
			return nil
		case <-t.ended:
			return gone(s.done)
		case <-changes:
		case <-resend.C:
			repeat = true
		}
		d, err := t.answer(time.Now())
		if err != nil {
			continue // unknown is not inactive: the peer keeps its belief
		}
		asleep := d.Terms.Ready+d.Terms.Starting == 0
		if !said || d.Active && (!sent || (repeat && asleep)) {
			if err := stream.Send(&pb.IsActiveResponse{Result: d.Active}); err != nil {
				return err
			}
		}
		said, sent = true, d.Active
	}
}

// gone is how the stream of a target ends that has ended: KEDA opens another,
// which begins it anew.
func gone(shutdown <-chan struct{}) error {
	select {
	case <-shutdown:
		return nil
	default:
		return status.Error(codes.Unavailable, "the target has ended: ask again")
	}
}

// StreamMetricSpec sends the specs once; they change only with the metadata,
// and then KEDA opens a new stream.
func (s *Scaler) StreamMetricSpec(ref *pb.ScaledObjectRef, stream grpc.ServerStreamingServer[pb.GetMetricSpecResponse]) error {
	t, err := s.read(ref)
	if err != nil {
		return err
	}
	if err := stream.Send(spec(t)); err != nil {
		return err
	}
	select {
	case <-s.done:
	case <-stream.Context().Done():
	}
	return nil
}

func spec(t trigger.Trigger) *pb.GetMetricSpecResponse {
	return &pb.GetMetricSpecResponse{MetricSpecs: []*pb.MetricSpec{{MetricName: MetricName, TargetSizeFloat: t.TargetRequests}}}
}

// read takes the trigger out of a request, and starts nothing.
func (s *Scaler) read(ref *pb.ScaledObjectRef) (trigger.Trigger, error) {
	if err := named(ref); err != nil {
		return trigger.Trigger{}, err
	}
	t, err := s.parse(refOf(ref), ref.GetScalerMetadata())
	if err != nil {
		return t, refused(ref, codes.InvalidArgument, err)
	}
	return t, nil
}

// lookup finds the target of a request, which begins to be looked at.
func (s *Scaler) lookup(ref *pb.ScaledObjectRef) (*target, error) {
	if err := named(ref); err != nil {
		return nil, err
	}
	t, err := s.target(refOf(ref), ref.GetScalerMetadata())
	switch {
	case errors.Is(err, ErrTooMany):
		return nil, refused(ref, codes.ResourceExhausted, err)
	case err != nil:
		return nil, refused(ref, codes.InvalidArgument, err)
	}
	return t, nil
}

func refOf(ref *pb.ScaledObjectRef) workload.Ref {
	return workload.Ref{Namespace: ref.GetNamespace(), Name: ref.GetName()}
}

func named(ref *pb.ScaledObjectRef) error {
	if ref.GetName() == "" || ref.GetNamespace() == "" {
		return status.Error(codes.InvalidArgument, "the request names no ScaledObject (name and namespace are required)")
	}
	for _, name := range []string{ref.GetName(), ref.GetNamespace()} {
		if len(name) > maxObjectName || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsGraphic(r) || r == utf8.RuneError }) {
			return status.Errorf(codes.InvalidArgument, "the request names no ScaledObject: a name and a namespace have at most %d characters, all of them printable", maxObjectName)
		}
	}
	return nil
}

// maxObjectName is Kubernetes' own bound of a name, in bytes.
const maxObjectName = 253

func refused(ref *pb.ScaledObjectRef, code codes.Code, err error) error {
	return status.Errorf(code, "ScaledObject %s/%s: %s", ref.GetNamespace(), ref.GetName(), cut(err.Error()))
}

func (s *Scaler) decision(ctx context.Context, ref *pb.ScaledObjectRef) (policy.Decision, error) {
	t, err := s.lookup(ref)
	if err != nil {
		return policy.Decision{}, err
	}
	d, err := t.wait(ctx)
	if err != nil {
		return policy.Decision{}, rpcError(err)
	}
	return d, nil
}

// rpcError gives an error the gRPC status by which an operator can tell what
// to do: InvalidArgument for the ScaledObject, NotFound, PermissionDenied for
// the scaler's own rights, Unavailable for what may pass.
func rpcError(err error) error {
	if err == nil {
		return nil
	}
	var faults *trigger.Faults
	code := codes.Unavailable
	switch {
	case errors.As(err, &faults), errors.Is(err, policy.ErrConfig):
		code = codes.InvalidArgument
	case errors.Is(err, workload.ErrNotFound):
		code = codes.NotFound
	case errors.Is(err, workload.ErrForbidden):
		code = codes.PermissionDenied
	}
	return status.Error(code, cut(err.Error()))
}
