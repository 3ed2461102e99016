package fetcher

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/pilotlight-dev/pilotlight/internal/atomicfile"
)

// Frozen is a pod's own link to the version that its engine loads. It lies on
// the pod's own volume under a constant path, is set once, and no publication
// moves it: an engine opens its files at different times during a load, and a
// link that moved meanwhile would mix two versions.
//
// It ends with the pod, whose volume goes with it, or when the agent asks for a
// restart of the pod's containers: then [Frozen.Thaw] leaves a mark beside it,
// and the next `init`, which runs before any engine, sets it anew.
type Frozen struct {
	store *Store
	dir   folder
	name  string
	path  string
}

// OpenFrozen opens the folder of the link, creating it if need be. The link must
// not lie inside the root. Errors wrap ErrUsage.
func OpenFrozen(store *Store, link string) (*Frozen, error) {
	abs, err := filepath.Abs(link)
	if err != nil || link == "" {
		return nil, fmt.Errorf("%w: link %q: want a path on the pod's own volume", ErrUsage, link)
	}
	if rel, err := filepath.Rel(store.dir, abs); err == nil && !strings.HasPrefix(rel, "..") {
		return nil, fmt.Errorf("%w: the link %s lies in the root %s, which other pods may share: put it on a volume of the pod", ErrUsage, abs, store.dir)
	}
	dir := filepath.Dir(abs)
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // the engine's user follows the link
		return nil, fmt.Errorf("%w: creating the folder of the link: %w", ErrUsage, err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("%w: opening the folder of the link: %w", ErrUsage, err)
	}
	return &Frozen{store: store, dir: folder{Root: root}, name: filepath.Base(abs), path: abs}, nil
}

// Close releases the folder.
func (f *Frozen) Close() error {
	if err := f.dir.Close(); err != nil {
		return fmt.Errorf("closing the folder of %s: %w", f.path, err)
	}
	return nil
}

// Path is the absolute path of the link.
func (f *Frozen) Path() string { return f.path }

func (f *Frozen) markName() string { return "." + f.name + ".thaw" }

// Version returns the folder name of the version that the link names, or "" if
// there is no link. Something there that is not a link into the root's versions
// is an error that wraps ErrUsage; it is never touched.
func (f *Frozen) Version() (string, error) {
	info, err := f.dir.Lstat(f.name)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", localError(fmt.Errorf("looking at %s: %w", f.path, err))
	}
	if info.Mode()&fs.ModeSymlink == 0 {
		return "", fmt.Errorf("%w: %s is a %s that Pilotlight did not make: move it away or choose another --link", ErrUsage, f.path, kind(info.Mode()))
	}
	target, err := f.dir.Readlink(f.name)
	if err != nil {
		return "", localError(fmt.Errorf("reading the link %s: %w", f.path, err))
	}
	rel, err := filepath.Rel(f.store.dir, target)
	if err != nil || !filepath.IsAbs(target) || !isOurs(filepath.ToSlash(rel)) {
		return "", fmt.Errorf("%w: %s points to %q, not to a version in %s: remove it or choose another --link", ErrUsage, f.path, oneLine(target), f.store.dir)
	}
	return path.Base(target), nil
}

// Freeze holds a version for the pod of that name, proves that it is there, and
// sets the link, in this order, so that no collector comes in between. It
// returns the version that the link names in the end. On a volume that cannot
// be written the pod relies on retention alone, which is said in the log.
func (f *Frozen) Freeze(ctx context.Context, reader, short string, hold time.Duration) (string, error) {
	if err := f.store.Hold(reader, short, f.path, hold); err != nil {
		if !errors.Is(err, ErrUsage) || CheckReader(reader) != nil {
			return "", err
		}
		f.store.log.WarnContext(ctx, "cannot say in the root that this pod uses the version: it stays only as long as retention keeps it", "root", f.store.dir, "error", err)
	}
	if err := f.store.settled(ctx, short); err != nil {
		return "", err
	}
	whole, err := f.store.intact(ctx, short)
	if err != nil {
		return "", err
	}
	if !whole {
		return "", fmt.Errorf("setting %s: %w", f.path, errVanished)
	}
	return f.Set(ctx, short)
}

// Set makes the link name a version, unless it names one already and is
// frozen; it returns the version that it names in the end. A frozen link whose
// version is gone is set anew: no engine could have loaded from it.
func (f *Frozen) Set(ctx context.Context, short string) (string, error) {
	before, err := f.Version()
	if err != nil {
		return "", err
	}
	thawed, err := f.Thawed()
	if err != nil {
		return "", err
	}
	if before != "" && thawed == "" {
		whole, err := f.store.intact(ctx, before)
		if err != nil || whole {
			return before, err
		}
		f.store.log.Warn("the version that the pod's link named is gone: the link moves", "link", f.path, "from", before, "to", short)
	}
	if before != short {
		target := filepath.Join(f.store.dir, versionsDir, short)
		if err := f.replace(target); err != nil {
			return "", err
		}
	}
	if thawed != "" {
		if err := f.dir.Remove(f.markName()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", localError(fmt.Errorf("removing the mark beside %s: %w", f.path, err))
		}
	}
	return short, nil
}

func (f *Frozen) replace(target string) error {
	temp := "." + f.name + ".tmp" // one process at a time works for a pod; a crash leaves at most this
	if err := f.dir.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return localError(fmt.Errorf("removing %s beside %s: %w", temp, f.path, err))
	}
	// os.Root keeps what it follows inside; the text of a link it takes as it is.
	if err := atomicfile.Symlink(f.dir, target, f.name, atomicfile.Options{Temp: temp}); err != nil {
		return localError(fmt.Errorf("setting the pod's link %s: %w", f.path, err))
	}
	return nil
}

// thawMark is the content of the mark: for the sake of which version.
type thawMark struct {
	V       int    `json:"v"`
	Version string `json:"version"` // 12 hex digits
}

// Thaw allows the next Set to move the link, for the sake of a version.
func (f *Frozen) Thaw(short string) error {
	data, err := json.Marshal(thawMark{V: 1, Version: short})
	if err != nil {
		return fmt.Errorf("encoding the mark beside %s: %w", f.path, err)
	}
	if err := atomicfile.Write(f.dir, f.markName(), append(data, '\n'), atomicfile.Options{}); err != nil {
		return localError(fmt.Errorf("marking the link %s: %w", f.path, err))
	}
	return nil
}

// Thawed returns for the sake of which version the link may be moved; "" when
// it is frozen.
func (f *Frozen) Thawed() (string, error) {
	data, err := f.dir.ReadFile(f.markName())
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", localError(fmt.Errorf("reading the mark beside %s: %w", f.path, err))
	}
	var mark thawMark
	if err := json.Unmarshal(data, &mark); err != nil || mark.Version == "" {
		return "unknown", nil // somebody else's mark: thawed all the same
	}
	return mark.Version, nil
}
