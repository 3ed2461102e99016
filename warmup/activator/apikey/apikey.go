// Package apikey knows which API keys may wake a model, by their hashes: at
// zero replicas there is no engine that could check a key, and a stranger's
// request would cost a start.
//
// The file has one SHA-256 per line, 64 hexadecimal digits, as from
//
//	printf %s "$KEY" | sha256sum
//
// What follows the digits is a comment, and so is a line that begins with #.
// The file is looked at again when it has changed; a replacement that cannot
// be read, or that holds no key, leaves the last good one in use. Neither keys
// nor hashes are ever logged.
package apikey

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// ErrFile is wrapped by every error about the file.
var ErrFile = errors.New("API keys")

// recheck is how often the file's time and size are looked at, at most.
const recheck = time.Second

// largest bounds the file: some fifteen thousand keys.
const largest = 1 << 20

// Keys is a set of keys, kept up to date with its file. It is safe for
// concurrent use.
type Keys struct {
	path string
	log  *slog.Logger

	mu      sync.Mutex
	checked time.Time
	changed time.Time
	size    int64
	hashes  [][sha256.Size]byte
}

// Open reads the file. A nil logger discards.
func Open(path string, log *slog.Logger) (*Keys, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	k := &Keys{path: path, log: log}
	if err := k.load(time.Now()); err != nil {
		return nil, err
	}
	return k, nil
}

// Allowed reports whether the key is one of the file's. How long it takes does
// not depend on the key.
func (k *Keys) Allowed(key string) bool {
	hash := sha256.Sum256([]byte(key))
	found := 0
	for _, known := range k.current() {
		found |= subtle.ConstantTimeCompare(hash[:], known[:])
	}
	return found == 1
}

func (k *Keys) current() [][sha256.Size]byte {
	k.mu.Lock()
	defer k.mu.Unlock()
	if now := time.Now(); now.Sub(k.checked) >= recheck {
		if err := k.load(now); err != nil {
			k.log.Warn("keeping the last known API keys", "error", err)
		}
	}
	return k.hashes
}

// load reads the file if it has changed; k.mu is held, or nobody else has k.
func (k *Keys) load(now time.Time) error {
	k.checked = now
	info, err := os.Stat(k.path)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrFile, err)
	}
	if k.hashes != nil && info.ModTime().Equal(k.changed) && info.Size() == k.size {
		return nil
	}
	k.changed, k.size = info.ModTime(), info.Size() // a broken file is reported once
	if info.Size() > largest {
		return fmt.Errorf("%w: %s has more than %d bytes", ErrFile, k.path, largest)
	}
	content, err := os.ReadFile(k.path)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrFile, err)
	}
	hashes, err := parse(content)
	if err != nil {
		return fmt.Errorf("%w: %s: %w", ErrFile, k.path, err)
	}
	k.hashes = hashes
	return nil
}

// parse never repeats a line in an error: it may be a key by mistake.
func parse(content []byte) (hashes [][sha256.Size]byte, err error) {
	n := 0
	for line := range bytes.Lines(content) {
		n++
		words := bytes.Fields(line)
		if len(words) == 0 || words[0][0] == '#' {
			continue
		}
		var hash [sha256.Size]byte
		if len(words[0]) != hex.EncodedLen(len(hash)) {
			return nil, fmt.Errorf("line %d: must begin with the 64 hexadecimal digits of a SHA-256, not with a key", n)
		}
		if _, err := hex.Decode(hash[:], words[0]); err != nil {
			return nil, fmt.Errorf("line %d: must begin with the 64 hexadecimal digits of a SHA-256, not with a key", n)
		}
		hashes = append(hashes, hash)
	}
	if len(hashes) == 0 {
		return nil, errors.New("holds no key, so nobody could be served")
	}
	return hashes, nil
}
