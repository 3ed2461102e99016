//go:build !linux

package plane

import "os/exec"

// StartBound starts a process.
func StartBound(cmd *exec.Cmd) error { return cmd.Start() }
