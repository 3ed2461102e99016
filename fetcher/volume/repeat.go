package volume

import (
	"errors"
	"syscall"
)

// maxRepeats bounds how often a call is repeated. A signal now and then is a
// matter of two or three; who gets one for every attempt would go on for ever.
const maxRepeats = 1000

// Repeat makes a system call again that a signal interrupted. File systems in
// user space, and tmpfs of some kernels, answer EINTR when any signal is pending,
// which may be one that Go's runtime sends to its own threads. Package os does the
// same for its calls, but not for all of them.
func Repeat(call func() error) error {
	var err error
	for range maxRepeats {
		if err = call(); !errors.Is(err, syscall.EINTR) {
			return err // the caller names what was done
		}
	}
	return err // as above
}
