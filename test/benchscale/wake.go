package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/pilotlight-dev/pilotlight/internal/freeport"
	"github.com/pilotlight-dev/pilotlight/test/e2e/plane"
	"github.com/pilotlight-dev/pilotlight/test/internal/figures"
)

const (
	wakes       = 20 // models of each kind
	wakeWithin  = 90 * time.Second
	readyWithin = 2 * time.Minute

	// Of the prometheus trigger. 15 s is what many Prometheus servers use, and
	// half of KEDA's default pollingInterval; ours gets the same one.
	scrapeInterval  = 15 * time.Second
	pollingInterval = 15 * time.Second
	spread          = scrapeInterval + pollingInterval
)

// A stage is what wakes are measured on.
type stage struct {
	*plane.Plane
	config  config
	scaler  *subject
	clients string // the activator's address for clients
	probes  string // and for its metrics
	prom    string // Prometheus' address
	changed *changes
}

// measureWake times how long KEDA takes to change a Deployment, with our trigger
// and with its own prometheus trigger.
func measureWake(ctx context.Context, c config) (list []figures.Figure, err error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	p, err := plane.Start(ctx, plane.Options{Bin: c.bin, CRDs: c.crds, Dir: filepath.Join(c.dir, "plane")})
	if err != nil {
		return nil, err
	}
	defer p.Close()
	s := &stage{Plane: p, config: c}
	if err := s.start(ctx); err != nil {
		return nil, err
	}
	ours, err := s.oneByOne(ctx)
	if err != nil {
		return nil, fmt.Errorf("waking with our trigger: %w; the scaler says: %s", err, s.scaler.Tail())
	}
	theirs, err := s.spread(ctx)
	if err != nil {
		return nil, fmt.Errorf("waking with the prometheus trigger: %w", err)
	}
	figure := func(name string, goal figures.Goal, took []time.Duration, note string) figures.Figure {
		return figures.Figure{
			Name: name, Value: figures.Quantile(took, 0.5).Seconds() * 1000, Unit: "ms", Goal: goal,
			Note: fmt.Sprintf("from the client's request to KEDA's change of the Deployment, %d models at zero, %.3g to %.3g; %s",
				len(took), figures.Quantile(took, 1e-9).Seconds()*1000, figures.Quantile(took, 1).Seconds()*1000, note),
		}
	}
	return []figures.Figure{
		figure("wake_patch_p50_ms", figures.Below(1000), ours, "one by one, by external-push"),
		figure("wake_patch_prometheus_p50_ms", figures.Goal{}, theirs,
			fmt.Sprintf("by KEDA's prometheus trigger on the number that the activator holds, scraped and polled every %v", scrapeInterval)),
	}, nil
}

// start brings up scaler, activator, Prometheus and the models.
func (s *stage) start(ctx context.Context) (err error) {
	kubeconfig := filepath.Join(s.Dir, "admin.kubeconfig")
	if err := s.createModels(ctx, "", nil); err != nil {
		return err
	}
	if s.scaler, err = startScaler(ctx, s.config, load{interval: time.Second}, "--kubeconfig", kubeconfig, "--namespace", wakeNamespace, "--state-namespace", wakeNamespace); err != nil {
		return err
	}
	if err := s.startActivator(ctx, kubeconfig); err != nil {
		return err
	}
	if err := s.startPrometheus(ctx); err != nil {
		return err
	}
	if err := s.createModels(ctx, "http://"+s.prom, s.scaler); err != nil {
		return err
	}
	if s.changed, err = watch(ctx, s.Plane); err != nil {
		return err
	}
	return s.await(ctx)
}

func (s *stage) startActivator(ctx context.Context, kubeconfig string) (err error) {
	if s.clients, err = freeport.Addr(ctx); err != nil {
		return err
	}
	if s.probes, err = freeport.Addr(ctx); err != nil {
		return err
	}
	one, err := plane.Run(ctx, s.config.dir, "activator", nil, s.config.activator,
		"--kubeconfig", kubeconfig, "--namespace", wakeNamespace, "--listen", s.clients, "--http-listen", s.probes, "--scaler", s.scaler.demand, "--insecure")
	if err != nil {
		return err
	}
	return awaitURL(ctx, one, "http://"+s.probes+"/readyz")
}

