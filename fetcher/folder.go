package fetcher

import (
	"io/fs"
	"os"

	"github.com/pilotlight-dev/pilotlight/fetcher/volume"
)

// folder is an os.Root with a seam before every operation that changes
// something, by which tests end the process's life between any two of them, or
// fill the disk. It repeats what a signal interrupted where os.Root does not.
type folder struct {
	*os.Root
	// step is asked before an operation; an error keeps it from happening.
	step func(op, name string) error
}

func (f folder) before(op, name string) error {
	if f.step == nil {
		return nil
	}
	return f.step(op, name) // a test's error
}

// OpenFile is os.Root's.
func (f folder) OpenFile(name string, flag int, perm fs.FileMode) (*os.File, error) {
	if flag&os.O_CREATE != 0 {
		if err := f.before("create", name); err != nil {
			return nil, err
		}
	}
	file, err := f.Root.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err // a *fs.PathError, as callers expect
	}
	if flag&os.O_CREATE != 0 {
		// A crash right after: the file is there, and nothing gets into it.
		if err := f.before("fill", name); err != nil {
			_ = file.Close() // what is written from here on fails
		}
	}
	return file, nil
}

// Open is os.Root's. Folders and finished files are opened to be synced.
func (f folder) Open(name string) (*os.File, error) {
	if err := f.before("open", name); err != nil {
		return nil, err
	}
	return f.Root.Open(name)
}

// Mkdir is os.Root's.
func (f folder) Mkdir(name string, perm fs.FileMode) error {
	if err := f.before("mkdir", name); err != nil {
		return err
	}
	return f.Root.Mkdir(name, perm)
}

// Chmod is os.Root's.
func (f folder) Chmod(name string, mode fs.FileMode) error {
	if err := f.before("chmod", name); err != nil {
		return err
	}
	return f.Root.Chmod(name, mode)
}

// Rename is os.Root's.
func (f folder) Rename(oldname, newname string) error {
	return volume.Repeat(func() error {
		if err := f.before("rename", newname); err != nil {
			return err
		}
		return f.Root.Rename(oldname, newname)
	})
}

// Symlink is os.Root's.
func (f folder) Symlink(target, name string) error {
	return volume.Repeat(func() error {
		if err := f.before("symlink", name); err != nil {
			return err
		}
		return f.Root.Symlink(target, name)
	})
}

// Link is os.Root's.
func (f folder) Link(oldname, newname string) error {
	return volume.Repeat(func() error {
		if err := f.before("link", newname); err != nil {
			return err
		}
		return f.Root.Link(oldname, newname)
	})
}

// Lstat is os.Root's.
func (f folder) Lstat(name string) (info fs.FileInfo, err error) {
	err = volume.Repeat(func() error {
		info, err = f.Root.Lstat(name)
		return err // a *fs.PathError, as callers expect
	})
	return info, err
}

// Stat is os.Root's.
func (f folder) Stat(name string) (info fs.FileInfo, err error) {
	err = volume.Repeat(func() error {
		info, err = f.Root.Stat(name)
		return err // as above
	})
	return info, err
}

// Remove is os.Root's.
func (f folder) Remove(name string) error {
	if err := f.before("remove", name); err != nil {
		return err
	}
	return f.Root.Remove(name)
}

// RemoveAll is os.Root's.
func (f folder) RemoveAll(name string) error {
	if err := f.before("removeall", name); err != nil {
		return err
	}
	return f.Root.RemoveAll(name)
}

// OpenRoot returns a folder inside, with the same seam.
func (f folder) OpenRoot(name string) (folder, error) {
	root, err := f.Root.OpenRoot(name)
	if err != nil {
		return folder{}, err // a *fs.PathError, as callers expect
	}
	return folder{Root: root, step: f.step}, nil
}
