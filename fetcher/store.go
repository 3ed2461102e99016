package fetcher

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pilotlight-dev/pilotlight/internal/atomicfile"
)

const (
	currentLink = "current"
	versionsDir = "versions"
	stagingDir  = ".staging"
	stateFile   = ".state.json"
)

// Store is the folder that holds the versions of a model. All writes go
// through an os.Root, so that no name leads outside of it.
type Store struct {
	root folder
	dir  string
	log  *slog.Logger
	// verify is what versions on disk must prove; empty is VerifyAuto.
	verify Verify
	proofs proofs
}

// SetVerify chooses what versions on disk must prove. It is to be called before
// the store is used.
func (s *Store) SetVerify(v Verify) { s.verify = v }

// OpenStore opens the folder, creating it if need be. It must not lie inside
// another root. Errors wrap ErrUsage.
func OpenStore(dir string, log *slog.Logger) (*Store, error) {
	if dir == "" {
		return nil, fmt.Errorf("%w: no root folder given", ErrUsage)
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("%w: root %s: %w", ErrUsage, dir, err)
	}
	if err := checkOutside(abs); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(abs, 0o755); err != nil { //nolint:gosec // other users' engines read the models
		return nil, fmt.Errorf("%w: creating the root: %w", ErrUsage, err)
	}
	root, err := os.OpenRoot(abs)
	if err != nil {
		return nil, fmt.Errorf("%w: opening the root: %w", ErrUsage, err)
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	s := &Store{root: folder{Root: root}, dir: abs, log: log}
	for name, isDir := range map[string]bool{versionsDir: true, stagingDir: true, readersDir: true, stateFile: false, leaseFile: false} {
		if err := checkKind(s.root, name, isDir); err != nil {
			return nil, errors.Join(fmt.Errorf("looking at %s: %w", abs, err), root.Close())
		}
	}
	return s, nil
}

// checkKind refuses what somebody has put in the place of one of our folders or
// files: a link would lead our writes elsewhere. Nothing there is fine.
func checkKind(root folder, name string, isDir bool) error {
	info, err := root.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return localError(fmt.Errorf("looking at %s: %w", name, err))
	case isDir && info.IsDir(), !isDir && info.Mode().IsRegular():
		return nil
	}
	return fmt.Errorf("%w: %s is a %s that Pilotlight did not make: move it away or choose another --root", ErrUsage, name, kind(info.Mode()))
}

// Close releases the folder.
func (s *Store) Close() error {
	if err := s.root.Close(); err != nil {
		return fmt.Errorf("closing %s: %w", s.dir, err)
	}
	return nil
}

// CurrentPath is the path that readers open.
func (s *Store) CurrentPath() string { return filepath.Join(s.dir, currentLink) }

// isOurs reports whether a link's target is what our own look like,
// versions/<12 hex digits>; anything else is somebody's.
func isOurs(target string) bool {
	short, ok := strings.CutPrefix(target, versionsDir+"/")
	return ok && len(short) == shortDigits && strings.Trim(short, "0123456789abcdef") == ""
}

// Current returns the folder name (12 hex digits) that `current` points to, or
// "" if there is no link. A link or file that Pilotlight did not make is an
// error that wraps ErrUsage; it is never touched.
func (s *Store) Current() (string, error) {
	target, err := s.root.Readlink(currentLink) // an agent asks at every poll: one system call
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", nil
	case err != nil:
		return "", s.notALink(err)
	case !isOurs(target):
		return "", fmt.Errorf("%w: %s points to %q, which Pilotlight did not make: remove the link or choose another --root", ErrUsage, s.CurrentPath(), target)
	}
	return path.Base(target), nil
}

// notALink says why `current` could not be read as a link.
func (s *Store) notALink(cause error) error {
	info, err := s.root.Lstat(currentLink)
	if err == nil && info.Mode()&fs.ModeSymlink == 0 {
		return fmt.Errorf("%w: %s is a %s that Pilotlight did not make: move it away or choose another --root", ErrUsage, s.CurrentPath(), kind(info.Mode()))
	}
	return localError(fmt.Errorf("reading the link %s: %w", s.CurrentPath(), cause))
}

func kind(mode fs.FileMode) string {
	switch {
	case mode.IsDir():
		return "folder"
	case mode.IsRegular():
		return "file"
	case mode&fs.ModeSymlink != 0:
		return "link"
	}
	return "special file"
}

// Manifest reads the manifest of a version on disk by its folder name.
// fs.ErrNotExist tells that there is none.
func (s *Store) Manifest(short string) (Manifest, error) {
	name := path.Join(versionsDir, short, manifestPath)
	f, err := s.root.Open(name)
	if err != nil {
		return Manifest{}, localError(fmt.Errorf("opening %s: %w", filepath.Join(s.dir, name), err))
	}
	data, err := io.ReadAll(io.LimitReader(f, maxManifest))
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return Manifest{}, localError(fmt.Errorf("reading %s: %w", filepath.Join(s.dir, name), err))
	}
	return DecodeManifest(data)
}

