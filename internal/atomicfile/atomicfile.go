// Package atomicfile replaces a file or a symbolic link in one step, durably:
// a reader sees the old one or the new one, never half of either, and after
// the call returns a power cut does not undo it.
//
// The order is always the same: write a sibling under a unique name, fsync it,
// rename(2) it over the target, fsync the folder. Everything happens below an
// [os.Root], so that no name can lead outside of it. A temporary name is
// unique because a fixed one makes every later run fail with EEXIST after a
// crash between creation and rename.
package atomicfile

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"syscall"
)

// Options adjusts Write and Symlink. The zero value works.
type Options struct {
	// Perm is the mode of the file, set past the umask; 0 means 0644.
	Perm fs.FileMode
	// Temp is the temporary name, on the same file system as the target.
	// Empty means ".<name>.<random>.tmp" beside the target. A caller that
	// sweeps leftovers of crashed runs names it, so that it knows them.
	Temp string
	// NoSync leaves out every fsync: still one step for readers, but a crash of
	// the machine may take it back, or leave an empty file.
	NoSync bool
}

// Root is the part of *os.Root that is needed.
type Root interface {
	OpenFile(name string, flag int, perm fs.FileMode) (*os.File, error)
	Open(name string) (*os.File, error)
	Rename(oldname, newname string) error
	Symlink(oldname, newname string) error
	Remove(name string) error
}

func (o Options) temp(name string) string {
	if o.Temp != "" {
		return o.Temp
	}
	return path.Join(path.Dir(name), "."+path.Base(name)+"."+rand.Text()[:12]+".tmp")
}

// Write replaces the file name below root with data. On an error the old file
// is untouched and the temporary one is removed.
func Write(root Root, name string, data []byte, opts Options) error {
	perm := opts.Perm
	if perm == 0 {
		perm = 0o644
	}
	temp := opts.temp(name)
	if err := writeNew(root, temp, data, perm, opts.NoSync); err != nil {
		return errors.Join(err, removeIfPresent(root, temp))
	}
	return replace(root, temp, name, opts.NoSync)
}

// Symlink makes the link name below root point at target, replacing what was
// there if that is a file or a link; a folder in its place is an error.
func Symlink(root Root, target, name string, opts Options) error {
	temp := opts.temp(name)
	if err := root.Symlink(target, temp); err != nil {
		return fmt.Errorf("creating the link %s: %w", temp, err)
	}
	return replace(root, temp, name, opts.NoSync)
}

func writeNew(root Root, name string, data []byte, perm fs.FileMode, noSync bool) (err error) {
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
	if err != nil {
		return fmt.Errorf("creating %s: %w", name, err)
	}
	defer func() {
		if cerr := f.Close(); err == nil && cerr != nil {
			err = fmt.Errorf("closing %s: %w", name, cerr)
		}
	}()
	if err := f.Chmod(perm); err != nil {
		return fmt.Errorf("setting the mode of %s: %w", name, err)
	}
	if _, err := f.Write(data); err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	if noSync {
		return nil
	}
	if err := f.Sync(); err != nil {
		return fmt.Errorf("syncing %s: %w", name, err)
	}
	return nil
}

func replace(root Root, temp, name string, noSync bool) error {
	if err := root.Rename(temp, name); err != nil {
		return errors.Join(fmt.Errorf("replacing %s: %w", name, err), removeIfPresent(root, temp))
	}
	if noSync {
		return nil
	}
	return SyncDir(root, path.Dir(name))
}

func removeIfPresent(root Root, name string) error {
	if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing %s: %w", name, err)
	}
	return nil
}

// SyncDir makes the entries of a folder durable. File systems that cannot
// fsync a folder (EINVAL, ENOTSUP) are taken to order their metadata
// themselves.
func SyncDir(root Root, name string) error {
	d, err := root.Open(name)
	if err != nil {
		return fmt.Errorf("opening the folder %s: %w", name, err)
	}
	err = d.Sync()
	if cerr := d.Close(); err == nil {
		err = cerr
	}
	if err != nil && !errors.Is(err, syscall.EINVAL) && !errors.Is(err, syscall.ENOTSUP) {
		return fmt.Errorf("syncing the folder %s: %w", name, err)
	}
	return nil
}
