package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/pilotlight-dev/pilotlight/internal/freeport"
	"github.com/pilotlight-dev/pilotlight/internal/workload/static"
	"github.com/pilotlight-dev/pilotlight/scaler"
	"github.com/pilotlight-dev/pilotlight/scaler/policy"
	"github.com/pilotlight-dev/pilotlight/test/e2e/plane"
	"github.com/pilotlight-dev/pilotlight/test/internal/figures"
	"github.com/pilotlight-dev/pilotlight/test/internal/usage"
)

// A load says how hard a scaler has to work, and for how long.
type load struct {
	interval time.Duration // between looks at an object
	speed    int           // how much faster than KEDA to ask
	settle   time.Duration // before the measurement
	window   time.Duration // of the measurement
	least    float64       // share of the pages due that must be read
}

var usual = load{interval: 5 * time.Second, speed: 1, settle: 20 * time.Second, window: time.Minute, least: 0.9}

const (
	knownWithin = 3 * time.Minute
	edgeWithin  = 30 * time.Second // an edge that takes longer is a failure
	scrapeEvery = 15 * time.Second
)

// A subject is the scaler that is measured, with the addresses it serves on.
type subject struct {
	*plane.Process
	keda, demand, http string
	began              time.Time
}

// startScaler starts the real program. source says where its workloads come
// from.
func startScaler(ctx context.Context, c config, l load, source ...string) (*subject, error) {
	s := &subject{}
	for _, addr := range []*string{&s.keda, &s.demand, &s.http} {
		var err error
		if *addr, err = freeport.Addr(ctx); err != nil {
			return nil, err
		}
	}
	s.began = time.Now()
	var err error
	s.Process, err = plane.Run(ctx, c.dir, "scaler", nil, c.scaler, append([]string{
		"--listen", s.keda, "--demand-listen", s.demand, "--http-listen", s.http, "--interval", l.interval.String(), "--log-level", "warn",
	}, source...)...)
	if err != nil {
		return nil, err
	}
	return s, awaitURL(ctx, s.Process, "http://"+s.http+"/readyz")
}

// measureLoad puts a fleet on a scaler and takes its account.
func measureLoad(ctx context.Context, f fleet, l load, s *subject, bare string, served func(context.Context) (int, error)) (list []figures.Figure, err error) {
	k, hangUp, err := newKeda(f, s.keda, bare, l.speed)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, hangUp()) }()
	a := newActivator(f)
	group, gctx := errgroup.WithContext(ctx)
	running, stop := context.WithCancel(gctx)
	defer stop()
	group.Go(func() error { return a.run(running, s.demand) })
	group.Go(func() error { return k.run(running) })
	group.Go(func() error { scrape(running, s.http); return nil })
	m := measurement{fleet: f, load: l, scaler: s, keda: k, activator: a, served: served}
	group.Go(func() error {
		defer stop()
		return m.take(running)
	})
	if err := group.Wait(); err != nil {
		return nil, fmt.Errorf("%w; the scaler says: %s", err, s.Tail())
	}
	return m.figures(), nil
}

// scrape reads the scaler's own metrics as a Prometheus would.
func scrape(ctx context.Context, addr string) {
	for sleep(ctx, scrapeEvery) {
		_, _ = get(ctx, "http://"+addr+"/metrics") // whether it answers is not measured here
	}
}

// A measurement is one window of a load.
type measurement struct {
	fleet     fleet
	load      load
	scaler    *subject
	keda      *keda
	activator *activator
	served    func(context.Context) (int, error)

	known  time.Duration // until every object was known
	cpu    time.Duration
	wall   time.Duration
	pages  int
	unread int     // pods that could not be read when last looked at
	rss    float64 // MiB, now and at most
	peak   float64
	edges  []time.Duration
}

