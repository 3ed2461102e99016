package volume

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// answers is a system call that gives these answers one after the other, and the
// last of them from then on.
type answers struct {
	list  []error
	calls int
}

func (a *answers) call() error {
	a.calls++
	return a.list[min(a.calls, len(a.list))-1]
}

func TestAnInterruptedReservationIsMadeAgain(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		answers []error
		want    error
		calls   int
		reason  string
	}{
		"AtOnce":            {[]error{nil}, nil, 1, "nothing to repeat"},
		"Interrupted":       {[]error{unix.EINTR, unix.EINTR, nil}, nil, 3, "a signal says nothing about the disk"},
		"ThenFull":          {[]error{unix.EINTR, unix.ENOSPC}, unix.ENOSPC, 2, "what the repetition finds counts"},
		"Full":              {[]error{unix.ENOSPC}, unix.ENOSPC, 1, "final"},
		"Unknown":           {[]error{unix.EOPNOTSUPP}, nil, 1, "the file grows as it is written"},
		"ThenUnknown":       {[]error{unix.EINTR, unix.ENOSYS}, nil, 2, "as above"},
		"AlwaysInterrupted": {[]error{unix.EINTR}, nil, maxRepeats, "the same, after an end of the attempts"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			a := &answers{list: tc.answers}
			require.ErrorIs(t, reserve(a.call), tc.want, tc.reason)
			require.Equal(t, tc.calls, a.calls)
		})
	}
}

func TestRepeatEndsWithTheLastAnswer(t *testing.T) {
	t.Parallel()
	a := &answers{list: []error{unix.EINTR}}
	require.ErrorIs(t, Repeat(a.call), unix.EINTR)
	require.Equal(t, maxRepeats, a.calls)
	a = &answers{list: []error{unix.EINTR, unix.EIO}}
	require.ErrorIs(t, Repeat(a.call), unix.EIO)
	require.Equal(t, 2, a.calls)
}
