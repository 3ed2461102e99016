package fetcher

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/pilotlight-dev/pilotlight/fetcher/volume"
	"github.com/pilotlight-dev/pilotlight/internal/atomicfile"
)

const lockSuffix = ".lock"

// ourEntry matches the <digest12>.<unique> that begins every name in .staging;
// other names (.nfs*, somebody's files) are left alone.
var ourEntry = regexp.MustCompile(`^[0-9a-f]{12}\.[a-z0-9]{12}`)

// claim is a run's right to the names .staging/<base>* . It holds a lock that
// the kernel releases when the process ends, so that a sweep can tell a crashed
// run from a live one.
type claim struct {
	store *Store
	base  string
	lock  *os.File
	// abort ends the run that has the claim; nil where nobody is to be told.
	abort context.CancelCauseFunc
}

// errTakenOver: the claim was taken away from a process that seemed dead and
// only paused, on a volume whose locks do not reach the other node.
var errTakenOver = fmt.Errorf("%w: it has taken over what this one was downloading: the volume's file locks do not reach all nodes", ErrConflict)

// check fails once the claim was taken away. From then on its files are
// another's, and may be published at any moment.
func (c *claim) check() error {
	if _, err := c.store.root.Lstat(c.path(lockSuffix)); errors.Is(err, fs.ErrNotExist) {
		return errTakenOver
	}
	return nil // what cannot be known now says nothing
}

// path returns the name below the root of one of the claim's entries.
func (c *claim) path(suffix string) string { return path.Join(stagingDir, c.base+suffix) }

// claim takes a new unique name. The lock exists before anything it protects,
// and it is checked to be still in place once it is held: a sweep may have
// taken it away between its creation and the flock.
func (s *Store) claim(short string) (*claim, error) {
	for _, dir := range []string{stagingDir, versionsDir} {
		if err := s.makeDir(dir); err != nil {
			return nil, err
		}
	}
	for range 10 {
		base := short + "." + strings.ToLower(rand.Text()[:12])
		name := path.Join(stagingDir, base+lockSuffix)
		f, err := s.root.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
		if err != nil {
			return nil, localError(fmt.Errorf("creating the lock %s: %w", name, err))
		}
		held, err := s.take(f, name)
		if errors.Is(err, syscall.ENOLCK) || errors.Is(err, syscall.ENOTSUP) || errors.Is(err, syscall.ENOSYS) {
			// No locks on this file system: then nobody sweeps here either.
			s.log.Warn("the volume has no file locks: leftovers of crashed runs will stay in .staging", "root", s.dir, "error", err)
			held, err = true, nil
		}
		if err == nil && held {
			return &claim{store: s, base: base, lock: f}, nil
		}
		if err := errors.Join(err, f.Close()); err != nil {
			return nil, localError(fmt.Errorf("locking %s: %w", name, err))
		}
	}
	return nil, fmt.Errorf("%w: every lock in %s/%s was taken away", ErrUsage, s.dir, stagingDir)
}

// take locks an open file without waiting and reports whether the lock is held
// and the name still means this file.
func (s *Store) take(f *os.File, name string) (bool, error) {
	err := volume.Repeat(func() error { return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) })
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("flock: %w", err)
	}
	mine, err := f.Stat()
	if err != nil {
		return false, err // the caller names the file
	}
	named, err := s.root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && os.SameFile(mine, named), err // the caller names the file
}

// release removes what the claim still has on disk, the lock last. A download
// that another run can go on with stays, like that of a run that was killed.
func (c *claim) release() error {
	if c.store.resumable(c.base) {
		return c.lock.Close()
	}
	err := c.store.removeEntries(c.base)
	return errors.Join(err, c.lock.Close())
}

func (s *Store) removeEntries(base string) error {
	var errs []error
	for _, suffix := range []string{"", ".link", ".state", ".damaged", ".old", ".lease", ".collect", lockSuffix} {
		err := s.root.RemoveAll(path.Join(stagingDir, base+suffix))
		if stillOpen(err) {
			return nil // with the lock file in place, a later sweep tries again
		}
		if err != nil {
			return errors.Join(append(errs, fmt.Errorf("removing %s: %w", base+suffix, err))...)
		}
	}
	return nil
}

