package mlflow

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/pilotlight-dev/pilotlight/registry"
)

// HistoryTag begins the key of the registered-model tag that records the moves
// of an alias, whose name follows.
const HistoryTag = "pilotlight.history."

// maxTag is how long a tag's value may be. MLflow counts 5000 characters; bytes
// are counted here, which are never fewer.
const maxTag = 5000

// maxTagKey is how long MLflow lets a key be, in characters.
const maxTagKey = 250

// maxEntries bounds what is read of a tag; the shortest entry that makes sense
// takes 70 bytes.
const maxEntries = maxTag / 70

// historyTag is the key of an alias's record. Aliases too long for a key are
// named by their SHA-256.
func historyTag(alias string) string {
	key := HistoryTag + alias
	if utf8.RuneCountInString(key) > maxTagKey {
		sum := sha256.Sum256([]byte(alias))
		key = HistoryTag + hex.EncodeToString(sum[:])
	}
	return key
}

// unreadableTag keeps a record that could not be read when a new one replaced
// it, so that somebody can repair what was lost.
func unreadableTag(alias string) string {
	sum := sha256.Sum256([]byte(alias))
	return "pilotlight.unreadable." + hex.EncodeToString(sum[:8])
}

// readHistory decodes a tag; an empty one is an empty history.
func readHistory(tag string) ([]registry.Entry, error) {
	if tag == "" {
		return nil, nil
	}
	return registry.DecodeEntries([]byte(tag), maxEntries)
}

// history is an alias's record as it stands. A tag that cannot be read is
// reported in err, with what could be read of it.
func (c *Client) history(ctx context.Context, ref registry.Ref, m registeredModel) (entries []registry.Entry, err error) {
	entries, err = readHistory(m.tag(historyTag(ref.Selector)))
	if err != nil {
		err = fmt.Errorf("the tag %s of %s is not the history it should be: %w", historyTag(ref.Selector), ref.Name, err)
		c.log.WarnContext(ctx, "the recorded history cannot be read in full; the pointer is not affected", "ref", ref.String(), "error", err)
	}
	return entries, err
}

func (c *Client) writeHistory(ctx context.Context, ref registry.Ref, entries []registry.Entry) error {
	return c.setModelTag(ctx, ref.Name, historyTag(ref.Selector), string(registry.EncodeEntries(entries, maxTag)))
}

// complete marks our entry as done in the record as it stands by now, which
// others may have written to in between. An entry that they overwrote is put
// back where its time belongs.
func (c *Client) complete(ctx context.Context, ref registry.Ref, ours registry.Entry) ([]registry.Entry, error) {
	ours.State = registry.StateDone
	m, err := c.model(ctx, ref.Name)
	if err != nil {
		return nil, err
	}
	entries, _ := readHistory(m.tag(historyTag(ref.Selector))) // reported when it was read first
	if i := slices.IndexFunc(entries, func(e registry.Entry) bool { return e.ID == ours.ID }); i >= 0 {
		entries[i] = ours
	} else {
		at := slices.IndexFunc(entries, func(e registry.Entry) bool { return !e.At.After(ours.At) })
		if at < 0 {
			at = len(entries)
		}
		entries = slices.Insert(entries, at, ours)
	}
	return entries, c.writeHistory(ctx, ref, entries)
}

// retract takes our pending entry out of the record again, after a move that
// was refused. What fails here leaves an entry that readers settle.
func (c *Client) retract(ctx context.Context, ref registry.Ref, ours registry.Entry) {
	m, err := c.model(ctx, ref.Name)
	if err == nil {
		entries, _ := readHistory(m.tag(historyTag(ref.Selector)))
		n := len(entries)
		entries = slices.DeleteFunc(entries, func(e registry.Entry) bool { return e.ID == ours.ID && e.State == registry.StatePending })
		if len(entries) < n {
			err = c.writeHistory(ctx, ref, entries)
		}
	}
	if err != nil {
		c.log.WarnContext(ctx, "the entry of a move that did not happen stays in the history as pending", "ref", ref.String(), "error", err)
	}
}
