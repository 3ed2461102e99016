package pointercmd_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/cmd/internal/cli"
	"github.com/pilotlight-dev/pilotlight/cmd/internal/modelsource"
	"github.com/pilotlight-dev/pilotlight/cmd/internal/pointercmd"
	"github.com/pilotlight-dev/pilotlight/fetcher"
	fake "github.com/pilotlight-dev/pilotlight/internal/fake/s3"
	"github.com/pilotlight-dev/pilotlight/registry"
)

const bucket = "weights"

// backend is a registry in memory: one pointer, and numbered versions.
type backend struct {
	mu       sync.Mutex
	pos      registry.Position
	versions []registry.Version
	places   map[string]string // version -> location
	failing  error             // of every call
	moves    int
	made     bool
	onRead   func(n int) // called without the lock, n counts from 1
	reads    int
	onMove   func() error
}

func (b *backend) Resolve(_ context.Context, ref registry.Ref) (registry.Resolution, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.failing != nil {
		return registry.Resolution{}, b.failing
	}
	version := b.pos.Version
	if ref.Kind == registry.KindVersion {
		version = ref.Selector
	}
	i := slices.IndexFunc(b.versions, func(v registry.Version) bool { return v.Version == version })
	switch {
	case i < 0:
		return registry.Resolution{}, fmt.Errorf("%w: version %s", registry.ErrNotFound, version)
	case b.versions[i].Status == "PENDING_REGISTRATION":
		return registry.Resolution{}, fmt.Errorf("%w: version %s", registry.ErrPending, version)
	}
	loc, err := registry.ParseLocation(b.places[version])
	return registry.Resolution{Ref: ref, Name: "llama", Version: version, Location: loc}, err
}

func (b *backend) Read(ctx context.Context, _ registry.Ref) (registry.Position, error) {
	b.mu.Lock()
	b.reads++
	n, onRead := b.reads, b.onRead
	b.mu.Unlock()
	if onRead != nil {
		onRead(n)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	pos := b.pos
	pos.History = slices.Clone(pos.History)
	return pos, errors.Join(b.failing, ctx.Err())
}

func (b *backend) Move(_ context.Context, _ registry.Ref, c registry.Change) (registry.Position, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.onMove != nil {
		if err := b.onMove(); err != nil {
			return registry.Position{}, err
		}
	}
	if c.Expect.Version != b.pos.Version {
		return registry.Position{}, registry.ErrConflict
	}
	b.moves++
	b.apply(c)
	return b.pos, nil
}

func (b *backend) apply(c registry.Change) {
	e := registry.Entry{
		ID: fmt.Sprintf("%016d", len(b.pos.History)), At: start.Add(time.Duration(len(b.pos.History)) * time.Hour), By: c.By,
		Action: c.Action, From: b.pos.Version, To: c.To, Message: c.Message, Location: c.Location.String(), Digest: c.Digest, State: registry.StateDone,
	}
	b.pos.History = append([]registry.Entry{e}, b.pos.History...)
	b.pos.Version = c.To
	if b.pos.Ref.Kind == registry.KindPointer {
		b.pos.Location, b.pos.Digest = c.Location, c.Digest
	}
}

func (b *backend) Versions(context.Context, registry.Ref) ([]registry.Version, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.versions), b.failing
}

func (b *backend) Init(_ context.Context, ref registry.Ref, c registry.Change) (registry.Position, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.made {
		return registry.Position{}, fmt.Errorf("%s: %w", ref, registry.ErrExists)
	}
	b.made, b.pos.Ref = true, ref
	b.apply(c)
	return b.pos, b.failing
}

func (b *backend) version() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.pos.Version
}

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// world is everything that the commands touch, in memory.
type world struct {
	t        *testing.T
	backend  *backend
	store    *fake.Server
	resolver fetcher.Resolver // instead of the backend, when set
	cluster  *cluster         // nil: none is configured
	hosts    map[string]http.Handler
	env      map[string]string
	deps     pointercmd.Deps
	stdin    string
}

// newWorld has llama at version 2, promoted there from 1; version 3 waits.
func newWorld(t *testing.T) *world {
	t.Helper()
	ref, err := registry.ParseModel("llama@champion")
	require.NoError(t, err)
	w := &world{
		t: t, store: fake.New(fake.Options{}), hosts: map[string]http.Handler{}, env: map[string]string{"USER": "kim"},
		backend: &backend{places: map[string]string{}, pos: registry.Position{Ref: ref, Version: "1"}},
	}
	w.store.CreateBucket(bucket)
	for _, v := range []string{"1", "2", "3"} {
		w.upload(v, model("v"+v))
	}
	w.backend.apply(registry.Change{To: "2", Action: registry.ActionPromote, By: "kim@desk", Message: "better"})
	w.backend.versions[1].Aliases = []string{"champion"}
	return w
}

// upload puts a version into the store and the registry.
func (w *world) upload(version string, files map[string][]byte) {
	for name, data := range files {
		w.store.PutObject(bucket, "llama/"+version+"/"+name, data, fake.PutOptions{})
	}
	w.backend.places[version] = "s3://" + bucket + "/llama/" + version
	w.backend.versions = slices.Insert(w.backend.versions, 0, registry.Version{Version: version, Status: "READY", Created: start})
}