// Complete reports whether exactly the version of m is on disk: the whole
// digest agrees and every file is there, as Verify demands. A folder that belongs
// to another digest with the same first 12 digits is an error.
func (s *Store) Complete(ctx context.Context, m Manifest) (bool, error) {
	_, ok, err := s.find(ctx, m)
	return ok, err
}

// find is Complete, and returns the manifest as it is on disk.
func (s *Store) find(ctx context.Context, m Manifest) (onDisk Manifest, complete bool, err error) {
	onDisk, err = s.Manifest(m.Short())
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, ErrIntegrity):
		return Manifest{}, false, nil
	case err != nil:
		return Manifest{}, false, err
	case onDisk.Digest != m.Digest:
		return Manifest{}, false, fmt.Errorf("%w: %s holds the version %s, whose name collides with %s: use another --root", ErrIntegrity, path.Join(s.dir, versionsDir, m.Short()), onDisk.Digest, m.Digest)
	}
	return onDisk, s.whole(ctx, onDisk), nil
}

// whole compares the files of a version with its manifest, by name and size and
// whatever Verify demands beyond.
func (s *Store) whole(ctx context.Context, m Manifest) bool {
	dir := path.Join(versionsDir, m.Short())
	damaged := ""
	for _, o := range m.Objects {
		info, err := s.root.Lstat(path.Join(dir, o.Path))
		if err != nil || !info.Mode().IsRegular() || info.Size() != o.Size {
			damaged = o.Path
			break
		}
	}
	if damaged == "" && !layoutIntact(s.root.Root, dir, m.Layout) {
		damaged = ModelLink
	}
	if damaged != "" {
		s.log.WarnContext(ctx, "a version on disk is damaged", "version", m.Short(), "file", damaged)
	}
	return damaged == "" && s.trusted(ctx, m)
}

// intact reports whether the version of that folder name is on disk and whole
// by its own manifest.
func (s *Store) intact(ctx context.Context, short string) (bool, error) {
	m, err := s.Manifest(short)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, ErrIntegrity) {
		return false, nil
	}
	return err == nil && s.whole(ctx, m), err
}

// errVanished: a version went away between the proof that it is complete and
// its publication, which takes a collector on another node and a volume whose
// nodes see each other's folders late (NFS). The version is fetched again.
var errVanished = fmt.Errorf("%w: the version was removed while it was published", ErrConflict)

// publish points `current` at the version and proves it by reading back. The
// version must be complete and durable. The claim owns the temporary names.
//
// contended says that another process may have published at the same time. Each
// holds a claim from before it swaps the link until after it has recorded that,
// and looks for the others' claims and records after its own swap; so of two
// whose swaps crossed, at least the second to swap is told.
func (s *Store) publish(ctx context.Context, c *claim, m Manifest, by string) (contended bool, err error) {
	before, err := s.Current() // again: somebody may have put something there
	if err != nil || before == m.Short() {
		return false, err
	}
	// Whoever renamed the version into place may have died before this, or be
	// about to do it; the link must not become durable earlier than its target.
	for _, dir := range []string{versionsDir, "."} {
		if m.Ephemeral {
			break // nothing below them is durable either
		}
		if err := atomicfile.SyncDir(s.root, dir); err != nil {
			return false, localError(err)
		}
	}
	target := path.Join(versionsDir, m.Short())
	if err := atomicfile.Symlink(s.root, target, currentLink, atomicfile.Options{Temp: c.path(".link"), NoSync: m.Ephemeral}); err != nil {
		return false, localError(fmt.Errorf("publishing in %s: %w", s.dir, err))
	}
	if contended, err = s.readBack(ctx, m); err != nil {
		return contended, err
	}
	crossed, err := s.record(c, m, before, by)
	if err != nil {
		// The version is published; losing the note about it is no failure.
		s.log.WarnContext(ctx, "could not record the publication", "root", s.dir, "error", err)
	}
	return contended || crossed || s.othersAtWork(c), nil
}

// othersAtWork reports whether other runs have claims, dead ones perhaps.
func (s *Store) othersAtWork(c *claim) bool {
	names, err := s.list(stagingDir)
	return err != nil || slices.ContainsFunc(names, func(name string) bool {
		return strings.HasSuffix(name, lockSuffix) && name != c.base+lockSuffix && ourEntry.MatchString(name)
	})
}

// readBack opens the manifest through the link, as a reader would. Another
// process may have published another version meanwhile; then the link has to
// be right for that one.
func (s *Store) readBack(ctx context.Context, m Manifest) (contended bool, err error) {
	short, err := s.Current()
	if err != nil {
		return false, err
	}
	got, err := s.Manifest(short)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, fmt.Errorf("%w: reading back %s: it names %s, which is not there", errVanished, s.CurrentPath(), short)
	case err != nil:
		return false, fmt.Errorf("reading back %s: %w", s.CurrentPath(), err)
	case short != m.Short():
		s.log.InfoContext(ctx, "another process published another version right after", "root", s.dir, "ours", m.Short(), "theirs", short)
		return true, nil
	case got.Digest != m.Digest:
		return false, fmt.Errorf("%w: reading back %s: it holds %s, published was %s", ErrIntegrity, s.CurrentPath(), got.Digest, m.Digest)
	}
	return false, nil
}
