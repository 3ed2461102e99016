// Command fakevllm stands in for vLLM's container on the node of package node: it
// takes vLLM's flags that matter to a Deployment, and serves the simulated engine
// of internal/fake/engine on the pod's own address.
//
// What vLLM has no flags for comes from the environment: SIM_START_DELAY,
// SIM_SLOTS, SIM_DECODE_INTERVAL, SIM_SHUTDOWN_TIMEOUT, SIM_FAIL_START=1,
// SIM_HANG_START=1 and SIM_EXIT_AFTER.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/pilotlight-dev/pilotlight/internal/fake/engine"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	err := run(ctx, os.Args[1:], os.Getenv)
	stop()
	if err != nil && !errors.Is(err, context.Canceled) {
		_, _ = fmt.Fprintln(os.Stderr, "fakevllm:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, getenv func(string) string) error {
	var c engine.Config
	// "vllm serve MODEL --port 8000": the model may be an argument.
	for len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		if args[0] != "serve" {
			c.ModelDir = args[0]
		}
		args = args[1:]
	}
	fs := flag.NewFlagSet("fakevllm", flag.ContinueOnError)
	port := fs.Int("port", 8000, "port")
	fs.StringVar(&c.Model, "served-model-name", "", "served name")
	fs.StringVar(&c.ModelDir, "model", c.ModelDir, "folder with the weights")
	timeout := fs.Int("shutdown-timeout", 0, "seconds that running requests may go on")
	for _, ignored := range []string{"tokenizer", "tensor-parallel-size", "max-model-len", "gpu-memory-utilization", "dtype", "host"} {
		fs.String(ignored, "", "ignored")
	}
	if err := fs.Parse(args); err != nil {
		return err // it has been printed
	}
	c.ShutdownTimeout = time.Duration(*timeout) * time.Second
	if err := simulate(&c, getenv); err != nil {
		return err
	}
	c.Logger = slog.New(slog.NewJSONHandler(os.Stderr, nil))
	return engine.New(c).Run(ctx, net.JoinHostPort(getenv("POD_IP"), strconv.Itoa(*port)))
}

// simulate reads the SIM_ variables.
func simulate(c *engine.Config, getenv func(string) string) error {
	durations := map[string]*time.Duration{
		"SIM_START_DELAY": &c.StartDelay, "SIM_DECODE_INTERVAL": &c.DecodeInterval,
		"SIM_SHUTDOWN_TIMEOUT": &c.ShutdownTimeout, "SIM_EXIT_AFTER": &c.ExitAfter,
	}
	for name, to := range durations {
		text := getenv(name)
		if text == "" {
			continue
		}
		d, err := time.ParseDuration(text)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		*to = d
	}
	if text := getenv("SIM_SLOTS"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			return fmt.Errorf("SIM_SLOTS: %w", err)
		}
		c.Slots = n
	}
	c.FailStart, c.HangStart = getenv("SIM_FAIL_START") == "1", getenv("SIM_HANG_START") == "1"
	return nil
}
