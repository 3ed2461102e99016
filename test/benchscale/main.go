// Command benchscale measures a scaler with as many models as a large cluster
// has, and how soon KEDA scales a model up from zero, and prints both beside the
// goals.
//
//	go run ./test/benchscale -scaler BIN -activator BIN -prometheus BIN -bin DIR -crds DIR [-only load|wake] [-objects N] [-out FILE]
//
// # Load
//
// One real pilotlight-scaler with 2,000 ScaledObjects and 4,000 pods in a real
// API server (etcd and kube-apiserver, so that its informers are part of the
// cost), each pod's 60 KB metrics page read every 5 s. One activator's reports
// and KEDA's calls are played by this process: 2,000 streams, and for each
// ScaledObject GetMetricSpec, GetMetrics and IsActive every 15 s (the HPA) and
// every 30 s (KEDA's polls). The engines are another process with an address
// for each pod. Their numbers move from scrape to scrape, and pages come
// gzipped, as vLLM's do. 200 ScaledObjects are at zero, and during the
// measurement each begins to be asked for. All share one machine, so that the
// CPU is the scaler's own account, and the latencies are those of a busy machine:
// as many calls go to a server that does nothing, to tell the machine's part.
//
// # Wake
//
// The real control plane with the real KEDA operator, a real scaler and a real
// activator. Requests are sent to models at zero; measured is the time until
// KEDA has changed the Deployment, as a watch shows it. Beside it KEDA's own
// prometheus trigger does the same for models of its own, with a real Prometheus
// that scrapes the activator every 15 s and with 15 s between KEDA's polls: at
// zero no engine exports anything, so that the fair signal is what the activator
// holds, which it exports. Ours are woken one after the other; those of the
// prometheus trigger do not depend on each other and are woken at moments spread
// over 30 s, so that they fall anywhere between two scrapes and two polls.
//
// FILE gets a JSON list of {name, value, unit}. It runs on Linux, where the whole
// of 127.0.0.0/8 is loopback, and needs 5,000 open files for a process.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/pilotlight-dev/pilotlight/internal/freeport"
	"github.com/pilotlight-dev/pilotlight/test/internal/figures"
)

// loadGCPercent keeps the collections of what makes the load from what is
// measured.
const loadGCPercent = 800

// longest bounds the whole run; it usually takes five minutes.
const longest = 15 * time.Minute

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	ctx, cancel := context.WithTimeout(ctx, longest)
	var err error
	switch {
	case len(os.Args) > 1 && os.Args[1] == "engines":
		err = runEngines(ctx, os.Args[2:])
	case len(os.Args) > 1 && os.Args[1] == "bare":
		err = runBare(ctx, os.Args[2:])
	default:
		err = run(ctx, os.Args[1:], os.Stdout)
	}
	cancel()
	stop()
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "benchscale:", err)
		os.Exit(1)
	}
}

type config struct {
	scaler, activator, prometheus string // binaries
	bin, crds                     string // the control plane's
	page                          string // a metrics page
	dir                           string // for everything that is written
	only                          string
	fleet                         fleet
}

