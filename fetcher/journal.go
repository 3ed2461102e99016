package fetcher

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"

	"github.com/pilotlight-dev/pilotlight/fetcher/checksum"
	"github.com/pilotlight-dev/pilotlight/fetcher/transfer"
)

const (
	journalPath = metaDir + "/journal"
	maxJournal  = 256 << 20 // bytes; a line is some hundred
	// resumeFrom is the smallest download that is worth keeping, in bytes.
	resumeFrom = 8 << 20
)

// journal is the memory of a download under way: one JSON line for each range
// that is on disk and each object that is verified. It is not synced. After a
// crash of the process it is complete but for a torn last line, after one of the
// machine it may say more than the disk has; so whatever it says is checked
// against the disk before it is believed.
type journal struct {
	root folder

	mu   sync.Mutex
	left map[string]transfer.Record
	file *os.File
}

// journalLine is a line: the first has Digest, the others Path. Gone takes back
// what the lines before it say of the path.
type journalLine struct {
	Digest    string             `json:"digest,omitempty"`
	Path      string             `json:"path,omitempty"`
	Gone      bool               `json:"gone,omitempty"`
	Whole     string             `json:"whole,omitempty"`
	Algorithm checksum.Algorithm `json:"algorithm,omitempty"`
	Off       int64              `json:"off,omitempty"`
	Len       int64              `json:"len,omitempty"`
	CRC       uint64             `json:"crc,omitempty"`
}

// openJournal begins the journal of a version, or goes on with the one that is
// there if it belongs to the same version.
func openJournal(root folder, digest string) (*journal, error) {
	j := &journal{root: root}
	old, left, _, err := readJournal(root, journalPath)
	if err != nil {
		return nil, localError(err)
	}
	flag := os.O_WRONLY | os.O_CREATE | os.O_APPEND
	if old != digest {
		left, flag = nil, flag|os.O_TRUNC
	}
	j.left = left
	if j.file, err = root.OpenFile(journalPath, flag, 0o644); err != nil {
		return nil, localError(fmt.Errorf("opening the journal: %w", err))
	}
	// A blank line ends one that a crash tore.
	begin := journalLine{}
	if old != digest {
		begin.Digest = digest
	}
	return j, j.add(begin)
}

// readJournal returns whose download a journal is of, what it says of it, and
// how many bytes that is. A missing journal is empty.
func readJournal(root folder, name string) (digest string, left map[string]transfer.Record, size int64, err error) {
	f, err := root.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil, 0, nil
	}
	if err != nil {
		return "", nil, 0, fmt.Errorf("opening the journal: %w", err)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxJournal))
	if err = errors.Join(err, f.Close()); err != nil {
		return "", nil, 0, fmt.Errorf("reading the journal: %w", err)
	}
	left = map[string]transfer.Record{}
	sizes := map[string]int64{}
	for line := range bytes.Lines(data) {
		var l journalLine
		if json.Unmarshal(line, &l) != nil {
			continue // torn
		}
		if digest == "" {
			digest = l.Digest
		}
		r := left[l.Path]
		switch {
		case l.Path == "":
			continue
		case l.Gone:
			delete(left, l.Path)
			delete(sizes, l.Path)
			continue
		case l.Whole != "":
			r.Whole = parseChecksum(l.Whole)
		case r.Algorithm == "" || r.Algorithm == l.Algorithm:
			r.Algorithm = l.Algorithm
			r.Pieces = append(r.Pieces, checksum.Piece{Off: l.Off, Len: l.Len, CRC: l.CRC})
		}
		sizes[l.Path] += l.Len
		left[l.Path] = r
	}
	for _, n := range sizes {
		size += n
	}
	return digest, left, size, nil
}

// Left implements transfer.Journal.
func (j *journal) Left(path string) transfer.Record {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.left[path]
}

// has reports whether an earlier run wrote a file.
func (j *journal) has(path string) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	_, ok := j.left[path]
	return ok
}

// forget takes back what an earlier run noted of a file, before another takes
// its place.
func (j *journal) forget(path string) error {
	if !j.has(path) {
		return nil
	}
	if err := j.add(journalLine{Path: path, Gone: true}); err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	delete(j.left, path)
	return nil
}

// Piece implements transfer.Journal.
func (j *journal) Piece(path string, a checksum.Algorithm, p checksum.Piece) error {
	return j.add(journalLine{Path: path, Algorithm: a, Off: p.Off, Len: p.Len, CRC: p.CRC})
}

// Whole implements transfer.Journal. The length of small objects is counted for
// the question whether the download is worth keeping.
func (j *journal) Whole(path string, sum checksum.Sum, size int64) error {
	if sum.Algorithm == "" {
		return nil // nothing to check it by
	}
	return j.add(journalLine{Path: path, Whole: sum.String(), Len: size})
}

func (j *journal) add(l journalLine) error {
	line := []byte("\n")
	if l != (journalLine{}) {
		data, err := json.Marshal(l)
		if err != nil {
			return fmt.Errorf("encoding a line of the journal: %w", err)
		}
		line = append(data, '\n')
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if _, err := j.file.Write(line); err != nil {
		return localError(fmt.Errorf("writing the journal: %w", err))
	}
	return nil
}

// discard removes the journal: nothing of this download is to be resumed.
func (j *journal) discard() error {
	if err := j.root.Remove(journalPath); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return localError(fmt.Errorf("removing the journal: %w", err))
	}
	return nil
}

func (j *journal) close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.file.Close(); err != nil {
		return fmt.Errorf("closing the journal: %w", err)
	}
	return nil
}
