package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"time"

	pb "github.com/kedacore/keda/v2/pkg/scalers/externalscaler"
	"golang.org/x/sync/errgroup"

	"github.com/pilotlight-dev/pilotlight/cmd/internal/cli"
	fakemlflow "github.com/pilotlight-dev/pilotlight/internal/fake/mlflow"
	fakes3 "github.com/pilotlight-dev/pilotlight/internal/fake/s3"
	"github.com/pilotlight-dev/pilotlight/internal/freeport"
	"github.com/pilotlight-dev/pilotlight/scaler/simulate"
)

// Options configures Run.
type Options struct {
	Self string    // path of the program that can run Part
	Out  io.Writer // where the story is told
	TTY  bool      // Out is a terminal
	HTML string    // where the timeline goes; "" = a file in Dir
	Dir  string    // folder for everything the demo writes; "" = a new temporary one
	Keep bool      // after the story, stay until ctx ends
}

const (
	targetsFile = "targets.yaml"
	// The store's credentials; the store checks them, so that the fetcher's
	// signing is real.
	accessKey = "demo-access-key"
	secretKey = "demo-secret-key"
)

// A stage is everything that runs.
type stage struct {
	life     context.Context //nolint:containedctx // the life of the requests that outlive the step that sends them
	node     *node
	recorder *recorder
	store    *fakes3.Server
	parts    *children
	first    chan firstReply
	loop     *loop

	interrupted func() bool // by the user

	storeURL, registryURL, activatorURL, scalerAddr, demandAddr, debugURL string
}

// Run tells the whole story. Its error names the step that was not as it
// should be.
func Run(ctx context.Context, opts Options) (err error) {
	dir := opts.Dir
	if dir == "" {
		if dir, err = os.MkdirTemp("", "pilotlight-demo-"); err != nil {
			return err
		}
	}
	logs := filepath.Join(dir, "logs")
	if err := os.MkdirAll(logs, 0o750); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, root.Close()) }()

	life, end := context.WithCancel(ctx)
	s := &stage{life: life, interrupted: func() bool { return ctx.Err() != nil }, parts: &children{self: opts.Self, logs: logs}}
	story := &script{stage: s}
	v := newView(opts.Out, opts.TTY)
	defer v.close()
	group, groupCtx := errgroup.WithContext(life)
	defer func() {
		end()
		if werr := group.Wait(); err == nil {
			err = werr
		}
		if s.node != nil {
			s.node.work.Wait()
		}
		s.parts.running.Wait()
		if err != nil && ctx.Err() != nil { // whatever broke, broke for that
			err = ErrInterrupted
		}
	}()
	if err := s.build(groupCtx, group, root); err != nil {
		return err
	}
	s.recorder = &recorder{began: time.Now(), node: s.node, debugURL: s.debugURL, onSample: v.sample, onEvent: v.event}
	group.Go(func() error { return s.recorder.run(groupCtx) })
	if err := s.startScaling(groupCtx, group, story.moved); err != nil {
		return err
	}
	playErr := story.play(groupCtx)
	if errors.Is(playErr, ErrInterrupted) {
		v.close()
		return playErr
	}
	html := cmp.Or(opts.HTML, filepath.Join(dir, "timeline.html"))
	if err := writeTimeline(html, s.recorder, playErr); err != nil {
		return errors.Join(playErr, err)
	}
	v.end(playErr, html, logs)
	if opts.Keep && playErr == nil {
		s.invite(v)
		<-ctx.Done()
	}
	if opts.Dir == "" && playErr == nil { // the page and the logs stay, the weights need not
		_ = root.RemoveAll("models")
	}
	return playErr
}

// build starts the servers of this process and the two children that stay.
func (s *stage) build(ctx context.Context, group *errgroup.Group, root *os.Root) error {
	s.store = fakes3.New(fakes3.Options{Credentials: map[string]string{accessKey: secretKey}})
	registry := fakemlflow.New(fakemlflow.Options{})
	if err := register(s.store, registry); err != nil {
		return err
	}
	var err error
	if s.storeURL, err = serveHTTP(ctx, group, s.store); err != nil {
		return err
	}
	if s.registryURL, err = serveHTTP(ctx, group, registry); err != nil {
		return err
	}
	s.node = &node{
		parts: s.parts, root: root, models: filepath.Join(root.Name(), "models"), ref: "models:/" + modelName + "@" + alias, max: maxReplicas,
		metadata: metadata(),
		fetcherEnv: []string{
			"MLFLOW_TRACKING_URI=" + s.registryURL, "AWS_ENDPOINT_URL_S3=" + s.storeURL,
			"AWS_ACCESS_KEY_ID=" + accessKey, "AWS_SECRET_ACCESS_KEY=" + secretKey, "AWS_REGION=us-east-1",
		},
	}
	if err := os.MkdirAll(s.node.models, 0o750); err != nil {
		return err
	}
	s.node.Scale(ctx, 0) // writes the targets file
	return s.startChildren(ctx, group, filepath.Join(root.Name(), targetsFile))
}

