package registry

import (
	"errors"
	"fmt"
	"time"
)

// What can go wrong with a move, besides what can go wrong with reading.
var (
	// ErrConflict: somebody else moved the pointer in between; nothing of ours
	// was written, or ours was overtaken.
	ErrConflict = errors.New("the pointer was moved by somebody else")
	// ErrOvertaken is the ErrConflict of a move that was made and recorded, and
	// that another followed before we looked. Only a backend with a
	// compare-and-set can tell.
	ErrOvertaken = fmt.Errorf("%w after ours was made", ErrConflict)
	// ErrExists: there is a pointer already where one should be made.
	ErrExists = errors.New("the pointer exists already")
	// ErrUncertain: the move was sent, but neither its answer nor the look
	// afterwards came through: it may have happened. Reading again tells.
	ErrUncertain = errors.New("it is not known whether the pointer moved")
)

// A Position is where a pointer stands.
type Position struct {
	Ref Ref
	// Version is the version it names now.
	Version string
	// Location and Digest are what the pointer itself records of that version:
	// both empty for MLflow, which is asked with a Resolution instead. Digest is
	// the whole SHA-256 of the manifest in lower-case hex.
	Location Location
	Digest   string
	// Tag identifies this very state where the backend has such a thing (the
	// ETag of a pointer object), and is empty where it has none.
	Tag string
	// History holds the moves that are recorded, newest first. Moves made by hand
	// are not in it; callers merge what agents and the scaler have seen (Merge).
	// Entries whose move is known to have happened are StateDone (Settle).
	History []Entry
	// HistoryErr says what is wrong with the record of moves, such as an edit by
	// hand that cannot be read, or an entry that could not be completed. The
	// pointer itself is as good as ever: never refuse a move because of it.
	HistoryErr error
}

// An Entry records one move.
type Entry struct {
	// ID tells two moves of the same second apart: 16 hex digits.
	ID string    `json:"id"`
	At time.Time `json:"at"`
	// By is who moved it: a user's name, or user@host.
	By string `json:"by,omitempty"`
	// Action is one of the Action constants.
	Action string `json:"action"`
	// From is the version before, empty for the first.
	From string `json:"from,omitempty"`
	To   string `json:"to"`
	// Message says why.
	Message string `json:"message,omitempty"`
	// Location and Digest record what To was, where the backend keeps them.
	Location string `json:"location,omitempty"`
	Digest   string `json:"digest,omitempty"`
	// State is one of the State constants: StatePending is written before the
	// pointer moves, StateDone after.
	State string `json:"state"`
}

// What an Entry records.
const (
	ActionInit     = "init"
	ActionPromote  = "promote"
	ActionRollback = "rollback"
	// ActionSeen is a move that nobody recorded, but that was observed.
	ActionSeen = "seen"

	StatePending = "pending"
	StateDone    = "done"
)

// A Change is a move that is asked for.
type Change struct {
	// Expect is the position the caller has seen; a pointer that stands elsewhere
	// by now is ErrConflict.
	Expect Position
	// To is the version to move to.
	To string
	// Location and Digest describe To (see Position); required where the pointer
	// itself records them.
	Location Location
	Digest   string
	// Action, By and Message go into the history.
	Action, By, Message string
}

// A Version is one that a pointer could name.
type Version struct {
	Version string
	Created time.Time
	// Status is MLflow's: READY, PENDING_REGISTRATION or FAILED_REGISTRATION.
	Status string
	// Aliases name this version now.
	Aliases     []string
	Description string
}
