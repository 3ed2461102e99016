package transfer

import "errors"

// The classes of failure that a Source reports, by which a transfer decides what
// another attempt is worth. Everything else is final.
var (
	// ErrUnreachable: the store did not answer, or not usefully. Repeated until
	// the context ends.
	ErrUnreachable = errors.New("the object store is unreachable")
	// ErrDenied: the store refused our credentials or request. Final.
	ErrDenied = errors.New("the object store refused access")
	// ErrIntegrity: the content is not what was listed. Final, unless it is
	// ErrDoubtful too.
	ErrIntegrity = errors.New("integrity violated")
)

// Causes inside the classes.
var (
	// ErrDoubtful may be the wire's fault: tried a few times.
	ErrDoubtful = errors.New("wrong content")
	// ErrCredentials may be renewed: tried a few times.
	ErrCredentials = errors.New("no valid credentials")
	// ErrThrottled comes with ErrUnreachable: the store wants fewer requests.
	ErrThrottled = errors.New("the object store asks to slow down")

	errStalled = errors.New("no progress")
	errShort   = errors.New("the body ended early")
)

const (
	maxDoubtful    = 3
	maxCredentials = 4
)

// limited returns a judge of one task's failures: an unreachable store is tried
// until the context ends, doubtful content and credentials a few times.
func limited() func(error) bool {
	doubtful, credentials := 0, 0
	return func(err error) bool {
		switch {
		case errors.Is(err, ErrDoubtful):
			doubtful++
			return doubtful < maxDoubtful
		case errors.Is(err, ErrCredentials):
			credentials++
			return credentials < maxCredentials
		}
		return errors.Is(err, ErrUnreachable)
	}
}
