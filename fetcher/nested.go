package fetcher

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
)

// checkOutside refuses a root that lies inside another one, however links lead
// there: what is written below it could be a published version. Nothing at the
// path yet is fine. Errors wrap ErrUsage.
func checkOutside(dir string) error {
	there, rest := dir, ""
	for {
		resolved, err := filepath.EvalSymlinks(there)
		if err == nil {
			there = filepath.Join(resolved, rest)
			break
		}
		up := filepath.Dir(there)
		if !errors.Is(err, fs.ErrNotExist) || up == there {
			return nil // opening it will tell
		}
		there, rest = up, filepath.Join(filepath.Base(there), rest)
	}
	for up := filepath.Dir(there); ; up = filepath.Dir(up) {
		if isRoot(up) {
			return fmt.Errorf("%w: %s lies inside %s, which is a root itself: choose another --root", ErrUsage, dir, up)
		}
		if up == filepath.Dir(up) {
			return nil
		}
	}
}

// ourVersion is what the folder of a version is called.
var ourVersion = regexp.MustCompile(`^[0-9a-f]{12}$`)

// isRoot reports whether versions are published in a folder, or were.
func isRoot(dir string) bool {
	if target, err := os.Readlink(filepath.Join(dir, currentLink)); err == nil && isOurs(target) {
		return true
	}
	entries, err := os.ReadDir(filepath.Join(dir, versionsDir))
	return err == nil && slices.ContainsFunc(entries, func(e fs.DirEntry) bool {
		if !ourVersion.MatchString(e.Name()) {
			return false
		}
		_, err := os.Lstat(filepath.Join(dir, versionsDir, e.Name(), manifestPath))
		return err == nil
	})
}
