// Command testcount runs `go test` and sums it up: one line for each package,
// the whole output of what failed, and last of all how many tests passed,
// failed and were skipped.
//
//	go run ./hack/testcount [-out FILE] -- [flags of go test] PACKAGES
//
// Each case counts once. A test with subtests is not counted beside them,
// unless it failed and none of them did. A package that does not build, or
// dies outside of a test, counts as one failure. The exit code is 1 when
// anything failed or no package was tested.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "testcount:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("testcount", flag.ContinueOnError)
	file := flags.String("out", "", "write the last line to this file, too")
	if err := flags.Parse(args); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", append([]string{"test", "-json"}, flags.Args()...)...) //nolint:gosec // the caller's own arguments
	cmd.Stderr = os.Stderr
	events, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("running go test: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("running go test: %w", err)
	}
	s := newSummary(out)
	readErr := s.read(events)
	waitErr := cmd.Wait()
	total := s.total()
	if _, err := fmt.Fprintln(out, total); err != nil {
		return err
	}
	return errors.Join(readErr, save(*file, total), verdict(total, waitErr))
}

// verdict is the error to end with: go test's own, unless the count says it
// already.
func verdict(t total, waitErr error) error {
	switch {
	case t.failed > 0:
		return fmt.Errorf("%d failed", t.failed)
	case waitErr != nil:
		return fmt.Errorf("go test: %w", waitErr)
	case t.packages == 0:
		return errors.New("no package was tested")
	}
	return nil
}

func save(file string, t total) error {
	if file == "" {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
		return err
	}
	return os.WriteFile(file, []byte(t.String()+"\n"), 0o600)
}
