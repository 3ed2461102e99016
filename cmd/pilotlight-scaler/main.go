// Command pilotlight-scaler is a KEDA external scaler for LLM engines.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/pilotlight-dev/pilotlight/cmd/internal/cli"
	"github.com/pilotlight-dev/pilotlight/cmd/internal/scalercmd"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	code := scalercmd.Main(ctx, cli.Env{Args: os.Args[1:], Getenv: os.Getenv, Stdout: os.Stdout, Stderr: os.Stderr})
	stop()
	os.Exit(code)
}