func run(ctx context.Context, args []string, out io.Writer) error {
	var c config
	flags := flag.NewFlagSet("benchscale", flag.ContinueOnError)
	flags.StringVar(&c.scaler, "scaler", "", "pilotlight-scaler (required)")
	flags.StringVar(&c.activator, "activator", "", "pilotlight-activator (required for wake)")
	flags.StringVar(&c.prometheus, "prometheus", "", "prometheus (required for wake)")
	flags.StringVar(&c.bin, "bin", "", "folder of the control plane's binaries (required)")
	flags.StringVar(&c.crds, "crds", "", "folder of KEDA's CustomResourceDefinitions (required)")
	flags.StringVar(&c.page, "page", "scaler/engine/testdata/metrics/vllm-metrics-v1.txt", "metrics page of every engine")
	flags.StringVar(&c.only, "only", "", "measure this only: load or wake")
	objects := flags.Int("objects", size.objects, "ScaledObjects of the load, with twice as many pods; a tenth of them at zero")
	flags.IntVar(&c.fleet.namespaces, "namespaces", size.namespaces, "namespaces that they are spread over")
	file := flags.String("out", "", "write the figures to this file as JSON")
	keep := flags.Bool("keep", false, "keep the folder with the logs")
	if err := flags.Parse(args); err != nil {
		return err
	}
	wakes := c.only != "load"
	if c.scaler == "" || c.bin == "" || c.crds == "" || wakes && (c.activator == "" || c.prometheus == "") {
		return errors.New("-scaler, -bin, -crds and, unless -only=load, -activator and -prometheus are required (make bench-scale sets them)")
	}
	if *objects < 10 || c.fleet.namespaces < 1 {
		return errors.New("-objects must be at least 10, -namespaces at least 1")
	}
	c.fleet.objects, c.fleet.asleep, c.fleet.pods = *objects, *objects/10, 2**objects
	debug.SetGCPercent(loadGCPercent)
	var err error
	if c.dir, err = os.MkdirTemp("", "benchscale"); err != nil {
		return err
	}
	if *keep {
		_, _ = fmt.Fprintln(out, "logs are kept in", c.dir)
	} else {
		defer func() { _ = os.RemoveAll(c.dir) }()
	}
	list, err := measure(ctx, c)
	return errors.Join(err, figures.Print(out, list), figures.Save(*file, list))
}

func measure(ctx context.Context, c config) (list []figures.Figure, err error) {
	parts := []struct {
		name string
		run  func(context.Context, config) ([]figures.Figure, error)
	}{{"load", loaded}, {"wake", measureWake}}
	for _, p := range parts {
		if c.only != "" && c.only != p.name {
			continue
		}
		sub := c
		if sub.dir = filepath.Join(c.dir, p.name); os.Mkdir(sub.dir, 0o750) != nil {
			return list, fmt.Errorf("making the folder %s", sub.dir)
		}
		got, err := p.run(ctx, sub)
		if err != nil {
			return list, fmt.Errorf("%s: %w", p.name, err)
		}
		list = append(list, got...)
	}
	return list, nil
}

// loaded measures the whole fleet in a real API server.
func loaded(ctx context.Context, c config) ([]figures.Figure, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	f := c.fleet
	var err error
	if f.port, err = freeport.Port(ctx); err != nil {
		return nil, err
	}
	pages, served, err := startEngines(ctx, c, f)
	if err != nil {
		return nil, err
	}
	defer pages.Kill() //nolint:errcheck // it has nothing to save
	k8s, err := fill(ctx, f, c)
	if err != nil {
		return nil, err
	}
	defer k8s.Close()
	s, err := startScaler(ctx, c, usual, "--kubeconfig", filepath.Join(c.dir, "plane", "admin.kubeconfig"), "--state-namespace", f.namespace(0))
	if err != nil {
		return nil, err
	}
	defer s.Kill() //nolint:errcheck // as above
	nothing, bareAddr, err := startBare(ctx, c)
	if err != nil {
		return nil, err
	}
	defer nothing.Kill() //nolint:errcheck // as above
	return measureLoad(ctx, f, usual, s, bareAddr, served)
}

// runEngines is this program as the engines of a fleet.
func runEngines(ctx context.Context, args []string) error {
	var f fleet
	numbers := []*int{&f.objects, &f.asleep, &f.pods, &f.namespaces, &f.port}
	if len(args) != len(numbers)+1 {
		return errors.New("usage: engines OBJECTS ASLEEP PODS NAMESPACES PORT PAGE")
	}
	for i, to := range numbers {
		var err error
		if *to, err = strconv.Atoi(args[i]); err != nil {
			return err
		}
	}
	debug.SetGCPercent(loadGCPercent)
	page, err := os.ReadFile(args[len(numbers)])
	if err != nil {
		return err
	}
	e, err := newEngines(ctx, f, page)
	if err != nil {
		return err
	}
	base, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(f.port)))
	if err != nil {
		return err
	}
	return e.serve(ctx, base)
}
