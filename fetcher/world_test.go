package fetcher_test

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"io"
	"io/fs"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/fetcher"
	"github.com/pilotlight-dev/pilotlight/fetcher/volume"
	fake "github.com/pilotlight-dev/pilotlight/internal/fake/s3"
	"github.com/pilotlight-dev/pilotlight/internal/s3conf"
	"github.com/pilotlight-dev/pilotlight/registry"
)

const bucket = "weights"

// world is a store with models, a pointer that tests move, and a root.
type world struct {
	t     testing.TB
	store *fake.Server
	url   string
	root  string
	// durability is Ephemeral while there is nothing to wait for the disk with:
	// shards in ranges, large files, killed processes and crashes are written as
	// the mount demands.
	durability volume.Durability

	mu       sync.Mutex
	location string // where the pointer leads
	version  string
	failing  error // of the resolver
}

func newWorld(t testing.TB) *world {
	t.Helper()
	store := fake.New(fake.Options{})
	store.CreateBucket(bucket)
	return newWorldOn(t, store)
}

// model is a small but valid version; the text tells versions apart.
func model(text string) map[string][]byte {
	return map[string][]byte{
		"config.json":                      []byte(`{"architectures":["` + text + `"]}`),
		"model-00001-of-00002.safetensors": safetensors(text + strings.Repeat("a", 3000)),
		"model-00002-of-00002.safetensors": safetensors(text + strings.Repeat("b", 2000)),
		"model.safetensors.index.json":     []byte(`{"weight_map":{"a":"model-00001-of-00002.safetensors","b":"model-00002-of-00002.safetensors"}}`),
		"tokenizer/vocab.json":             []byte(text),
		"tokenizer/empty.txt":              {},
	}
}

// safetensors wraps data as a file with one tensor.
func safetensors(data string) []byte {
	header, err := json.Marshal(map[string]any{"w": map[string]any{"dtype": "U8", "shape": []int{len(data)}, "data_offsets": []int{0, len(data)}}})
	if err != nil {
		panic(err)
	}
	out := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(out, header...), data...)
}

// put uploads a version below a prefix and points at it.
func (w *world) put(prefix string, files map[string][]byte) {
	for name, data := range files {
		if len(data) > 1<<20 {
			w.durability = volume.Auto
		}
		w.store.PutObject(bucket, prefix+"/"+name, data, fake.PutOptions{})
	}
	w.point(prefix)
}

// point moves the pointer, as setting an alias does.
func (w *world) point(prefix string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.location, w.version = "s3://"+bucket+"/"+prefix, filepath.Base(prefix)
}

func (w *world) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failing = err
}

// Resolve implements fetcher.Resolver.
func (w *world) Resolve(_ context.Context, ref registry.Ref) (registry.Resolution, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failing != nil {
		return registry.Resolution{}, w.failing
	}
	loc, err := registry.ParseLocation(w.location)
	return registry.Resolution{Ref: ref, Name: ref.Name, Version: w.version, Location: loc}, err
}

func (w *world) options() fetcher.Options {
	w.t.Helper()
	ref, err := registry.ParseRef("models:/llama@champion")
	require.NoError(w.t, err)
	return fetcher.Options{
		Ref: ref, Root: w.root, Resolver: w, Deadline: 2 * time.Minute, Durability: w.durability,
		RetryBase: time.Millisecond, RetryMax: 5 * time.Millisecond,
		Connect: func(ctx context.Context, _ registry.Location) (fetcher.S3API, error) {
			return s3conf.New(ctx, s3conf.Options{Endpoint: w.url, Region: "us-east-1", AccessKeyID: "id", SecretAccessKey: "secret"})
		},
	}
}

func (w *world) init() (fetcher.Result, error) {
	w.t.Helper()
	return fetcher.Init(w.t.Context(), w.options())
}

func (w *world) mustInit() fetcher.Result {
	w.t.Helper()
	res, err := w.init()
	require.NoError(w.t, err)
	return res
}

// requireCurrent demands that `current` holds exactly these files.
func (w *world) requireCurrent(want map[string][]byte) {
	w.t.Helper()
	require.Equal(w.t, contents(want), readTree(w.t, filepath.Join(w.root, "current")))
}

// requireUntouched runs do and demands that the root looks the same after it.
func (w *world) requireUntouched(do func()) {
	w.t.Helper()
	before := snapshot(w.t, w.root)
	do()
	require.Equal(w.t, before, snapshot(w.t, w.root))
}

func contents(files map[string][]byte) map[string]string {
	out := map[string]string{}
	for name, data := range files {
		out[name] = string(data)
	}
	return out
}

// readTree reads a published version through the link, without our metadata.
func readTree(t testing.TB, link string) map[string]string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(link)
	require.NoError(t, err)
	out := map[string]string{}
	require.NoError(t, fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasPrefix(name, ".pilotlight/") {
			return err
		}
		data, err := os.ReadFile(filepath.Join(dir, name)) //nolint:gosec // a file of this test
		out[name] = string(data)
		return err
	}))
	return out
}

// snapshot describes everything below a folder: kinds, modes, hashes, targets.
// An absent or empty .staging is the same.
func snapshot(t testing.TB, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	if _, err := os.Lstat(dir); os.IsNotExist(err) {
		return out
	}
	require.NoError(t, filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		text := info.Mode().String()
		switch {
		case info.Mode()&fs.ModeSymlink != 0:
			target, err := os.Readlink(name)
			if err != nil {
				return err
			}
			text += " " + target
		case info.Mode().IsRegular():
			data, err := os.ReadFile(name) //nolint:gosec // a file of this test
			if err != nil {
				return err
			}
			sum := sha256.Sum256(data)
			text += " " + hex.EncodeToString(sum[:])
		}
		if rel, _ := filepath.Rel(dir, name); rel != "." && rel != ".staging" && rel != "versions" {
			out[rel] = text
		}
		return nil
	}))
	return out
}

// newWorldOn is a world around a given store.
func newWorldOn(t testing.TB, store *fake.Server) *world {
	t.Helper()
	w := &world{t: t, store: store, root: filepath.Join(t.TempDir(), "models"), durability: volume.Ephemeral}
	ts := httptest.NewServer(store)
	t.Cleanup(ts.Close)
	w.url = ts.URL
	return w
}

func textLogger(w io.Writer) *slog.Logger { return slog.New(slog.NewTextHandler(w, nil)) }
