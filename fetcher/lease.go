package fetcher

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/pilotlight-dev/pilotlight/internal/atomicfile"
	"github.com/pilotlight-dev/pilotlight/internal/retry"
)

// Times of the work lease. A holder beats six times before others may think it
// dead: one write that hangs on a slow NFS server does not cost the lease.
const (
	leaseFile = ".lease"
	leaseTTL  = 30 * time.Second
	leaseBeat = leaseTTL / 6
	leasePoll = 500 * time.Millisecond
)

// leaseRecord is the content of .lease. Nothing in it is compared with a clock:
// an observer looks whether it changes while its own clock runs.
type leaseRecord struct {
	V int `json:"v"`
	// Owner is the holder's claim, <digest12>.<unique>.
	Owner string `json:"owner"`
	// Beat grows while the holder lives.
	Beat int64 `json:"beat"`
	// Boot is the kernel that the holder runs on, and Host its name.
	Boot string `json:"boot"`
	Host string `json:"host"`
}

// lease is the right to download into a root that several processes share. It
// saves work and nothing else: without it, or with two holders, each would
// download the same version into a folder of its own, and all but the first
// would discard theirs.
type lease struct {
	store  *Store
	claim  *claim
	record leaseRecord
	cancel context.CancelFunc
	done   sync.WaitGroup
}

// awaitTurn waits until this process holds the lease, or ready reports that the
// work has been done by somebody else (then the lease is nil). It is bounded by
// the context. On file systems where a lease cannot be kept it returns at once,
// with a warning and no lease.
func (s *Store) awaitTurn(ctx context.Context, c *claim, ready func() (bool, error)) (l *lease, done bool, err error) {
	watch := newWatch()
	for waited := false; ; waited = true {
		if done, err = ready(); done || err != nil {
			return nil, done, err
		}
		l, err = s.tryLease(ctx, c, watch)
		if err != nil {
			s.log.WarnContext(ctx, "no lease can be kept on this volume: several processes may download the same version", "root", s.dir, "error", err)
			return nil, false, nil
		}
		if l != nil {
			// The holder before may have finished between our look and its end.
			if done, err = ready(); done || err != nil {
				l.release()
				return nil, done, err
			}
			return l, false, nil
		}
		if !waited {
			s.log.InfoContext(ctx, "another process is downloading into this root: waiting for it", "root", s.dir, "holder", watch.holder)
		}
		if err := retry.Sleep(ctx, leasePoll/2+rand.N(leasePoll)); err != nil { //nolint:gosec // jitter needs no secrecy
			return nil, false, fmt.Errorf("waiting for the download of another process into %s: %w", s.dir, err)
		}
	}
}

// tryLease takes a lease that is free or whose holder is dead; nil means that
// somebody lives and holds it.
func (s *Store) tryLease(ctx context.Context, c *claim, w *watch) (*lease, error) {
	mine := leaseRecord{V: 1, Owner: c.base, Beat: 1, Boot: bootID()}
	mine.Host, _ = os.Hostname() // informs people only
	data, err := json.Marshal(mine)
	if err != nil {
		return nil, fmt.Errorf("encoding %s: %w", leaseFile, err)
	}
	err = s.createOnce(leaseFile, c.path(".lease"), data)
	if errors.Is(err, fs.ErrExist) {
		return nil, s.evictDead(c, w)
	}
	if err != nil {
		return nil, err
	}
	l := &lease{store: s, claim: c, record: mine}
	ctx, l.cancel = context.WithCancel(ctx)
	l.done.Go(func() { l.beat(ctx) })
	return l, nil
}

// evictDead moves the lease of a dead holder away, so that the next attempt
// finds it free. Of several that try, rename lets one succeed per file.
func (s *Store) evictDead(c *claim, w *watch) error {
	data, err := s.root.ReadFile(leaseFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err // names the file
	}
	var record leaseRecord
	_ = json.Unmarshal(data, &record) // half a record is judged by whether it changes
	w.holder = record.Owner + "@" + record.Host
	if !s.ownerDead(record) && w.unchanged(leaseFile, data) < leaseTTL {
		return nil
	}
	taken := c.path(".lease")
	if err := s.root.Rename(leaseFile, taken); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err // names both
	}
	now, err := s.root.ReadFile(taken)
	if err == nil && !bytes.Equal(now, data) {
		// A live one took its place in between: put it back, unless it has been
		// replaced again.
		_ = s.root.Link(taken, leaseFile) // as said: it only saves work
	}
	return errors.Join(err, s.root.Remove(taken))
}

// ownerDead uses what only the same kernel can tell: whether the owner's claim
// is still locked. For owners elsewhere it is false.
func (s *Store) ownerDead(r leaseRecord) bool {
	if boot := bootID(); boot == "" || r.Boot != boot || ourEntry.FindString(r.Owner) != r.Owner || r.Owner == "" {
		return false
	}
	name := path.Join(stagingDir, r.Owner+lockSuffix)
	f, err := s.root.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return errors.Is(err, fs.ErrNotExist)
	}
	free, err := s.take(f, name)
	return errors.Join(err, f.Close()) == nil && free
}

// beat shows that the holder lives until the context ends. A holder whose claim
// was taken away while it was paused ends its run.
func (l *lease) beat(ctx context.Context) {
	ticker := time.NewTicker(leaseBeat)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if err := l.claim.check(); err != nil && l.claim.abort != nil {
			l.claim.abort(err)
			return
		}
		if !l.mine() {
			l.store.log.WarnContext(ctx, "another process took the lease over", "root", l.store.dir)
			return
		}
		l.record.Beat++
		data, err := json.Marshal(l.record)
		if err == nil {
			err = atomicfile.Write(l.store.root, leaseFile, data, atomicfile.Options{Temp: l.claim.path(".lease")})
		}
		if err != nil {
			l.store.log.WarnContext(ctx, "could not renew the lease", "root", l.store.dir, "error", err)
		}
	}
}

func (l *lease) mine() bool {
	data, err := l.store.root.ReadFile(leaseFile)
	var r leaseRecord
	return err == nil && json.Unmarshal(data, &r) == nil && r.Owner == l.record.Owner
}

// release ends the lease; it may be nil.
func (l *lease) release() {
	if l == nil {
		return
	}
	l.cancel()
	l.done.Wait()
	if !l.mine() {
		return
	}
	if err := l.store.root.Remove(leaseFile); err != nil {
		l.store.log.Warn("could not remove the lease", "root", l.store.dir, "error", err)
	}
}

// watch remembers since when, on this process's monotonic clock, files have had
// the content they have. Clocks of other machines, and this machine's being
// set, do not matter to it.
type watch struct {
	mu     sync.Mutex
	seen   map[string]sighting
	holder string
}

type sighting struct {
	content string
	since   time.Time
}

func newWatch() *watch { return &watch{seen: map[string]sighting{}} }

// unchanged returns for how long the file has been seen with this content; 0
// the first time.
func (w *watch) unchanged(name string, content []byte) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s, ok := w.seen[name]; ok && s.content == string(content) {
		return time.Since(s.since)
	}
	w.seen[name] = sighting{string(content), time.Now()}
	return 0
}

// bootID names the running kernel; "" where that is unknown.
func bootID() string {
	data, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}
