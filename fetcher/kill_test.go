package fetcher_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/fetcher"
	"github.com/pilotlight-dev/pilotlight/internal/s3conf"
	"github.com/pilotlight-dev/pilotlight/registry"
)

// The test binary runs itself as the fetcher, so that it can be killed.
const childEnv = "PILOTLIGHT_TEST_FETCH" // "<url> <root> <location>"

func TestMain(m *testing.M) {
	if args := strings.Fields(os.Getenv(childEnv)); len(args) == 3 {
		if err := fetchAsChild(args[0], args[1], args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// leadsTo resolves every reference to one place.
type leadsTo string

func (to leadsTo) Resolve(_ context.Context, ref registry.Ref) (registry.Resolution, error) {
	loc, err := registry.ParseLocation(string(to))
	return registry.Resolution{Ref: ref, Name: ref.Name, Version: filepath.Base(string(to)), Location: loc}, err
}

func fetchAsChild(url, root, location string) error {
	ref, err := registry.ParseRef("models:/llama@champion")
	if err != nil {
		return err
	}
	_, err = fetcher.Init(context.Background(), fetcher.Options{
		Ref: ref, Root: root, Resolver: leadsTo(location), Connections: 2, Deadline: time.Minute,
		Connect: func(ctx context.Context, _ registry.Location) (fetcher.S3API, error) {
			return s3conf.New(ctx, s3conf.Options{Endpoint: url, Region: "us-east-1", AccessKeyID: "id", SecretAccessKey: "secret"})
		},
	})
	return err
}

// TestKilledAtAnyMoment kills the fetcher with SIGKILL at random moments and
// demands after every kill that `current` names a complete version whose every
// byte is right, or was never there yet, and in the end that one undisturbed run succeeds
// and leaves nothing behind. PILOTLIGHT_TEST_KILLS says how many kills; 500 take
// some minutes.
func TestKilledAtAnyMoment(t *testing.T) {
	const lanes = 3
	kills := (atLeast(t, "PILOTLIGHT_TEST_KILLS", 30) + lanes - 1) / lanes
	for lane := range lanes {
		t.Run(fmt.Sprintf("Lane%d", lane), func(t *testing.T) {
			t.Parallel()
			l := newKillLane(t, uint64(lane)) //nolint:gosec // lane is small and not negative
			killed := 0
			for i := 0; killed < kills && i < 10*kills; i++ {
				if l.killOnce(i) {
					killed++
				}
				l.requireIntact()
			}
			require.Equal(t, kills, killed, "too many runs ended before their kill")
			l.finish(kills)
		})
	}
}

// atLeast reads a count from the environment, def without one.
func atLeast(t *testing.T, name string, def int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return def
	}
	n, err := strconv.Atoi(text)
	require.NoError(t, err, name)
	return n
}

// killLane is one root, its store and its random numbers.
type killLane struct {
	*world
	rng      *rand.Rand
	versions []string
	typical  time.Duration // of an undisturbed run that downloads
	outcomes map[string]int
	// published: `current` has been seen; from then on it is always there.
	published bool
}

func newKillLane(t *testing.T, seed uint64) *killLane {
	w := newWorld(t)
	l := &killLane{world: w, rng: rand.New(rand.NewPCG(seed, 7)), outcomes: map[string]int{}} //nolint:gosec // a test's dice
	for _, v := range []string{"llama/1", "llama/2", "llama/3"} {
		w.put(v, model(v))
		l.versions = append(l.versions, v)
	}
	w.store.SetBytesPerSecond(100_000) // the largest object takes 30 ms
	start := time.Now()
	require.NoError(t, l.child(l.versions[2]).Run())
	l.typical = time.Since(start)
	require.NoError(t, os.RemoveAll(w.root))
	return l
}

func (l *killLane) child(version string) *exec.Cmd {
	exe, err := os.Executable()
	require.NoError(l.t, err)
	cmd := exec.CommandContext(l.t.Context(), exe) //nolint:gosec // this test binary
	// Under -race a process sleeps for a second before it exits, unless told.
	cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0", childEnv+"="+strings.Join([]string{l.url, l.root, "s3://" + bucket + "/" + version}, " "))
	return cmd
}

// killOnce starts a run towards a version, kills it at a random moment and
// reports whether it was killed before it ended.
func (l *killLane) killOnce(i int) bool {
	l.forget()
	target := l.versions[i%len(l.versions)]
	cmd := l.child(target)
	require.NoError(l.t, cmd.Start())
	wait := time.Duration(l.rng.Int64N(int64(l.typical)))
	timer := time.AfterFunc(wait, func() { _ = cmd.Process.Kill() }) // it may have ended: also fine
	err := cmd.Wait()
	timer.Stop()
	staged, _ := filepath.Glob(filepath.Join(l.root, ".staging", "*"))
	folders, _ := filepath.Glob(filepath.Join(l.root, ".staging", "*", "*"))
	switch {
	case err == nil:
		l.outcomes["ended before the kill"]++
	case len(folders) > 0:
		l.outcomes["killed in a download"]++
	case len(staged) > 0:
		l.outcomes["killed while publishing"]++
	default:
		l.outcomes["killed outside of both"]++
	}
	return err != nil
}

// forget removes the versions that are not published, most of the time, so that
// the next run has to download.
func (l *killLane) forget() {
	if l.rng.IntN(4) == 0 {
		return
	}
	current, _ := os.Readlink(filepath.Join(l.root, "current"))
	dirs, err := filepath.Glob(filepath.Join(l.root, "versions", "*"))
	require.NoError(l.t, err)
	for _, dir := range dirs {
		if filepath.Base(dir) != filepath.Base(current) {
			require.NoError(l.t, os.RemoveAll(dir))
		}
	}
}

// requireIntact reads the published version byte by byte; there is none only
// until the first run got that far.
func (l *killLane) requireIntact() {
	l.t.Helper()
	current := filepath.Join(l.root, "current")
	if _, err := os.Lstat(current); os.IsNotExist(err) {
		require.False(l.t, l.published, "current was there before and is gone")
		return
	}
	l.published = true
	data, err := os.ReadFile(filepath.Join(current, ".pilotlight", "manifest.json")) //nolint:gosec // a file of this test
	require.NoError(l.t, err, "current names a version without a manifest")
	m, err := fetcher.DecodeManifest(data)
	require.NoError(l.t, err)
	l.requireCurrent(model(strings.TrimPrefix(m.Location, "s3://"+bucket+"/")))
}

func (l *killLane) finish(kills int) {
	out, err := l.child(l.versions[0]).CombinedOutput()
	require.NoError(l.t, err, string(out))
	l.requireCurrent(model(l.versions[0]))
	require.Empty(l.t, entries(l.t, filepath.Join(l.root, ".staging")), "leftovers of killed runs are swept")
	l.t.Logf("typical run %v, outcomes %v", l.typical.Round(time.Millisecond), l.outcomes)
	if kills >= 50 { // ten kills may all miss
		require.NotZero(l.t, l.outcomes["killed in a download"], "kills must land in the middle of downloads")
	}
}
