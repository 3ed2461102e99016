// Package buildinfo says which build is running. The three values are stamped
// by the linker (see the Makefile); a plain `go build` falls back to what the
// Go toolchain recorded.
package buildinfo

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// Stamped with -ldflags "-X ...".
var (
	version = ""
	commit  = ""
	date    = ""
)

// Version returns the release, or "dev" for an unstamped build.
func Version() string {
	if version != "" {
		return version
	}
	return "dev"
}

// String renders version, commit, date and Go version on one line, as
// `--version` prints them.
func String() string {
	c, d := commit, date
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			switch {
			case s.Key == "vcs.revision" && c == "":
				c = s.Value
			case s.Key == "vcs.time" && d == "":
				d = s.Value
			}
		}
	}
	return fmt.Sprintf("%s (commit %s, built %s, %s)", Version(), orUnknown(c), orUnknown(d), runtime.Version())
}

func orUnknown(s string) string {
	if s == "" {
		return "unknown"
	}
	return s
}
