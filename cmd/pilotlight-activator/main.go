// Command pilotlight-activator is the proxy that holds requests while a model is asleep.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/pilotlight-dev/pilotlight/cmd/internal/activatorcmd"
	"github.com/pilotlight-dev/pilotlight/cmd/internal/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	code := activatorcmd.Main(ctx, cli.Env{Args: os.Args[1:], Getenv: os.Getenv, Stdout: os.Stdout, Stderr: os.Stderr})
	stop()
	os.Exit(code)
}