func (s *stage) startPrometheus(ctx context.Context) (err error) {
	if s.prom, err = freeport.Addr(ctx); err != nil {
		return err
	}
	file := filepath.Join(s.config.dir, "prometheus.yml")
	text := fmt.Sprintf("global: {scrape_interval: %v}\nscrape_configs: [{job_name: activator, static_configs: [{targets: [%q]}]}]\n", scrapeInterval, s.probes)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return err // names the file
	}
	one, err := plane.Run(ctx, s.config.dir, "prometheus", nil, s.config.prometheus,
		"--config.file="+file, "--storage.tsdb.path="+filepath.Join(s.config.dir, "tsdb"), "--web.listen-address="+s.prom, "--log.level=warn")
	if err != nil {
		return err
	}
	return awaitURL(ctx, one, "http://"+s.prom+"/-/ready")
}

// await waits until a request would be noticed: KEDA calls every ScaledObject
// ready, the activator knows every model, and Prometheus has scraped it.
func (s *stage) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	for {
		problem := s.problem(ctx)
		if problem == nil {
			return nil
		}
		if !sleep(ctx, 200*time.Millisecond) {
			return fmt.Errorf("not ready within %v: %w", readyWithin, problem)
		}
	}
}

func (s *stage) problem(ctx context.Context) error {
	models, err := get(ctx, "http://"+s.clients+"/v1/models")
	if err != nil {
		return err
	}
	for i := range wakes {
		for _, name := range []string{ours(i), theirs(i)} {
			if !strings.Contains(string(models), `"`+name+`"`) {
				return fmt.Errorf("the activator does not know %s", name)
			}
		}
	}
	up, err := get(ctx, "http://"+s.prom+"/api/v1/query?query=up")
	if err != nil {
		return err
	}
	if !strings.Contains(string(up), `"1"]`) {
		return fmt.Errorf("the activator has not been scraped: %s", up)
	}
	return s.scaledObjectsReady(ctx)
}

// oneByOne wakes our models one after the other, at moments that follow no beat.
func (s *stage) oneByOne(ctx context.Context) ([]time.Duration, error) {
	var all []time.Duration
	for i := range wakes {
		if !sleep(ctx, 500*time.Millisecond+rand.N(time.Second)) { //nolint:gosec // a pause
			return nil, ctx.Err()
		}
		took, err := s.wake(ctx, ours(i))
		if err != nil {
			return nil, err
		}
		all = append(all, took)
	}
	return all, nil
}

// spread wakes the others at moments spread evenly over a scrape and a poll.
func (s *stage) spread(ctx context.Context) ([]time.Duration, error) {
	all := make([]time.Duration, wakes)
	group, ctx := errgroup.WithContext(ctx)
	for i := range wakes {
		group.Go(func() error {
			if !sleep(ctx, spread*time.Duration(i)/wakes) {
				return ctx.Err()
			}
			var err error
			all[i], err = s.wake(ctx, theirs(i))
			return err
		})
	}
	return all, group.Wait()
}

// wake sends a request for a model and times until its Deployment is changed.
// The request is given up then: nobody would answer it.
func (s *stage) wake(ctx context.Context, model string) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, wakeWithin)
	defer cancel()
	if s.changed.at(model) != nil {
		return 0, fmt.Errorf("%s was awake before anybody asked for it", model)
	}
	began := time.Now()
	var asking sync.WaitGroup
	defer asking.Wait()
	asked := make(chan error, 1)
	asking.Go(func() { asked <- ask(ctx, s.clients, model) })
	for {
		more := s.changed.next() // before the look, so that no change falls between
		if at := s.changed.at(model); at != nil {
			cancel()
			return at.Sub(began), nil
		}
		select {
		case err := <-asked:
			if ctx.Err() == nil {
				return 0, fmt.Errorf("asking for %s: %w", model, err)
			}
			return 0, fmt.Errorf("%s was not woken within %v", model, wakeWithin)
		case <-more:
		}
	}
}

// ask sends a request that nothing answers; its error says why it has ended.
func ask(ctx context.Context, addr, model string) error {
	body := fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":"hello"}]}`, model)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+addr+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close() //nolint:errcheck // it is only read
	text, err := io.ReadAll(resp.Body)
	return errors.Join(fmt.Errorf("%s %s", resp.Status, text), err)
}
