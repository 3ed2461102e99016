package fetchercmd

import (
	"io"

	"github.com/spf13/cobra"
)

// Commands returns the program's commands, as if getenv were its environment.
func Commands(getenv func(string) string) []*cobra.Command {
	a := &app{getenv: getenv, stdout: io.Discard, stderr: io.Discard}
	return a.command().Commands()
}

// ExitCodesHelp is what --help says of exit codes.
const ExitCodesHelp = exitCodesHelp