// Sweep removes what crashed runs left in .staging and returns how many runs
// that were. Entries whose lock is held belong to a live run and stay, and so do
// downloads that a later run can go on with.
func (s *Store) Sweep() (int, error) {
	bases, err := s.bases()
	if err != nil {
		return 0, err
	}
	swept := 0
	var errs []error
	for _, base := range bases {
		gone, err := s.sweepOne(base)
		if gone {
			swept++
		}
		errs = append(errs, err)
	}
	return swept, errors.Join(errs...)
}

// bases returns the names of all runs that have something in .staging.
func (s *Store) bases() ([]string, error) {
	dir, err := s.root.Open(stagingDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, localError(fmt.Errorf("opening %s: %w", stagingDir, err))
	}
	entries, err := dir.ReadDir(-1)
	if err = errors.Join(err, dir.Close()); err != nil {
		return nil, localError(fmt.Errorf("reading %s: %w", stagingDir, err))
	}
	bases := map[string]bool{}
	for _, e := range entries {
		if base := ourEntry.FindString(e.Name()); base != "" {
			bases[base] = true
		}
	}
	return slices.Sorted(maps.Keys(bases)), nil
}

// sweepOne removes one run's leftovers while holding its lock. Without a lock
// file the run has finished or its lock was the last thing to be removed.
func (s *Store) sweepOne(base string) (bool, error) {
	name := path.Join(stagingDir, base+lockSuffix)
	f, err := s.root.OpenFile(name, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return true, s.removeEntries(base)
	}
	if err != nil {
		return false, localError(fmt.Errorf("opening the lock %s: %w", name, err))
	}
	held, err := s.take(f, name)
	if err == nil && held {
		if s.resumable(base) {
			return false, f.Close()
		}
		err = s.removeEntries(base)
	}
	return held, errors.Join(err, f.Close())
}

// staging is the folder of one download under way.
type staging struct {
	claim   *claim
	root    folder
	dirs    []string
	how     volume.How
	adopted bool // an earlier run's files are here
	journal *journal
}

// stage creates the folder and the folders inside it, or takes over those of a
// dead run that was fetching the same version.
func (c *claim) stage(ctx context.Context, plan Plan, choice volume.Choice) (*staging, error) {
	adopted, err := c.adopt(ctx)
	if err != nil {
		return nil, err
	}
	if err := c.store.makeDir(c.path("")); err != nil {
		return nil, err
	}
	root, err := c.store.root.OpenRoot(c.path(""))
	if err != nil {
		return nil, localError(fmt.Errorf("opening %s: %w", c.path(""), err))
	}
	st := &staging{claim: c, root: root, dirs: append([]string{metaDir}, plan.Dirs...), how: choice.How(), adopted: adopted}
	for _, dir := range st.dirs {
		if err := makeDir(root, dir); err != nil {
			return nil, errors.Join(err, root.Close())
		}
	}
	if st.journal, err = openJournal(root, plan.Manifest.Digest); err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return st, nil
}

// create makes the file of an object. One that an earlier run left is used again
// only if the journal knows what is in it, and if it has no other name: it may
// be a link to the file of a published version, which nobody may write to.
func (st *staging) create(name string, size int64) (*volume.File, error) {
	if err := st.claim.check(); err != nil {
		return nil, err
	}
	again := st.journal.has(name)
	if again {
		info, err := st.root.Lstat(name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("looking at %s: %w", name, err)
		}
		again = err == nil && info.Mode().IsRegular() && !hasOtherNames(info)
	}
	if !again && st.adopted {
		if err := st.vacate(name); err != nil {
			return nil, err
		}
	}
	f, err := volume.Create(st.root, name, size, st.how, again)
	if errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("%w: %s and another object of the version are one file on this volume, which does not tell their names apart: %w", ErrIntegrity, name, err)
	}
	return f, err // names the file
}

// vacate removes the file that an earlier run left in the place of another.
func (st *staging) vacate(name string) error {
	if err := st.journal.forget(name); err != nil {
		return err
	}
	if err := st.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing what was left of %s: %w", name, err)
	}
	return nil
}

