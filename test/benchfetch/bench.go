package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/pilotlight-dev/pilotlight/fetcher"
	"github.com/pilotlight-dev/pilotlight/internal/freeport"
	"github.com/pilotlight-dev/pilotlight/internal/s3conf"
	"github.com/pilotlight-dev/pilotlight/registry"
	"github.com/pilotlight-dev/pilotlight/test/internal/figures"
)

const (
	bucket    = "weights"
	keyID     = "bench"
	secretKey = "not-a-secret-of-anybody"
)

// bench is the server, the folders and the slow link.
type bench struct {
	config
	log      io.Writer
	server   *exec.Cmd
	url      string // of the server
	slow     *proxy
	uploaded map[string]bool
	made     bool // dir is ours to delete
}

func newBench(ctx context.Context, c config, log io.Writer) (*bench, error) {
	b := &bench{config: c, log: log, uploaded: map[string]bool{}}
	if b.dir == "" {
		dir, err := os.MkdirTemp("", "benchfetch")
		if err != nil {
			return nil, fmt.Errorf("making a folder: %w", err)
		}
		b.dir, b.made = dir, true
	}
	if err := os.MkdirAll(b.store(), 0o750); err != nil {
		return nil, fmt.Errorf("making a folder: %w", err)
	}
	addr, err := freeport.Addr(ctx)
	if err != nil {
		return nil, err
	}
	b.url = "http://" + addr
	b.server = exec.CommandContext(ctx, c.versitygw, "--port", addr, "posix", b.store())
	b.server.Env = append(os.Environ(), "ROOT_ACCESS_KEY="+keyID, "ROOT_SECRET_KEY="+secretKey)
	if err := b.server.Start(); err != nil {
		return nil, fmt.Errorf("starting versitygw: %w", err)
	}
	if b.slow, err = newProxy(ctx, addr, 40*time.Millisecond, 40e6/8); err != nil {
		return nil, errors.Join(err, b.close())
	}
	for range 200 {
		if _, err = b.command(ctx, b.url, b.s5cmd, "--endpoint-url", b.url, "mb", "s3://"+bucket); err == nil {
			return b, nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	return nil, errors.Join(fmt.Errorf("versitygw does not answer: %w", err), b.close())
}

func (b *bench) close() error {
	err := b.server.Process.Kill()
	_ = b.server.Wait() // killed: its error says so
	if b.slow != nil {
		err = errors.Join(err, b.slow.close())
	}
	if b.made {
		err = errors.Join(err, os.RemoveAll(b.dir))
	}
	return err // names what failed
}

func (b *bench) store() string { return filepath.Join(b.dir, "store") }

// upload fills a prefix with random objects, and a config.json that makes a
// model of them.
func (b *bench) upload(ctx context.Context, s series) error {
	if b.uploaded[s.prefix] {
		return nil
	}
	src := filepath.Join(b.dir, "source", s.prefix)
	if err := os.MkdirAll(src, 0o750); err != nil {
		return fmt.Errorf("making a folder: %w", err)
	}
	if err := os.WriteFile(filepath.Join(src, "config.json"), []byte(`{"architectures":["Bench"]}`), 0o600); err != nil {
		return fmt.Errorf("writing the source: %w", err)
	}
	for i := range s.count {
		if err := randomFile(filepath.Join(src, fmt.Sprintf("pytorch_model-%05d.bin", i)), s.size); err != nil {
			return fmt.Errorf("writing the source: %w", err)
		}
	}
	if out, err := b.command(ctx, b.url, b.s5cmd, "--endpoint-url", b.url, "cp", src+"/*", "s3://"+bucket+"/"+s.prefix+"/"); err != nil {
		return fmt.Errorf("uploading: %w: %s", err, out)
	}
	b.uploaded[s.prefix] = true
	return os.RemoveAll(src) // names the file
}

func randomFile(name string, size int64) (err error) {
	f, err := os.Create(name)
	if err != nil {
		return err // names the file
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	_, err = io.CopyN(f, rand.Reader, size)
	return err // as above
}

// contend runs one contender into a fresh folder.
func (b *bench) contend(ctx context.Context, s series, name string, round int) (sample, error) {
	dir := filepath.Join(b.dir, fmt.Sprintf("out-%s-%s-%d", s.name, name, round))
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return sample{}, fmt.Errorf("making a folder: %w", err)
	}
	syscall.Sync()
	base, then, _ := strings.Cut(name, "+")
	steps := [][]string{b.contender(s, base, dir)}
	switch then {
	case "sync":
		steps = append(steps, []string{"sync"})
	case "read":
		steps = append(steps, []string{"sh", "-c", `find -L "$0" -name "*.bin" -path "*current*" -o -name "*.bin" -not -path "*versions*" | xargs cat > /dev/null`, dir})
	}
	var total sample
	for _, args := range steps {
		one, err := b.timed(ctx, b.endpoint(s), args)
		if err != nil {
			return sample{}, err
		}
		total.wall += one.wall
		total.cpu += one.cpu
		total.rss = max(total.rss, one.rss)
	}
	if s.count > 100 {
		// A journal-less ext4 looks through recently deleted inodes at every
		// create: many small files stay until the end.
		return total, nil
	}
	return total, os.RemoveAll(dir) // names the file
}

func (b *bench) endpoint(s series) string {
	if s.slow {
		return b.slow.url()
	}
	return b.url
}

// contender is a command that brings the objects of a series to a folder.
func (b *bench) contender(s series, name, dir string) []string {
	url, from := b.endpoint(s), "s3://"+bucket+"/"+s.prefix
	ours := func(args ...string) []string {
		return append([]string{b.fetcher, "init", "--model", from, "--root", dir, "--s3-endpoint", url, "--log-format", "json"}, args...)
	}
	switch name {
	case "durable":
		return ours("--durability", "durable")
	case "durable16":
		return ours("--durability", "durable", "--connections", "16")
	case "ephemeral":
		return ours("--durability", "ephemeral")
	case "s5cmd":
		return []string{b.s5cmd, "--endpoint-url", url, "cp", from + "/*", dir + "/"}
	case "s5cmd64":
		return []string{b.s5cmd, "--endpoint-url", url, "cp", "--concurrency", "64", from + "/*", dir + "/"}
	case "aws":
		return []string{b.aws, "--endpoint-url", url, "s3", "cp", "--recursive", "--only-show-errors", from + "/", dir + "/"}
	}
	return []string{"cp", "-r", filepath.Join(b.store(), bucket, s.prefix), dir}
}

// timed runs a command and measures it.
func (b *bench) timed(ctx context.Context, url string, args []string) (sample, error) {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env = environment(url)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = io.Discard, &out
	start := time.Now()
	if err := cmd.Start(); err != nil {
		return sample{}, fmt.Errorf("starting %s: %w", args[0], err)
	}
	peak := make(chan float64, 1)
	done := make(chan struct{})
	go func() { peak <- watchRSS(cmd.Process.Pid, done) }()
	err := cmd.Wait()
	s := sample{wall: time.Since(start)}
	close(done)
	s.rss = <-peak
	if err != nil {
		return sample{}, fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(out.String()))
	}
	s.cpu = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	return s, nil
}

// watchRSS polls the peak of a process's resident memory, in MiB. (The rusage of
// a child begins with its parent's.)
func watchRSS(pid int, done <-chan struct{}) float64 {
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	var peak float64
	for {
		select {
		case <-done:
			return peak
		case <-ticker.C:
		}
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			continue // it has ended
		}
		for line := range strings.Lines(string(data)) {
			if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
				if kib, err := strconv.ParseFloat(strings.Fields(rest)[0], 64); err == nil {
					peak = max(peak, kib/1024)
				}
			}
		}
	}
}

