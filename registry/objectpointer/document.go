package objectpointer

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/pilotlight-dev/pilotlight/registry"
)

// Bounds of the format.
const (
	MaxSize    = 256 << 10 // bytes of the object
	MaxHistory = 100       // moves that it records
	MaxVersion = 128       // characters of a version's name

	format      = 1
	maxLocation = 2048 // bytes
)

// document is the pointer object.
type document struct {
	V        int             `json:"v"`
	Ref      string          `json:"ref,omitempty"`
	Version  string          `json:"version"`
	Location string          `json:"location"`
	Digest   string          `json:"digest"`
	At       time.Time       `json:"at"`
	By       string          `json:"by,omitempty"`
	History  json.RawMessage `json:"history,omitempty"`
}

// decode reads an object. A history that cannot be read is Position.HistoryErr;
// anything else is an error that wraps registry.ErrBroken or ErrUnsupported.
func decode(data []byte) (registry.Position, error) {
	var head struct {
		V *int `json:"v"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return registry.Position{}, fmt.Errorf("%w: it is not a pointer's JSON: %w", registry.ErrBroken, err)
	}
	switch {
	case head.V == nil || *head.V < 1:
		return registry.Position{}, fmt.Errorf(`%w: it has no format number "v": it is not a pointer`, registry.ErrBroken)
	case *head.V > format:
		return registry.Position{}, fmt.Errorf("%w: it is written in format %d and this program reads %d: update it", registry.ErrUnsupported, *head.V, format)
	}
	var doc document
	if err := json.Unmarshal(data, &doc); err != nil {
		return registry.Position{}, fmt.Errorf("%w: it is not a pointer's JSON: %w", registry.ErrBroken, err)
	}
	loc, err := registry.ParseStored(doc.Location)
	if err == nil {
		err = check(doc.Version, loc, doc.Digest)
	}
	if err != nil {
		return registry.Position{}, fmt.Errorf("%w: %w", registry.ErrBroken, err)
	}
	pos := registry.Position{Version: doc.Version, Location: loc, Digest: doc.Digest}
	if len(doc.History) > 0 && string(doc.History) != "null" {
		if pos.History, err = registry.DecodeEntries(doc.History, MaxHistory); err != nil {
			pos.HistoryErr = fmt.Errorf("its history cannot be read in full: %w", err)
		}
	}
	pos.History = registry.Settle(pos.History, pos.Version)
	return pos, nil
}

var (
	errVersion  = fmt.Errorf("a version's name has 1 to %d characters, no control characters, and no space at its ends", MaxVersion)
	errDigest   = errors.New("the digest is not a SHA-256 in lower-case hex")
	errLocation = errors.New("the location is empty")
)

// check accepts what a pointer may name.
func check(version string, loc registry.Location, digest string) error {
	n := utf8.RuneCountInString(version)
	if n < 1 || n > MaxVersion || !utf8.ValidString(version) || strings.ContainsFunc(version, unicode.IsControl) || strings.TrimSpace(version) != version {
		return errVersion
	}
	if loc == (registry.Location{}) {
		return errLocation
	}
	if len(loc.String()) > maxLocation {
		return fmt.Errorf("the location is longer than %d bytes", maxLocation)
	}
	again, err := registry.ParseStored(loc.String())
	if err != nil || again != loc {
		return fmt.Errorf("the location %q cannot be written as it is read", loc.String())
	}
	if raw, err := hex.DecodeString(digest); err != nil || len(raw) != 32 || strings.ToLower(digest) != digest {
		return errDigest
	}
	return nil
}

// encode writes the object that pos describes; its first entry is the move that
// leads there. The oldest moves are left out as the bounds demand.
func encode(pos registry.Position) ([]byte, error) {
	doc := document{V: format, Ref: pos.Ref.String(), Version: pos.Version, Location: pos.Location.String(), Digest: pos.Digest}
	if len(pos.History) > 0 {
		doc.At, doc.By = pos.History[0].At, pos.History[0].By
	}
	const headRoom = 32 << 10 // all other fields at their longest, escaped
	entries := pos.History[:min(len(pos.History), MaxHistory)]
	doc.History = registry.EncodeEntries(entries, MaxSize-headRoom)
	data, err := json.Marshal(doc)
	if err != nil {
		return nil, fmt.Errorf("writing the pointer's JSON: %w", err)
	}
	return append(data, '\n'), nil
}