func (m *measurement) take(ctx context.Context) error {
	for end := time.Now().Add(knownWithin); m.keda.unknown() > 0 || m.activator.answered() == 0; {
		if time.Now().After(end) {
			return fmt.Errorf("%d of %d objects are not known after %v", m.keda.unknown(), m.fleet.objects, knownWithin)
		}
		if !sleep(ctx, 50*time.Millisecond) {
			return ctx.Err()
		}
	}
	m.known = time.Since(m.scaler.began)
	if !sleep(ctx, m.load.settle) {
		return ctx.Err()
	}
	cpu, err := usage.CPU(m.scaler.Pid())
	if err != nil {
		return err
	}
	pages, err := m.served(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	m.keda.measure(true)
	if err := m.wake(ctx); err != nil {
		return err
	}
	if !sleep(ctx, m.load.window-time.Since(began)) {
		return ctx.Err()
	}
	m.keda.measure(false)
	m.wall = time.Since(began)
	now, err := usage.CPU(m.scaler.Pid())
	if err != nil {
		return err
	}
	m.cpu = now - cpu
	if m.pages, err = m.served(ctx); err != nil {
		return err
	}
	m.pages -= pages
	if m.rss, m.peak, err = usage.Memory(m.scaler.Pid()); err != nil {
		return err
	}
	return m.check(ctx)
}

// wake holds a request for one object after the other, evenly over the window,
// and times how long the stream takes to say so.
func (m *measurement) wake(ctx context.Context) error {
	gap := m.load.window * 9 / 10 / time.Duration(m.fleet.asleep)
	tick := time.NewTicker(gap)
	defer tick.Stop()
	for i := range m.fleet.asleep {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		select {
		case <-m.keda.awakened[i]:
			return fmt.Errorf("%s was awake before anything was held for it", m.fleet.ref(i))
		default:
		}
		began := time.Now()
		m.activator.hold(i)
		limit := time.NewTimer(edgeWithin)
		select {
		case at := <-m.keda.awakened[i]:
			m.edges = append(m.edges, at.Sub(began))
		case <-limit.C:
			return fmt.Errorf("KEDA was not told of what is held for %s within %v", m.fleet.ref(i), edgeWithin)
		case <-ctx.Done():
		}
		limit.Stop()
	}
	return nil
}

// check refuses a measurement of a scaler that did not do its work.
func (m *measurement) check(ctx context.Context) error {
	if m.keda.failures > 0 {
		return fmt.Errorf("%d of %d times asking has failed, first: %w", m.keda.failures, m.keda.calls, m.keda.failure)
	}
	if want := m.load.least * float64(m.fleet.pods) * m.wall.Seconds() / m.load.interval.Seconds(); float64(m.pages) < want {
		return fmt.Errorf("the engines were read %d times in %v, at least %.0f are due", m.pages, m.wall, want)
	}
	body, err := get(ctx, "http://"+m.scaler.http+"/debug/targets")
	if err != nil {
		return err
	}
	var targets []scaler.TargetStatus
	if err := json.Unmarshal(body, &targets); err != nil {
		return fmt.Errorf("reading /debug/targets: %w", err)
	}
	if len(targets) != m.fleet.objects {
		return fmt.Errorf("the scaler has %d targets, not %d", len(targets), m.fleet.objects)
	}
	for _, t := range targets {
		if !t.Known || t.Reason == string(policy.ReasonUnknown) || t.Error != "" || t.Demand.Problem != "" {
			return fmt.Errorf("the scaler does not know %s/%s: %+v", t.Namespace, t.ScaledObject, t)
		}
		m.unread += len(t.Unread)
	}
	if m.unread*100 > m.fleet.pods { // on a busy machine a page may come too late
		return fmt.Errorf("%d of %d pods cannot be read", m.unread, m.fleet.pods)
	}
	return nil
}

func (m *measurement) figures() []figures.Figure {
	f := m.fleet
	ms := func(d time.Duration) float64 { return d.Seconds() * 1000 }
	took := m.keda.took
	return []figures.Figure{
		{
			Name: "scale_cores", Value: m.cpu.Seconds() / m.wall.Seconds(), Unit: "cores", Goal: figures.Below(1),
			Note: fmt.Sprintf("the scaler's own CPU over %.0f s: %d ScaledObjects, %d pods of 60 KB looked at every %v (%.0f pages/s, %d pods unread at the end); this machine has %d cores",
				m.wall.Seconds(), f.objects, f.pods, m.load.interval, float64(m.pages)/m.wall.Seconds(), m.unread, runtime.NumCPU()),
		},
		{
			Name: "scale_rss_mib", Value: m.peak, Unit: "MiB", Goal: figures.Below(500),
			Note: fmt.Sprintf("at most since its start, listing the cluster included; %.0f at the end", m.rss),
		},
		{
			Name: "scale_getmetrics_p99_ms", Value: ms(figures.Quantile(took, 0.99)), Unit: "ms", Goal: figures.Below(10),
			Note: fmt.Sprintf("median %.2g, worst %.3g of %d; %d streams open, %.0f calls/s of all kinds", ms(figures.Quantile(took, 0.5)), ms(figures.Quantile(took, 1)),
				len(took), f.objects, 3*float64(m.keda.calls)/m.wall.Seconds()),
		},
		{
			Name: "scale_bare_grpc_p99_ms", Value: ms(figures.Quantile(m.keda.machine, 0.99)), Unit: "ms",
			Note: fmt.Sprintf("the machine's part: as many calls at the same time to a server that does nothing; median %.2g, worst %.3g",
				ms(figures.Quantile(m.keda.machine, 0.5)), ms(figures.Quantile(m.keda.machine, 1))),
		},
		{
			Name: "scale_edge_p99_ms", Value: ms(figures.Quantile(m.edges, 0.99)), Unit: "ms", Goal: figures.Below(200),
			Note: fmt.Sprintf("median %.3g, worst %.3g of %d held requests until the stream says true", ms(figures.Quantile(m.edges, 0.5)), ms(figures.Quantile(m.edges, 1)), len(m.edges)),
		},
		{
			Name: "scale_known_s", Value: m.known.Seconds(), Unit: "s",
			Note: fmt.Sprintf("from the scaler's start until all %d have been answered about, each being asked about every %v", f.objects, hpaEvery),
		},
	}
}

// writeTargets puts a fleet into a file for --static-targets.
func writeTargets(file string, f fleet) error {
	var content static.File
	now := time.Now()
	for i := range f.objects {
		t := static.Target{Namespace: f.ref(i).Namespace, Name: f.ref(i).Name, MaxReplicas: maxReplicas, Metadata: f.metadata(i)}
		for k, end := f.podsOf(i); k < end; k++ {
			t.Pods = append(t.Pods, static.Pod{Name: f.pod(k), Host: f.host(k), Port: f.port, Created: now.Add(-2 * time.Minute), ReadyAt: now.Add(-time.Minute)})
		}
		content.Targets = append(content.Targets, t)
	}
	data, err := json.Marshal(content) // JSON is YAML
	if err != nil {
		return err
	}
	return os.WriteFile(file, data, 0o600) // names the file
}

func get(ctx context.Context, url string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		return nil, fmt.Errorf("asking %s: %w", url, err)
	}
	defer resp.Body.Close() //nolint:errcheck // it is only read
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("asking %s: %s", url, resp.Status)
	}
	return body, err
}

