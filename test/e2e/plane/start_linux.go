package plane

import (
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// StartBound starts a process that is killed when this one dies, however it dies. The
// kernel ties that to the thread that started it, so one thread starts all.
func StartBound(cmd *exec.Cmd) error {
	starter.Do(func() {
		go func() {
			runtime.LockOSThread() // for good
			for s := range starts {
				s.err <- s.cmd.Start()
			}
		}()
	})
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	result := make(chan error, 1)
	starts <- startCall{cmd, result}
	return <-result
}

type startCall struct {
	cmd *exec.Cmd
	err chan error
}

var (
	starter sync.Once
	starts  = make(chan startCall)
)
