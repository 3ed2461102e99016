package fetcher

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/pilotlight-dev/pilotlight/internal/atomicfile"
	"github.com/pilotlight-dev/pilotlight/registry"
)

const (
	stateVersion = 1
	maxHistory   = 10 // publications kept in .state.json
)

// State is .state.json: which reference the root serves and what was published,
// newest first. Which version is live is the link's business, not the state's;
// from here come the rule that one root serves one reference, the order in
// which versions are retained, and what people want to know.
type State struct {
	V int `json:"v"`
	// Ref is the reference that the root serves; empty before the first
	// download.
	Ref       string        `json:"ref"`
	Published []Publication `json:"published"`
}

// Publication is one swap of the link.
type Publication struct {
	Digest  string    `json:"digest"`
	Ref     string    `json:"ref"`
	Version string    `json:"version"`
	At      time.Time `json:"at"`
	// By names the program, and the host it ran on.
	By string `json:"by"`
}

// State reads .state.json; a missing or unreadable one is empty.
func (s *Store) State() State {
	st, err := s.readState()
	if err != nil {
		return State{V: stateVersion}
	}
	return st
}

// readState tells a missing state (empty, no error) from one that cannot be
// read now. Text that is not a state, which no crash of ours leaves behind, is
// said in the log and counts as missing.
func (s *Store) readState() (State, error) {
	empty := State{V: stateVersion}
	data, err := s.root.ReadFile(stateFile)
	if errors.Is(err, fs.ErrNotExist) {
		return empty, nil
	}
	if err != nil {
		return empty, localError(fmt.Errorf("reading %s in %s: %w", stateFile, s.dir, err))
	}
	var st State
	if err := json.Unmarshal(data, &st); err != nil {
		s.log.Warn("the state of the root is not readable and will be written anew", "root", s.dir, "file", stateFile, "error", err)
		return empty, nil
	}
	return st, nil
}

// checkRef demands that the root serves ref, or nothing yet.
func (s *Store) checkRef(ref registry.Ref) error {
	st, err := s.readState()
	if err != nil || st.Ref == "" || st.Ref == ref.String() {
		return err
	}
	return fmt.Errorf("%w: the root %s serves %s, and one root serves one reference: use another --root for %s, or give this one away with --adopt-root", ErrUsage, s.dir, st.Ref, ref)
}

// claimRef writes into a root that serves nothing yet which reference it
// serves from now on; with adopt, into any. When two processes claim a fresh
// root at once, one of them wins and the other is told (ErrUsage).
func (s *Store) claimRef(c *claim, ref registry.Ref, adopt bool) error {
	st, err := s.readState()
	if err != nil {
		return err
	}
	switch {
	case st.Ref == ref.String():
		return nil
	case st.Ref != "" && !adopt:
		return s.checkRef(ref)
	}
	fresh := st.Ref == "" && len(st.Published) == 0
	st.V, st.Ref = stateVersion, ref.String()
	if !fresh {
		return localError(s.writeState(c, st))
	}
	data, err := encodeState(st)
	if err != nil {
		return err
	}
	switch err := s.createOnce(stateFile, c.path(".state"), data); {
	case errors.Is(err, fs.ErrExist): // somebody was faster, or left rubbish
		if now, err := s.readState(); err != nil || now.Ref != "" {
			return errors.Join(err, s.checkRef(ref))
		}
		return localError(s.writeState(c, st))
	default:
		return localError(err)
	}
}

// createOnce makes a file appear whole under its name, or fails with
// fs.ErrExist when there is one. Where hard links are missing, it appears empty
// for an instant.
func (s *Store) createOnce(name, temp string, data []byte) error {
	if err := s.createExclusive(temp, data); err != nil {
		return fmt.Errorf("creating %s: %w", temp, err)
	}
	err := s.root.Link(temp, name)
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOTSUP) || errors.Is(err, syscall.ENOSYS) || errors.Is(err, syscall.EXDEV) {
		err = s.createExclusive(name, data)
	}
	if rerr := s.root.Remove(temp); err == nil && rerr != nil {
		err = fmt.Errorf("removing %s: %w", temp, rerr)
	}
	if err != nil {
		return fmt.Errorf("creating %s: %w", name, err)
	}
	return nil
}

func (s *Store) createExclusive(name string, data []byte) (err error) {
	f, err := s.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err // the caller names the file
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := f.Chmod(0o644); err != nil { // whatever the umask
		return err // as above
	}
	if _, err := f.Write(data); err != nil {
		return err // as above
	}
	return f.Sync() // as above
}

// record notes that m was published in the place of the version before. When
// that one is not the latest on record (a crash lost its note), it is noted too:
// how long it stays is counted from now. crossed says that the latest on record
// is another than that before: somebody publishes at the same time, or crashed.
func (s *Store) record(c *claim, m Manifest, before, by string) (crossed bool, err error) {
	st, err := s.readState()
	if err != nil {
		return true, err
	}
	crossed = len(st.Published) > 0 && st.ranks().of(before) != 0
	if before != "" && st.ranks().of(before) != 0 {
		if old, err := s.Manifest(before); err == nil {
			st.Published = slices.Insert(st.Published, 0, Publication{Digest: old.Digest, Ref: old.Ref, Version: old.Version, At: old.CreatedAt})
		}
	}
	entry := Publication{Digest: m.Digest, Ref: m.Ref, Version: m.Version, At: time.Now().UTC(), By: by}
	st.V = stateVersion
	st.Published = slices.Insert(st.Published, 0, entry)
	st.Published = st.Published[:min(len(st.Published), maxHistory)]
	return crossed, s.writeState(c, st)
}

func (s *Store) writeState(c *claim, st State) error {
	data, err := encodeState(st)
	if err != nil {
		return err
	}
	if err := atomicfile.Write(s.root, stateFile, data, atomicfile.Options{Temp: c.path(".state")}); err != nil {
		return fmt.Errorf("writing %s: %w", stateFile, err)
	}
	return nil
}

func encodeState(st State) ([]byte, error) {
	data, err := json.MarshalIndent(st, "", " ")
	if err != nil {
		return nil, fmt.Errorf("encoding %s: %w", stateFile, err)
	}
	return append(data, '\n'), nil
}
