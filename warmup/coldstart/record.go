package coldstart

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// version of the records' format.
const version = 1

// ErrEntry marks an entry that could not be read.
var ErrEntry = errors.New("unreadable entry")

// Key names what is learned about: a ScaledObject's trigger.
type Key struct{ Namespace, Name, Trigger string }

// String renders namespace/name/trigger.
func (k Key) String() string { return k.Namespace + "/" + k.Name + "/" + k.Trigger }

// Entry is everything known of one key. It is what a Store keeps.
type Entry struct {
	Templates []Template      `json:"templates,omitempty"` // the one that was started last is the last
	Counted   []string        `json:"counted,omitempty"`   // the pods whose starts are in there, as long as they live
	State     json.RawMessage `json:"state,omitempty"`     // the caller's own memory
	Updated   time.Time       `json:"updated"`
}

// Template is one pod template's recent starts, the latest last.
type Template struct {
	Hash   string  `json:"hash"`
	Starts []Start `json:"starts"`
}

// record is the JSON of one entry.
type record struct {
	Version   int    `json:"v"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Trigger   string `json:"trigger"`
	Entry
}

// Encode renders an entry as a record for a Store. Its error is that of a State
// that is no JSON.
func Encode(k Key, e Entry) ([]byte, error) {
	body, err := json.Marshal(record{version, k.Namespace, k.Name, k.Trigger, e})
	if err != nil {
		return nil, fmt.Errorf("writing what was learned of %s: %w", k, err)
	}
	return body, nil
}

// Decode reads a record. One that is damaged, edited into nonsense or written
// by another release's format is ErrEntry.
func Decode(body []byte) (Key, Entry, error) {
	var r record
	if err := json.Unmarshal(body, &r); err != nil {
		return Key{}, Entry{}, fmt.Errorf("%w: %w", ErrEntry, err)
	}
	fault := ""
	switch {
	case r.Version != version:
		fault = fmt.Sprintf("version %d, this release reads %d", r.Version, version)
	case r.Namespace == "" || r.Name == "":
		fault = "it names no ScaledObject"
	default:
		fault = r.fault()
	}
	if fault != "" {
		return Key{}, Entry{}, fmt.Errorf("%w: %s", ErrEntry, fault)
	}
	return Key{r.Namespace, r.Name, r.Trigger}, r.Entry, nil
}

// fault says what in e no Learner has written, "" if nothing.
func (e Entry) fault() string {
	if len(e.Templates) > templatesKept {
		return fmt.Sprintf("%d templates, at most %d are kept", len(e.Templates), templatesKept)
	}
	for _, t := range e.Templates {
		if len(t.Starts) > Kept {
			return fmt.Sprintf("%d starts of template %q, at most %d are kept", len(t.Starts), t.Hash, Kept)
		}
		for _, s := range t.Starts {
			if !s.possible() {
				return "a start time that cannot be"
			}
		}
	}
	return ""
}

// Spare is the Trigger of entries that are good to have only: Trim drops them
// before any other.
const Spare = "moves"

// Trim drops from records, which are the values of data, until names and records
// together have at most limit bytes: first those that cannot be read, then Spare
// ones, then what was learned; of each, those not written for longest.
func Trim(data map[string]string, limit int) {
	total := 0
	for name, body := range data {
		total += len(name) + len(body)
	}
	if total <= limit {
		return
	}
	const unreadable, spare, learned = 0, 1, 2
	names := slices.Collect(maps.Keys(data))
	rank, age := map[string]int{}, map[string]time.Time{}
	for _, name := range names {
		k, e, err := Decode([]byte(data[name]))
		switch {
		case err != nil:
			rank[name] = unreadable
		case k.Trigger == Spare:
			rank[name] = spare
		default:
			rank[name] = learned
		}
		age[name] = e.Updated
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(rank[a], rank[b]), age[a].Compare(age[b]), strings.Compare(a, b))
	})
	for _, name := range names {
		if total <= limit {
			return
		}
		total -= len(name) + len(data[name])
		delete(data, name)
	}
}
