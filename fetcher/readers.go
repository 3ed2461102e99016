package fetcher

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"strings"
	"time"

	"github.com/pilotlight-dev/pilotlight/internal/atomicfile"
)

const (
	readersDir = ".readers"

	// HoldWithAgent is how long a reader's file holds its version after the
	// last beat. An agent beats every 30 s, so that ten minutes without the
	// volume do not cost a pod its weights.
	HoldWithAgent = 10 * time.Minute
	// ReaderBeat is how often an agent beats.
	ReaderBeat = 30 * time.Second
	// HoldWithoutAgent is the same for `init`, after which nobody beats.
	HoldWithoutAgent = 24 * time.Hour

	// unseenGrace is added where the age of a beat can only be read from the
	// clocks of two machines, which may disagree.
	unseenGrace = 24 * time.Hour
)

// readerRecord is the content of .readers/<pod>: this pod's engine uses this
// version, keep it.
type readerRecord struct {
	V       int    `json:"v"`
	Version string `json:"version"` // 12 hex digits
	// Beat grows while somebody looks after the file.
	Beat int64 `json:"beat"`
	// HoldSeconds is how long the file counts after its last beat.
	HoldSeconds int64     `json:"holdSeconds"`
	At          time.Time `json:"at"`
	Link        string    `json:"link,omitempty"`
	Host        string    `json:"host,omitempty"`
}

// readerName is what a pod's uid or name looks like.
var readerName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,252}$`)

// CheckReader refuses a name that cannot be a file. Errors wrap ErrUsage.
func CheckReader(name string) error {
	if !readerName.MatchString(name) {
		return fmt.Errorf("%w: reader %q: want a pod's uid or name", ErrUsage, oneLine(name))
	}
	return nil
}

// Hold writes or renews the file by which a pod keeps a version from being
// collected. The store must be writable for that; on a volume that is mounted
// read-only the error wraps ErrUsage, and the pod relies on retention alone.
func (s *Store) Hold(reader, short, link string, hold time.Duration) error {
	if err := CheckReader(reader); err != nil {
		return err
	}
	if err := s.makeDir(readersDir); err != nil {
		return err
	}
	name := path.Join(readersDir, reader)
	rec := readerRecord{V: 1, Version: short, Beat: 1, HoldSeconds: int64(hold / time.Second), At: time.Now().UTC(), Link: link}
	rec.Host, _ = os.Hostname() // informs people only
	if old, _, err := s.reader(name); err == nil {
		rec.Beat = old.Beat + 1
	}
	data, err := json.Marshal(rec)
	if err != nil {
		return fmt.Errorf("encoding %s: %w", name, err)
	}
	// The same temporary name each time, so that a crash leaves at most one.
	temp := path.Join(readersDir, "."+reader+".tmp")
	if err := s.root.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return localError(fmt.Errorf("removing %s: %w", temp, err))
	}
	if err := atomicfile.Write(s.root, name, append(data, '\n'), atomicfile.Options{Temp: temp}); err != nil {
		return localError(fmt.Errorf("holding version %s in %s: %w", short, s.dir, err))
	}
	return nil
}

// Release gives the version of a reader free. It is no error when there is
// nothing to release.
func (s *Store) Release(reader string) error {
	if err := CheckReader(reader); err != nil {
		return err
	}
	for _, name := range []string{reader, "." + reader + ".tmp"} {
		if err := s.root.Remove(path.Join(readersDir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return localError(fmt.Errorf("removing the reader's file in %s: %w", s.dir, err))
		}
	}
	return nil
}

func (s *Store) reader(name string) (readerRecord, []byte, error) {
	data, err := s.root.ReadFile(name)
	if err != nil {
		return readerRecord{}, nil, err // names the file
	}
	info, err := s.root.Stat(name)
	if err != nil {
		return readerRecord{}, nil, err // as above
	}
	var rec readerRecord
	if err := json.Unmarshal(data, &rec); err != nil {
		return readerRecord{}, data, fmt.Errorf("%w: %s: %w", ErrIntegrity, name, err)
	}
	// The later of the writer's clock and the volume's: a node whose clock was in
	// the past when it wrote must not lose what it uses.
	if written := info.ModTime(); written.After(rec.At) {
		rec.At = written
	}
	return rec, data, nil
}

// holds says which versions living readers use, by version the name of one
// reader. Files of readers that are gone are removed. A file that cannot be
// read now, or not understood, might hold anything: all is then true.
func (s *Store) holds(w *watch, now time.Time) (held map[string]string, all string, err error) {
	names, err := s.list(readersDir)
	if err != nil {
		return nil, "", err
	}
	held = map[string]string{}
	for _, reader := range names {
		if !readerName.MatchString(reader) {
			continue // temporary, .nfs*, or somebody else's
		}
		name := path.Join(readersDir, reader)
		rec, data, err := s.reader(name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			s.log.Warn("a reader's file cannot be read: nothing is collected", "root", s.dir, "file", name, "error", err)
			all = reader
			continue
		}
		if rec.expired(w.unchanged(name, data), now) {
			s.log.Info("a reader is gone", "root", s.dir, "reader", reader, "version", rec.Version)
			if err := s.Release(reader); err != nil {
				return nil, "", err
			}
			continue
		}
		held[rec.Version] = reader
	}
	return held, all, nil
}

// expired judges by what this process has seen for as long as the file holds,
// or else, for processes that do not live that long, by the age that the file
// claims with a day's grace.
func (r readerRecord) expired(unchanged time.Duration, now time.Time) bool {
	hold := time.Duration(r.HoldSeconds) * time.Second
	return unchanged > hold || now.Sub(r.At) > hold+unseenGrace
}

// DefaultReader is the name to use where no pod uid is known: the host's, which
// in a pod is the pod's.
func DefaultReader() string {
	host, err := os.Hostname()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(host)
}
