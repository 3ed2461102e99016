// Command bench measures what the design promises and prints it beside the
// goals: the parser of engine metrics, the policy, the latency of KEDA's RPCs
// with a thousand targets, and how soon a held request reaches KEDA. Sockets
// are real and on loopback; the cluster is in memory.
//
//	go run ./test/bench [-out FILE]
//
// FILE gets a JSON list of {name, value, unit}.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"github.com/pilotlight-dev/pilotlight/test/internal/figures"
)

// longest bounds the whole run: it usually takes 20 s.
const longest = 2 * time.Minute

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	ctx, cancel := context.WithTimeout(ctx, longest)
	err := run(ctx, os.Args[1:], os.Stdout)
	cancel()
	stop()
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	file := flags.String("out", "", "write the figures to this file as JSON")
	page := flags.String("page", "scaler/engine/testdata/metrics/vllm-metrics-v1.txt", "metrics page to parse")
	if err := flags.Parse(args); err != nil {
		return err
	}
	body, err := os.ReadFile(*page)
	if err != nil {
		return fmt.Errorf("reading the metrics page (bench runs from the top of the project): %w", err)
	}
	list, err := measure(ctx, body)
	if err != nil {
		return err
	}
	return errors.Join(figures.Print(out, list), figures.Save(*file, list))
}

func measure(ctx context.Context, page []byte) ([]figures.Figure, error) {
	list, err := measureParse(page)
	if err != nil {
		return nil, err
	}
	list = append(list, measureDecide())
	served, err := measureServing(ctx, page)
	return append(list, served...), err
}
