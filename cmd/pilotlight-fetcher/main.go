// Command pilotlight-fetcher brings a model version from an object store to a
// folder and publishes it atomically. See `pilotlight-fetcher init --help`.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/pilotlight-dev/pilotlight/cmd/internal/fetchercmd"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	code := fetchercmd.Process{Args: os.Args[1:], Getenv: os.Getenv, Stdout: os.Stdout, Stderr: os.Stderr, Threads: fetchercmd.Threads}.Main(ctx)
	stop()
	os.Exit(code)
}