// allocated is how much of the plan's space is taken already: files that are
// linked, and those of an earlier run, unless they are links that this run does
// not take over.
func (st *staging) allocated(plan Plan, linked map[string]string) int64 {
	var sum int64
	for _, o := range plan.Fetch {
		blocks := (o.Size + blockSize - 1) / blockSize * blockSize
		if _, ok := linked[o.Path]; ok {
			sum += blocks
		} else if info, err := st.root.Lstat(o.Path); err == nil && !hasOtherNames(info) {
			sum += min(diskUsage(info), blocks)
		}
	}
	return sum
}

// commit writes the manifest, makes the tree durable if it is to be, and moves
// it to versions/, whose own entry publish makes durable.
func (st *staging) commit(ctx context.Context, m Manifest) error {
	if !m.Ephemeral {
		if err := st.syncFiles(ctx, m.Objects); err != nil {
			return localError(err)
		}
	}
	var err error
	if m.Files, err = marks(st.root, ".", m.Objects); err != nil {
		return err
	}
	data, err := m.encode()
	if err != nil {
		return err
	}
	if err := st.journal.discard(); err != nil {
		return err
	}
	if err := atomicfile.Write(st.root, manifestPath, data, atomicfile.Options{Perm: 0o444, NoSync: m.Ephemeral}); err != nil {
		return localError(err)
	}
	for i := len(st.dirs) - 1; i >= 0 && !m.Ephemeral; i-- { // children first
		if err := atomicfile.SyncDir(st.root, st.dirs[i]); err != nil {
			return localError(err)
		}
	}
	if !m.Ephemeral {
		if err := atomicfile.SyncDir(st.root, "."); err != nil {
			return localError(err)
		}
	}
	s := st.claim.store
	return s.install(ctx, st.claim, m)
}

// syncFiles makes the files durable, many at once, so that the file system can
// put them into few transactions.
func (st *staging) syncFiles(ctx context.Context, objects []Object) error {
	const atOnce = 128 // flushes of the disk that wait together are done together
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for _, o := range objects {
		group.Go(func() error {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return volume.Sync(st.root, o.Path) // names the file
		})
	}
	return group.Wait() // as above
}

func (st *staging) close() error { return errors.Join(st.journal.close(), st.root.Close()) } // leaves of release

// install moves the staged tree into place. When the same version has arrived
// meanwhile, ours is discarded; a damaged one is exchanged for ours in one step.
func (s *Store) install(ctx context.Context, c *claim, m Manifest) error {
	final := path.Join(versionsDir, m.Short())
	err := s.root.Rename(c.path(""), final)
	if err == nil {
		return nil
	}
	if !errors.Is(err, syscall.ENOTEMPTY) && !errors.Is(err, syscall.EEXIST) {
		return localError(fmt.Errorf("moving the version into place: %w", err))
	}
	complete, err := s.Complete(ctx, m)
	if err != nil || complete {
		return err
	}
	if err := s.exchange(c.path(""), final); err == nil {
		return nil
	}
	// File systems without an atomic exchange (NFS): in between, `current` may
	// name nothing; before, it named a damaged version.
	if err := s.root.Rename(final, c.path(".damaged")); err != nil {
		return localError(fmt.Errorf("moving a damaged version away: %w", err))
	}
	if err := s.root.Rename(c.path(""), final); err != nil {
		return localError(fmt.Errorf("moving the version into place: %w", err))
	}
	return nil
}

func (s *Store) makeDir(name string) error { return makeDir(s.root, name) }

// makeDir creates one folder that others may enter, whatever the umask.
func makeDir(root folder, name string) error {
	err := root.Mkdir(name, 0o755)
	if errors.Is(err, fs.ErrExist) {
		return checkKind(root, name, true)
	}
	if err == nil {
		err = root.Chmod(name, 0o755)
	}
	if err != nil {
		return localError(fmt.Errorf("creating the folder %s: %w", name, err))
	}
	return nil
}

// freeBytes asks the file system what an unprivileged user may still write.
func freeBytes(dir string) (int64, error) {
	var st unix.Statfs_t
	if err := volume.Repeat(func() error { return unix.Statfs(dir, &st) }); err != nil {
		return 0, fmt.Errorf("asking for the free space of %s: %w", dir, err)
	}
	free := uint64(st.Bavail) * uint64(st.Bsize) //nolint:gosec // types differ by system; neither is negative
	return int64(min(free, 1<<62)), nil
}
