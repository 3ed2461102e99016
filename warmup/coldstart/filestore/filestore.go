// Package filestore keeps what was learned in one JSON file, for a scaler that
// has no cluster. The file is replaced in one step, and is bounded; a record in
// it that is damaged is reported and left out, and the next write clears it.
//
//	{"records": {"ai/llama/0123456789abcdef": {"v": 1, ...}}}
package filestore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/pilotlight-dev/pilotlight/internal/atomicfile"
	"github.com/pilotlight-dev/pilotlight/warmup/coldstart"
)

// MaxBytes bounds the records in the file.
const MaxBytes = 4 << 20

// Store keeps entries in the file Path, whose folder must exist. One process
// writes it at a time.
type Store struct{ Path string }

var _ coldstart.Store = Store{}

// file is the content of the file.
type file struct {
	Records map[string]json.RawMessage `json:"records"`
}

// Load reads the file. One that does not exist holds nothing; one that is no
// JSON is reported as damaged as a whole.
func (s Store) Load(context.Context) (map[coldstart.Key]coldstart.Entry, []error, error) {
	entries := map[coldstart.Key]coldstart.Entry{}
	records, damaged, err := s.read()
	for _, name := range slices.Sorted(maps.Keys(records)) {
		k, e, err := decode(name, records[name])
		if err != nil {
			damaged = append(damaged, fmt.Errorf("%s, record %s: %w", s.Path, name, err))
			continue
		}
		entries[k] = e
	}
	return entries, damaged, err
}

// Save merges entries into the file.
func (s Store) Save(_ context.Context, entries map[coldstart.Key]coldstart.Entry) error {
	records, _, err := s.read()
	if err != nil {
		return err
	}
	maps.DeleteFunc(records, func(name, body string) bool {
		_, _, err := decode(name, body)
		return err != nil // what is damaged is not carried on
	})
	var errs []error
	for k, e := range entries {
		body, err := coldstart.Encode(k, e)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		records[k.String()] = string(body)
	}
	coldstart.Trim(records, MaxBytes)
	return errors.Join(append(errs, s.write(records))...)
}

// read returns the records by name. They are strings, as coldstart.Trim takes
// them. A file of more than twice MaxBytes is none of ours.
func (s Store) read() (records map[string]string, damaged []error, err error) {
	records = map[string]string{}
	f, err := os.Open(s.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return records, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("reading what was learned: %w", err)
	}
	body, err := io.ReadAll(io.LimitReader(f, 2*MaxBytes+1))
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return nil, nil, fmt.Errorf("reading what was learned: %w", err)
	}
	var content file
	if err := json.Unmarshal(body, &content); err != nil {
		return records, []error{fmt.Errorf("%s: %w: %w", s.Path, coldstart.ErrEntry, err)}, nil
	}
	for name, raw := range content.Records {
		records[name] = string(raw)
	}
	return records, nil, nil
}

func (s Store) write(records map[string]string) (err error) {
	content := file{Records: make(map[string]json.RawMessage, len(records))}
	for name, body := range records {
		content.Records[name] = json.RawMessage(body)
	}
	body, err := json.Marshal(content)
	if err != nil {
		return fmt.Errorf("writing what was learned: %w", err)
	}
	root, err := os.OpenRoot(filepath.Dir(s.Path))
	if err != nil {
		return fmt.Errorf("writing what was learned: %w", err)
	}
	defer func() {
		if cerr := root.Close(); err == nil {
			err = cerr
		}
	}()
	if err := atomicfile.Write(root, filepath.Base(s.Path), body, atomicfile.Options{Perm: 0o600}); err != nil {
		return fmt.Errorf("writing what was learned to %s: %w", s.Path, err)
	}
	return nil
}

func decode(name, body string) (coldstart.Key, coldstart.Entry, error) {
	k, e, err := coldstart.Decode([]byte(body))
	if err == nil && k.String() != name {
		err = fmt.Errorf("%w: it is about %s", coldstart.ErrEntry, k)
	}
	return k, e, err
}
