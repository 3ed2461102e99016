package demo

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/pilotlight-dev/pilotlight/internal/atomicfile"
	"github.com/pilotlight-dev/pilotlight/internal/freeport"
	"github.com/pilotlight-dev/pilotlight/internal/workload/static"
)

// A node plays the Deployment controller and the kubelet: it keeps as many
// replicas as are asked for, each a fetcher (the init container) followed by
// an engine, and writes them to the targets file.
type node struct {
	parts      *children
	root       *os.Root // holds the targets file
	models     string   // the volume that all replicas share
	ref        string   // model reference for the fetcher
	fetcherEnv []string
	metadata   map[string]string
	max        int

	mu       sync.Mutex
	wanted   int
	created  int
	replicas []*replica
	failure  error
	work     sync.WaitGroup
}

type phase string

const (
	fetching    phase = "fetching"
	loading     phase = "loading"
	ready       phase = "ready"
	terminating phase = "terminating"
)

type replica struct {
	name    string
	phase   phase
	addr    string
	created time.Time
	readyAt time.Time
	fetched time.Duration // how long the fetcher took
	stop    context.CancelFunc
}

// Scale asks for n replicas, as a write to the scale subresource does.
func (n *node) Scale(ctx context.Context, wanted int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.wanted = wanted
	var running []*replica
	for _, r := range n.replicas {
		if r.phase != terminating {
			running = append(running, r)
		}
	}
	for len(running) < wanted {
		n.created++
		life, stop := context.WithCancel(ctx)
		r := &replica{name: fmt.Sprintf("llama-%d", n.created), phase: fetching, created: time.Now(), stop: stop}
		n.replicas = append(n.replicas, r)
		running = append(running, r)
		n.work.Go(func() { n.live(life, r) })
	}
	for len(running) > wanted { // the newest first, as a ReplicaSet does
		r := running[len(running)-1]
		running = running[:len(running)-1]
		r.phase = terminating
		r.stop()
	}
	n.write()
}

// live is the life of one replica, from the init container to the last
// response.
func (n *node) live(ctx context.Context, r *replica) {
	defer r.stop()
	err := n.fetch(ctx, r)
	if err == nil {
		err = n.serve(ctx, r)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if err != nil && ctx.Err() == nil {
		n.failure = errors.Join(n.failure, fmt.Errorf("replica %s: %w", r.name, err))
	}
	for i, other := range n.replicas {
		if other == r {
			n.replicas = append(n.replicas[:i], n.replicas[i+1:]...)
			break
		}
	}
	n.write()
}

func (n *node) fetch(ctx context.Context, r *replica) error {
	began := time.Now()
	c, err := n.parts.start(ctx, r.name+"-fetcher", n.fetcherEnv, "fetcher", "init", "--model", n.ref, "--root", n.models, "--log-format", "json",
		"--termination-message", filepath.Join(n.parts.logs, r.name+"-termination.json"))
	if err != nil {
		return err
	}
	<-c.done
	r.fetched = time.Since(began)
	return c.err
}

func (n *node) serve(ctx context.Context, r *replica) error {
	addr, err := freeport.Addr(ctx)
	if err != nil {
		return err
	}
	// The engine outlives ctx: it drains after it was asked to stop.
	c, err := n.parts.start(context.WithoutCancel(ctx), r.name, nil, "engine", "--listen", addr, "--model", modelName, "--model-dir", filepath.Join(n.models, "current"),
		"--start-delay", pace.load.String(), "--slots", strconv.Itoa(targetRequests), "--decode-interval", "50ms", "--shutdown-timeout", "10s")
	if err != nil {
		return err
	}
	n.become(r, loading, addr)
	probe := time.NewTicker(50 * time.Millisecond)
	defer probe.Stop()
	for r.readyAt.IsZero() {
		select {
		case <-c.done:
			return c.err
		case <-ctx.Done():
			c.stop()
			<-c.done
			return nil
		case <-probe.C:
			if healthy(ctx, addr) {
				n.become(r, ready, addr)
			}
		}
	}
	select {
	case <-c.done:
		return errors.Join(errors.New("the engine ended by itself"), c.err)
	case <-ctx.Done():
		c.stop()
		<-c.done
		return nil
	}
}

func (n *node) become(r *replica, p phase, addr string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	r.addr = addr
	if p == ready {
		r.readyAt = time.Now()
	}
	if r.phase != terminating {
		r.phase = p
	}
	n.write()
}

// healthy is the readiness probe.
func healthy(ctx context.Context, addr string) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/health", nil)
	if err != nil {
		return false
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		return false
	}
	return resp.Body.Close() == nil && resp.StatusCode == http.StatusOK
}

// write puts the present state into the targets file. The caller holds mu.
func (n *node) write() {
	t := static.Target{Namespace: namespace, Name: modelName, MaxReplicas: n.max, Replicas: &n.wanted, Metadata: n.metadata}
	for _, r := range n.replicas {
		p := static.Pod{Name: r.name, Created: r.created, ReadyAt: r.readyAt, Terminating: r.phase == terminating}
		if host, port, err := net.SplitHostPort(r.addr); err == nil {
			p.Host = host
			p.Port, _ = strconv.Atoi(port) // an address of our own making
		}
		t.Pods = append(t.Pods, p)
	}
	body, err := yaml.Marshal(static.File{Targets: []static.Target{t}})
	if err == nil {
		err = atomicfile.Write(n.root, targetsFile, body, atomicfile.Options{})
	}
	if err != nil {
		n.failure = errors.Join(n.failure, fmt.Errorf("writing %s: %w", targetsFile, err))
	}
}

// counts are the replicas by phase, and the replicas asked for.
type counts struct{ wanted, fetching, loading, ready, terminating int }

func (n *node) counts() counts {
	n.mu.Lock()
	defer n.mu.Unlock()
	c := counts{wanted: n.wanted}
	for _, r := range n.replicas {
		switch r.phase {
		case fetching:
			c.fetching++
		case loading:
			c.loading++
		case ready:
			c.ready++
		case terminating:
			c.terminating++
		}
	}
	return c
}

// err is the first thing that went wrong, if anything did.
func (n *node) err() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.failure
}

// spec and status are the replica counts that KEDA and the HPA read.
func (n *node) spec() (wanted, present int) {
	c := n.counts()
	return c.wanted, c.fetching + c.loading + c.ready
}