func environment(url string) []string {
	return append(os.Environ(), "AWS_ACCESS_KEY_ID="+keyID, "AWS_SECRET_ACCESS_KEY="+secretKey, "AWS_REGION=us-east-1",
		"AWS_EC2_METADATA_DISABLED=true", "S3_ENDPOINT_URL="+url)
}

func (b *bench) command(ctx context.Context, url, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = environment(url)
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err // the callers name it
}

// rollback republishes a version that is still on the volume, without asking the
// store.
func (b *bench) rollback(ctx context.Context) ([]figures.Figure, error) {
	for i := range 2 {
		s := series{prefix: fmt.Sprintf("rollback/%d", i), count: 4, size: 4 << 20}
		if err := b.upload(ctx, s); err != nil {
			return nil, err
		}
	}
	ref, err := registry.ParseRef("models:/bench@champion")
	if err != nil {
		return nil, err // a constant
	}
	to := &target{}
	opts := fetcher.Options{Ref: ref, Root: filepath.Join(b.dir, "rollback"), Resolver: to, Connect: func(ctx context.Context, _ registry.Location) (fetcher.S3API, error) {
		return s3conf.New(ctx, s3conf.Options{Endpoint: b.url, Region: "us-east-1", AccessKeyID: keyID, SecretAccessKey: secretKey})
	}}
	var times []float64
	for i := range 2 + 4*b.rounds {
		to.prefix = fmt.Sprintf("rollback/%d", i%2)
		opts.Offline = i >= 2
		start := time.Now()
		res, err := fetcher.Init(ctx, opts)
		if err != nil {
			return nil, err // names the step
		}
		if i >= 2 {
			if !res.Reused || !res.Changed {
				return nil, errors.New("the version on disk was not used")
			}
			times = append(times, float64(time.Since(start).Microseconds())/1000)
		}
	}
	return []figures.Figure{{Name: "rollback_ms", Value: median(times), Unit: "ms", Goal: figures.AtMost(50), Note: "median, without the store"}}, nil
}

type target struct{ prefix string }

// Resolve implements fetcher.Resolver.
func (t *target) Resolve(_ context.Context, ref registry.Ref) (registry.Resolution, error) {
	loc, err := registry.ParseLocation("s3://" + bucket + "/" + t.prefix)
	return registry.Resolution{Ref: ref, Name: ref.Name, Version: filepath.Base(t.prefix), Location: loc}, err
}
