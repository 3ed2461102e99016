package pointercmd

import (
	"bufio"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/pilotlight-dev/pilotlight/cmd/internal/cli"
)

// mayAsk refuses at once to write without a yes that nobody can be asked for.
func (a *app) mayAsk() error {
	if a.yes || a.dryRun || a.StdinTTY && a.StderrTTY {
		return nil
	}
	return cli.Usage("there is no terminal to ask on: add --yes to write without being asked, or --dry-run to see what would be written")
}

// confirm asks, unless --yes was given. Anything but yes is no.
func (a *app) confirm(ctx context.Context, format string, args ...any) error {
	if a.yes {
		return nil
	}
	say(a.err, "%s [y/N] ", clean(fmt.Sprintf(format, args...)))
	answered := make(chan string, 1)
	go func() { // a terminal's read cannot be interrupted: it ends with the process
		line, _ := bufio.NewReader(a.Stdin).ReadString('\n')
		answered <- strings.ToLower(strings.TrimSpace(line))
	}()
	timer := time.NewTimer(promptTimeout)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		say(a.err, "\n")
		return cli.Usage("nobody answered within %v, nothing was written", promptTimeout)
	case answer := <-answered:
		if answer == "y" || answer == "yes" {
			return nil
		}
		return cli.Usage("not confirmed, nothing was written")
	}
}
