package fetcher

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
)

// ManifestReader reads manifests of a Store as [Store.Manifest] does, and does
// not decode the last one again while its file is the same: to ask the file
// system is a tenth of the price. Manifests are replaced as a whole, so another
// content is another file. It is not safe for concurrent use.
type ManifestReader struct {
	Store *Store

	short    string
	info     fs.FileInfo
	manifest Manifest
}

// Manifest returns the manifest of a version by its folder name. It shares its
// objects with what was returned before: they are not to be changed.
func (r *ManifestReader) Manifest(short string) (Manifest, error) {
	name := path.Join(versionsDir, short, manifestPath)
	// The same file as before needs no walk through the folders above it, which
	// would make sure that it lies below the root.
	if r.info != nil && r.short == short {
		if info, err := os.Lstat(filepath.Join(r.Store.dir, name)); err == nil && r.same(info) {
			return r.manifest, nil
		}
	}
	info, err := r.Store.root.Lstat(name)
	if err != nil {
		return Manifest{}, localError(fmt.Errorf("looking at %s: %w", filepath.Join(r.Store.dir, name), err))
	}
	m, err := r.Store.Manifest(short)
	if err != nil {
		r.info = nil
		return Manifest{}, err
	}
	r.short, r.info, r.manifest = short, info, m
	return m, nil
}

// same reports whether a file is the one that was read, unchanged.
func (r *ManifestReader) same(info fs.FileInfo) bool {
	return os.SameFile(r.info, info) && r.info.Size() == info.Size() && r.info.ModTime().Equal(info.ModTime())
}
