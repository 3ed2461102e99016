package fetcher

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"
)

// resumable reports whether a run has left a download in .staging that is worth
// going on with: its journal knows of resumeFrom bytes, and the version is not
// on the volume by now.
func (s *Store) resumable(base string) bool {
	name := path.Join(stagingDir, base, journalPath)
	digest, _, size, err := readJournal(s.root, name)
	if err != nil || size < resumeFrom || !strings.HasPrefix(base, digest[:min(len(digest), shortDigits)]+".") {
		return false
	}
	short, _, _ := strings.Cut(base, ".")
	_, err = s.root.Lstat(path.Join(versionsDir, short))
	return errors.Is(err, fs.ErrNotExist)
}

// adopt gives the claim the download of a dead run that was fetching the same
// version, and removes those of other versions: a volume has room for one. Whose
// lock is held lives.
func (c *claim) adopt(ctx context.Context) (adopted bool, err error) {
	bases, err := c.store.bases()
	if err != nil {
		return false, err
	}
	short, _, _ := strings.Cut(c.base, ".")
	for _, base := range bases {
		if base == c.base || !c.store.resumable(base) {
			continue
		}
		mine := !adopted && strings.HasPrefix(base, short+".")
		taken, err := c.takeOver(base, mine)
		if err != nil {
			c.store.log.WarnContext(ctx, "could not take over what an earlier run left", "root", c.store.dir, "name", base, "error", err)
		}
		if adopted = adopted || taken && mine; taken && mine {
			c.store.log.InfoContext(ctx, "going on with the download of an earlier run", "root", c.store.dir, "version", short)
		}
	}
	return adopted, nil
}

// takeOver moves the folder of a dead run to the claim's name, or only removes
// it, while it holds that run's lock.
func (c *claim) takeOver(base string, mine bool) (taken bool, err error) {
	s := c.store
	name := path.Join(stagingDir, base+lockSuffix)
	f, err := s.root.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return false, localError(err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	held, err := s.take(f, name)
	if err != nil || !held {
		return false, err
	}
	if mine {
		if err := s.root.Rename(path.Join(stagingDir, base), c.path("")); err != nil {
			return false, localError(err)
		}
	}
	return true, s.removeEntries(base)
}

// diskUsage is what a file takes on disk, in bytes.
func diskUsage(info fs.FileInfo) int64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Blocks * 512 // POSIX's unit, whatever the file system's is
	}
	return info.Size()
}

// hasOtherNames reports whether a file is also the file of another version.
func hasOtherNames(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && st.Nlink > 1
}