// digest is what the fetcher would call a version.
func (w *world) digest(version string) string {
	w.t.Helper()
	loc, err := registry.ParseLocation(w.backend.places[version])
	require.NoError(w.t, err)
	connect, err := w.connect("")
	require.NoError(w.t, err)
	got, err := fetcher.List(w.t.Context(), fetcher.Options{Ref: w.backend.pos.Ref, Connect: connect, Resolver: fetcher.Fixed{Version: version, Location: loc}})
	require.NoError(w.t, err)
	return got.Manifest.Digest
}

func (w *world) connect(string) (modelsource.Connect, error) {
	client := s3.New(s3.Options{
		Region: "us-east-1", BaseEndpoint: aws.String("http://store"), UsePathStyle: true, Credentials: aws.AnonymousCredentials{},
		HTTPClient: &http.Client{Transport: inMemory{"store": w.store}}, RetryMaxAttempts: 1,
	})
	return func(context.Context, registry.Location) (fetcher.S3API, error) { return client, nil }, nil
}

// inMemory answers requests without sockets, so that time can be faked.
type inMemory map[string]http.Handler

func (m inMemory) RoundTrip(r *http.Request) (*http.Response, error) {
	h, ok := m[r.URL.Host]
	if !ok {
		return nil, errors.New("connection refused")
	}
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	rec := httptest.NewRecorder()
	r = r.Clone(r.Context())
	r.RequestURI = r.URL.RequestURI()
	if r.Body == nil {
		r.Body = http.NoBody
	}
	h.ServeHTTP(rec, r)
	return rec.Result(), nil
}

type outcome struct {
	code           int
	stdout, stderr string
}

// run plays a user: the whole command line, through cobra.
func (w *world) run(args ...string) outcome {
	w.t.Helper()
	return w.runCtx(w.t.Context(), args...)
}

func (w *world) runCtx(ctx context.Context, args ...string) outcome {
	w.t.Helper()
	deps := w.deps
	deps.Getenv = func(name string) string { return w.env[name] }
	deps.Hostname = func() (string, error) { return "laptop", nil }
	deps.Stdin = strings.NewReader(w.stdin)
	deps.HTTP = &http.Client{Transport: inMemory(w.hosts)}
	if deps.Connect == nil {
		deps.Connect = w.connect
	}
	if deps.Open == nil {
		deps.Open = func(registry.Ref, modelsource.Connect) (fetcher.Resolver, error) {
			if w.resolver != nil {
				return w.resolver, nil
			}
			return w.backend, nil
		}
	}
	if deps.Cluster == nil {
		deps.Cluster = func(pointercmd.ClusterFlags) (*pointercmd.Cluster, error) {
			if w.cluster == nil {
				return nil, pointercmd.ErrNoCluster
			}
			return &pointercmd.Cluster{Client: w.cluster.client, Dynamic: w.cluster.dynamic, Proxy: w.cluster.proxy()}, nil
		}
	}
	root := &cobra.Command{Use: "pilotlight"}
	root.AddCommand(pointercmd.Commands(deps)...)
	var stdout, stderr bytes.Buffer
	code := cli.Run(ctx, root, cli.Env{Args: args, Getenv: deps.Getenv, Stdout: &stdout, Stderr: &stderr})
	return outcome{code, stdout.String(), stderr.String()}
}

// requireCode runs and demands a code.
func (w *world) requireCode(code int, args ...string) outcome {
	w.t.Helper()
	out := w.run(args...)
	require.Equal(w.t, code, out.code, "stdout: %s\nstderr: %s", out.stdout, out.stderr)
	return out
}

// requireCodeInTime is requireCode for a command that is short of time: it goes by
// a faked clock, so that a busy machine takes none of it.
func (w *world) requireCodeInTime(code int, args ...string) (out outcome) {
	w.t.Helper()
	synctest.Test(w.t, func(t *testing.T) { out = w.runCtx(t.Context(), args...) })
	require.Equal(w.t, code, out.code, "stdout: %s\nstderr: %s", out.stdout, out.stderr)
	return out
}

// requireUnmoved demands that the pointer still stands where newWorld put it.
func (w *world) requireUnmoved() {
	w.t.Helper()
	require.Equal(w.t, "2", w.backend.version())
	require.Zero(w.t, w.backend.moves)
}

func decode(t *testing.T, text string) map[string]any {
	t.Helper()
	var out map[string]any
	require.NoError(t, json.Unmarshal([]byte(text), &out), text)
	return out
}

// model is a small but valid version; the text tells versions apart.
func model(text string) map[string][]byte {
	return map[string][]byte{
		"config.json":                      []byte(`{"architectures":["` + text + `"]}`),
		"model-00001-of-00002.safetensors": safetensors(text + strings.Repeat("a", 300)),
		"model-00002-of-00002.safetensors": safetensors(text + strings.Repeat("b", 200)),
		"model.safetensors.index.json":     []byte(`{"weight_map":{"a":"model-00001-of-00002.safetensors","b":"model-00002-of-00002.safetensors"}}`),
	}
}

func safetensors(data string) []byte {
	header := fmt.Sprintf(`{"w":{"dtype":"U8","shape":[%d],"data_offsets":[0,%d]}}`, len(data), len(data))
	out := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(out, header...), data...)
}

func answerJSON(w io.Writer, v any) {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	_, _ = w.Write(data)
}
