//go:build unix

package transfer

import (
	"syscall"
	"time"
)

// readCPU is the processor time that this process has used.
func readCPU() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
