package e2e

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/internal/freeport"
	"github.com/pilotlight-dev/pilotlight/test/e2e/node"
	"github.com/pilotlight-dev/pilotlight/test/e2e/plane"
)

// nodeName is what pods name in spec.nodeName: there is no scheduler.
const nodeName = "node-1"

// world is what all scenarios share.
type world struct {
	*plane.Plane
	node *node.Node
	bin  string // Pilotlight's binaries and the engine
	dir  string
	out  string // for what is kept
	kept string // for logs, in out if there is one
}

var (
	theWorld     *world
	shutDown     = func() {}
	startedWorld sync.Once
	worldError   error
)

func TestMain(m *testing.M) {
	if err := manyAtOnce(); err != nil {
		panic(err)
	}
	code := m.Run()
	shutDown()
	os.Exit(code)
}

// manyAtOnce plays six scenarios for each processor, unless -parallel says
// otherwise: most of the time they wait for KEDA, the HPA or a cold start.
func manyAtOnce() error {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if given {
		return nil
	}
	return flag.Set("test.parallel", strconv.Itoa(min(max(6*runtime.GOMAXPROCS(0), 8), 16)))
}

// enter returns the world, which the first scenario starts.
func enter(t *testing.T) *world {
	t.Helper()
	tools := os.Getenv("PILOTLIGHT_E2E_BIN")
	if tools == "" {
		t.Skip("needs a control plane: run make e2e")
	}
	startedWorld.Do(func() { theWorld, worldError = start(tools) })
	require.NoError(t, worldError)
	return theWorld
}

func start(tools string) (*world, error) {
	ctx, cancel := context.WithCancel(context.Background())
	dir, err := os.MkdirTemp("", "pilotlight-e2e")
	if err != nil {
		cancel()
		return nil, err
	}
	w := &world{dir: dir, bin: filepath.Join(dir, "bin"), out: os.Getenv("PILOTLIGHT_E2E_OUT"), kept: filepath.Join(dir, "logs")}
	if w.out != "" {
		w.kept = filepath.Join(w.out, "logs")
	}
	if err := errors.Join(os.RemoveAll(w.kept), os.MkdirAll(w.kept, 0o750)); err != nil { // of the run before
		cancel()
		return nil, err // names the folder
	}
	shutDown = func() {
		cancel()
		if w.Plane != nil {
			w.Close()
		}
		if os.Getenv("PILOTLIGHT_E2E_KEEP") == "" {
			_ = os.RemoveAll(dir)
		} else {
			fmt.Println("kept:", dir)
		}
	}
	if err := build(ctx, w.bin); err != nil {
		return nil, err
	}
	if w.Plane, err = plane.Start(ctx, plane.Options{Bin: tools, CRDs: os.Getenv("PILOTLIGHT_E2E_CRDS"), Dir: filepath.Join(dir, "plane"), Logs: filepath.Join(w.kept, "plane")}); err != nil {
		return nil, err
	}
	w.node = node.New(node.Options{
		Client: w.Client, Name: nodeName, Bin: w.bin, Dir: filepath.Join(dir, "node"), Logs: filepath.Join(w.kept, "node"),
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	running := make(chan struct{})
	go func() {
		defer close(running)
		if err := w.node.Run(ctx); err != nil {
			slog.Error("the node", "error", err)
		}
	}()
	end := shutDown
	shutDown = func() {
		cancel()
		<-running
		end()
	}
	return w, nil
}

// build makes the binaries that the pods and the scenarios run.
func build(ctx context.Context, dir string) error {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	for _, pkg := range []string{"cmd/pilotlight", "cmd/pilotlight-scaler", "cmd/pilotlight-activator", "cmd/pilotlight-fetcher", "test/e2e/fakevllm"} {
		out, err := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", filepath.Join(dir, filepath.Base(pkg)), "../../"+pkg).CombinedOutput()
		if err != nil {
			return fmt.Errorf("building %s: %w: %s", pkg, err, out)
		}
	}
	return nil
}

// freeAddr finds a loopback address that nobody listens on.
func freeAddr(t *testing.T) string {
	t.Helper()
	addr, err := freeport.Addr(t.Context())
	require.NoError(t, err)
	return addr
}

// eventually waits until a condition holds, and says what it last was.
func eventually(t *testing.T, limit time.Duration, what string, now func() (string, bool)) {
	t.Helper()
	deadline := time.Now().Add(limit)
	for {
		state, ok := now()
		if ok {
			return
		}
		if time.Now().After(deadline) {
			require.FailNow(t, fmt.Sprintf("not within %v: %s", limit, what), "it is: %s", state)
		}
		select {
		case <-t.Context().Done():
			require.FailNow(t, "the test has ended: "+what)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func kebab(name string) string {
	var b strings.Builder
	for i, r := range strings.TrimPrefix(name, "Test") {
		if r >= 'A' && r <= 'Z' && i > 0 {
			b.WriteByte('-')
		}
		if r == '/' || r == '_' {
			r = '-'
		}
		b.WriteString(strings.ToLower(string(r)))
	}
	return b.String()
}