func (s *stage) startChildren(ctx context.Context, group *errgroup.Group, targets string) error {
	var addrs [5]string
	for i := range addrs {
		var err error
		if addrs[i], err = freeport.Addr(ctx); err != nil {
			return err
		}
	}
	s.scalerAddr, s.demandAddr = addrs[0], addrs[1]
	s.debugURL, s.activatorURL = "http://"+addrs[2]+"/debug/targets", "http://"+addrs[3]
	scaler, err := s.parts.start(ctx, "scaler", nil, "scaler", "--static-targets", targets, "--listen", s.scalerAddr, "--demand-listen", s.demandAddr,
		"--http-listen", addrs[2], "--interval", "200ms", "--gauge-lag", pace.gaugeLag.String())
	if err != nil {
		return err
	}
	activator, err := s.parts.start(ctx, "activator", nil, "activator", "--static-targets", targets, "--listen", addrs[3], "--http-listen", addrs[4],
		"--scaler", s.demandAddr, "--insecure", "--id", "demo-activator", "--shutdown-delay", "0s", "--grace", "5s")
	if err != nil {
		return err
	}
	for _, c := range []*child{scaler, activator} {
		group.Go(func() error { return c.wait(ctx) })
	}
	for _, url := range []string{"http://" + addrs[2] + "/readyz", "http://" + addrs[4] + "/readyz"} {
		if err := answers(ctx, url); err != nil {
			return fmt.Errorf("%w (logs: %s)", err, s.parts.logs)
		}
	}
	return nil
}

// answers waits for a URL to answer 200.
func answers(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		if resp, err := http.DefaultTransport.RoundTrip(req); err == nil && resp.Body.Close() == nil && resp.StatusCode == http.StatusOK {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s to answer: %w", url, context.Cause(ctx))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// startScaling connects the model of KEDA and the HPA to the scaler.
func (s *stage) startScaling(ctx context.Context, group *errgroup.Group, onMove func(move)) error {
	conn, err := dialScaler(s.scalerAddr)
	if err != nil {
		return err
	}
	instant := simulate.Rules{Policies: simulate.DefaultUp().Policies} // the chart's: no stabilisation, tolerance 0
	down := simulate.Rules{Policies: simulate.DefaultDown().Policies}
	forwarded := maps.Clone(s.node.metadata)
	forwarded["scalerAddress"] = s.scalerAddr
	s.loop = &loop{
		client: pb.NewExternalScalerClient(conn), node: s.node, onMove: onMove,
		object: &pb.ScaledObjectRef{Namespace: namespace, Name: modelName, ScalerMetadata: forwarded},
		keda:   simulate.KEDA{MaxReplicas: maxReplicas, PollingInterval: pace.poll, CooldownPeriod: pace.cooldown},
		hpa:    simulate.HPA{MinReplicas: 1, MaxReplicas: maxReplicas, Up: instant, Down: down},
	}
	group.Go(func() error {
		err := s.loop.run(ctx)
		return errors.Join(err, conn.Close())
	})
	return nil
}

// metadata is the trigger of the demo's ScaledObject.
func metadata() map[string]string {
	return map[string]string{
		"targetRequests": fmt.Sprint(targetRequests), "modelName": modelName,
		"coldStart": pace.coldStart.String(), "keepAlive": pace.keepAlive.String(), "scaleDownWindow": pace.window.String(), "drainWithin": "2s", "staleAfter": "10s",
	}
}

func serveHTTP(ctx context.Context, group *errgroup.Group, h http.Handler) (string, error) {
	l, err := cli.Listen(ctx, "demo server", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	group.Go(func() error { return cli.ServeHTTP(ctx, l, h, time.Second) })
	return "http://" + l.Addr().String(), nil
}

// invite tells how to look around.
func (s *stage) invite(v *view) {
	v.print("")
	v.print("Everything goes on running until you press Ctrl-C. Try:")
	v.print("  curl -N " + s.activatorURL + `/v1/chat/completions -d '{"model":"` + modelName + `","stream":true,"messages":[{"role":"user","content":"hello"}]}'`)
	v.print("  curl " + s.debugURL)
	v.print("  curl -X POST " + s.registryURL + `/api/2.0/mlflow/registered-models/alias -d '{"name":"` + modelName + `","alias":"` + alias + `","version":"2"}'`)
	v.print("  ls -l " + s.node.models)
}
