// Command benchactivator measures what pilotlight-activator adds, and prints
// it beside the goals: its latency above a bare httputil.ReverseProxy, the
// memory of ten thousand held requests, the evenness of a thousand streams,
// how soon a request at zero reaches KEDA, and how soon held requests are
// released.
//
//	go run ./test/benchactivator -activator BIN -scaler BIN [-rounds N] [-only NAMES] [-out FILE]
//
// The programs are the real ones; engine and bare proxy are this program in
// processes of their own, and this process makes the load and reads the times.
// Everything is on loopback. Machines and neighbours drift, so whatever is
// compared is measured in alternation, and the figure is the median of the
// differences between neighbours. FILE gets a JSON list of {name, value, unit}.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/pilotlight-dev/pilotlight/test/internal/figures"
)

// longest bounds the whole run; it usually takes a minute and a half.
const longest = 10 * time.Minute

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	ctx, cancel := context.WithTimeout(ctx, longest)
	var err error
	if len(os.Args) > 1 && os.Args[1] == "role" {
		err = role(ctx, os.Args[2:])
	} else {
		err = run(ctx, os.Args[1:], os.Stdout)
	}
	cancel()
	stop()
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "benchactivator:", err)
		os.Exit(1)
	}
}

type config struct {
	activator, scaler, dir string
	rounds                 int
}

func run(ctx context.Context, args []string, out io.Writer) error {
	var c config
	flags := flag.NewFlagSet("benchactivator", flag.ContinueOnError)
	flags.StringVar(&c.activator, "activator", "", "pilotlight-activator (required)")
	flags.StringVar(&c.scaler, "scaler", "", "pilotlight-scaler (required)")
	flags.IntVar(&c.rounds, "rounds", 9, "rounds of the latency measurement")
	only := flags.String("only", "", "measure these only: latency, hold, stream, wake, release; separated by commas")
	file := flags.String("out", "", "write the figures to this file as JSON")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if c.activator == "" || c.scaler == "" || c.rounds < 1 {
		return errors.New("-activator and -scaler are required, -rounds must be at least 1 (make bench-activator sets them)")
	}
	debug.SetGCPercent(800) // of the load, not of what is measured
	dir, err := os.MkdirTemp("", "benchactivator")
	if err != nil {
		return err
	}
	c.dir = dir
	defer func() { _ = os.RemoveAll(dir) }()
	list, err := measure(ctx, c, *only)
	return errors.Join(err, figures.Print(out, list), figures.Save(*file, list))
}

func measure(ctx context.Context, c config, only string) (list []figures.Figure, err error) {
	parts := []struct {
		name string
		run  func(context.Context, config) ([]figures.Figure, error)
	}{
		{"latency", measureLatency},
		{"hold", measureHold},
		{"stream", measureStreams},
		{"wake", measureWake},
		{"release", measureRelease},
	}
	for _, p := range parts {
		if only != "" && !slices.Contains(strings.Split(only, ","), p.name) {
			continue
		}
		got, err := p.run(ctx, c)
		if err != nil {
			return list, fmt.Errorf("%s: %w", p.name, err)
		}
		list = append(list, got...)
	}
	return list, nil
}