// awaitURL waits until a program answers at a URL.
func awaitURL(ctx context.Context, p *plane.Process, url string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		_, err := get(ctx, url)
		if err == nil {
			return nil
		}
		select {
		case <-p.Done():
			return fmt.Errorf("%s has ended: %s", p.Name, p.Tail())
		default:
		}
		if !sleep(ctx, 20*time.Millisecond) {
			return fmt.Errorf("%s did not come up: %w: %s", p.Name, err, p.Tail())
		}
	}
}

// startEngines runs this program a second time, as the engines, and returns how
// many pages they have served.
func startEngines(ctx context.Context, c config, f fleet) (*plane.Process, func(context.Context) (int, error), error) {
	program, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(f.port))
	page, err := filepath.Abs(c.page)
	if err != nil {
		return nil, nil, err
	}
	p, err := plane.Run(ctx, c.dir, "engines", nil, program, "engines", strconv.Itoa(f.objects), strconv.Itoa(f.asleep), strconv.Itoa(f.pods), strconv.Itoa(f.namespaces), strconv.Itoa(f.port), page)
	if err != nil {
		return nil, nil, err
	}
	return p, func(ctx context.Context) (int, error) {
		body, err := get(ctx, "http://"+addr+"/served")
		if err != nil {
			return 0, err
		}
		return strconv.Atoi(strings.TrimSpace(string(body)))
	}, awaitURL(ctx, p, "http://"+addr+"/served")
}
