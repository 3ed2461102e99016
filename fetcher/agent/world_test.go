package agent_test

import (
	"context"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/fetcher"
	"github.com/pilotlight-dev/pilotlight/fetcher/agent"
)

const ref = "models:/llama@champion"

// world is a root, a pointer and a store in which a pull takes as long as it is
// told to.
type world struct {
	t     *testing.T
	root  string
	store *fetcher.Store
	reg   *prometheus.Registry

	mu       sync.Mutex
	version  string
	lookErr  error
	pullErr  error
	pullTime time.Duration
	looks    []time.Time
	pulls    []string // versions, "2!" for one that was cancelled

	ephemeral bool // what a pull says of how it wrote
}

func newWorld(t *testing.T) *world {
	t.Helper()
	root := filepath.Join(t.TempDir(), "models")
	store, err := fetcher.OpenStore(root, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	return &world{t: t, root: root, store: store, version: "1", reg: prometheus.NewRegistry()}
}

// set changes what the pointer and the store do.
func (w *world) set(do func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	do()
}

func (w *world) point(version string) { w.set(func() { w.version = version }) }

func (w *world) looked() int { return len(w.lookedAt()) }

func (w *world) lookedAt() []time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.looks)
}

func (w *world) pulled() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.pulls)
}

// Look implements agent.Puller.
func (w *world) Look(ctx context.Context) (fetcher.Pointer, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.looks = append(w.looks, time.Now())
	return fetcher.Pointer{Name: "llama", Version: w.version}, w.lookErr
}

// Pull implements agent.Puller.
func (w *world) Pull(ctx context.Context) (fetcher.Result, error) {
	w.mu.Lock()
	version, takes, err := w.version, w.pullTime, w.pullErr
	w.mu.Unlock()
	timer := time.NewTimer(takes)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		w.set(func() { w.pulls = append(w.pulls, version+"!") })
		return fetcher.Result{}, context.Cause(ctx)
	case <-timer.C:
	}
	w.set(func() { w.pulls = append(w.pulls, version) })
	if err != nil {
		return fetcher.Result{}, err
	}
	res := w.publish(version)
	res.Manifest.Ephemeral = w.ephemeral
	return res, nil
}

// manifest describes a version of one small file.
func manifest(t *testing.T, version string) fetcher.Manifest {
	t.Helper()
	objects := []fetcher.Object{{Path: "config.json", Size: int64(len(version)), ETag: version}}
	digest, err := fetcher.Digest("", nil, objects)
	require.NoError(t, err)
	return fetcher.Manifest{
		V: 1, Digest: digest, Ref: ref, Name: "llama", Version: version, Location: "s3://weights/llama/" + version,
		CreatedAt: time.Now().UTC(), Objects: objects,
	}
}

// publish puts a version on disk and makes current name it, as a run does.
func (w *world) publish(version string) fetcher.Result {
	w.t.Helper()
	m := manifest(w.t, version)
	dir := filepath.Join(w.root, "versions", m.Short())
	require.NoError(w.t, os.MkdirAll(filepath.Join(dir, ".pilotlight"), 0o750))
	require.NoError(w.t, os.WriteFile(filepath.Join(dir, "config.json"), []byte(version), 0o600))
	data, err := json.Marshal(m)
	require.NoError(w.t, err)
	require.NoError(w.t, os.WriteFile(filepath.Join(dir, ".pilotlight", "manifest.json"), data, 0o600))
	target, current := "versions/"+m.Short(), filepath.Join(w.root, "current")
	before, _ := os.Readlink(current)
	require.NoError(w.t, os.Symlink(target, current+".tmp"))
	require.NoError(w.t, os.Rename(current+".tmp", current))
	state := w.store.State()
	state.Ref = ref
	if before != target {
		state.Published = append([]fetcher.Publication{{Digest: m.Digest, Ref: ref, Version: version, At: time.Now().UTC(), By: "test@host"}}, state.Published...)
	}
	data, err = json.Marshal(state)
	require.NoError(w.t, err)
	require.NoError(w.t, os.WriteFile(filepath.Join(w.root, ".state.json"), data, 0o600))
	return fetcher.Result{Manifest: m, Path: current, Changed: before != target, Downloaded: 100}
}

func listenAt(t *testing.T, addr string) net.Listener {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", addr)
	require.NoError(t, err)
	return l
}

func (w *world) options() agent.Options {
	return agent.Options{Ref: ref, Store: w.store, Puller: w, Registerer: w.reg, Code: func(error) int { return 6 }}
}

// running is an agent under way.
type running struct {
	*agent.Agent
	t    *testing.T
	stop context.CancelFunc
	done chan error
}

// run starts an agent; the test ends it.
func (w *world) run(t *testing.T, opts agent.Options) *running {
	t.Helper()
	a, err := agent.New(opts)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	r := &running{Agent: a, t: t, stop: stop, done: make(chan error, 1)}
	go func() { r.done <- a.Run(ctx) }()
	return r
}

// end stops the agent and demands that it ends well.
func (r *running) end() {
	r.t.Helper()
	r.stop()
	require.NoError(r.t, <-r.done)
}

// link makes a pod's link, frozen at a version if one is given.
func (w *world) link(version string) *fetcher.Frozen {
	w.t.Helper()
	link, err := fetcher.OpenFrozen(w.store, filepath.Join(w.t.TempDir(), "pod", "model"))
	require.NoError(w.t, err)
	w.t.Cleanup(func() { require.NoError(w.t, link.Close()) })
	if version != "" {
		_, err = link.Set(w.t.Context(), manifest(w.t, version).Short())
		require.NoError(w.t, err)
	}
	return link
}
