package fetcher

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sync/errgroup"

	"github.com/pilotlight-dev/pilotlight/fetcher/checksum"
	"github.com/pilotlight-dev/pilotlight/fetcher/volume"
	"github.com/pilotlight-dev/pilotlight/internal/atomicfile"
)

// Verify says what a version on disk must prove before it is used again. Names,
// kinds and sizes of all files are compared in any case.
type Verify string

// The ways to verify.
const (
	// VerifyAuto reads a file again, and compares its checksum, when its
	// modification time or inode is another than when it was verified last, and
	// all files after another start of the machine if they were written without
	// fsync. It finds what was written over, restored or copied, not a bit that
	// the disk itself has lost, nor, while nothing has to be read, a file that was
	// put beside the others: that takes VerifyFull. The change time does not
	// count: the kubelet sets owner and mode of all files whenever it mounts a
	// volume with fsGroup, and hard links between versions change it too.
	VerifyAuto Verify = "auto"
	// VerifySize believes names and sizes.
	VerifySize Verify = "size"
	// VerifyFull reads everything, once in a run, and demands that there is no
	// file beyond those of the manifest.
	VerifyFull Verify = "full"
)

// ParseVerify reads a flag; empty is VerifyAuto. Errors wrap ErrUsage.
func ParseVerify(text string) (Verify, error) {
	switch v := Verify(text); v {
	case "":
		return VerifyAuto, nil
	case VerifyAuto, VerifySize, VerifyFull:
		return v, nil
	}
	return "", fmt.Errorf("%w: verify %q: want auto, size or full", ErrUsage, oneLine(text))
}

// FileMark tells whether a file may have changed since its content was proven.
type FileMark struct {
	Modified int64  `json:"m"` // nanoseconds since 1970, by the volume's clock
	Inode    uint64 `json:"i"`
}

func markOf(info fs.FileInfo) FileMark {
	mark := FileMark{Modified: info.ModTime().UnixNano()}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		mark.Inode = st.Ino
	}
	return mark
}

// marks are those of all files below a folder of the root.
func marks(root folder, dir string, objects []Object) (map[string]FileMark, error) {
	out := make(map[string]FileMark, len(objects))
	for _, o := range objects {
		info, err := root.Lstat(path.Join(dir, o.Path))
		if err != nil {
			return nil, localError(err)
		}
		out[o.Path] = markOf(info)
	}
	return out, nil
}

// proof is what is known of a version's content: that it was right at that start
// of the machine, while the files had these marks.
type proof struct {
	boot  string
	files map[string]FileMark
	// bad: it was not right.
	bad bool
}

// proofs are those that this process has gathered, by folder name. They say the
// same as the manifests, for roots that cannot be written.
type proofs struct {
	mu   sync.Mutex
	seen map[string]proof
}

func (p *proofs) of(m Manifest) (known proof, ours bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if known, ours = p.seen[m.Short()]; ours && !known.bad {
		return known, true
	}
	return proof{boot: m.BootID, files: m.Files}, false
}

// failed reports whether these very files were found to be wrong.
func (p *proofs) failed(short string, files map[string]FileMark) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	known := p.seen[short]
	return known.bad && maps.Equal(known.files, files)
}

func (p *proofs) add(short string, known proof) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.seen == nil {
		p.seen = map[string]proof{}
	}
	p.seen[short] = known
}

// suspects returns the files of a version that have to be read before it may be
// believed, and why. Their names and sizes are right.
func (s *Store) suspects(m Manifest) (files []Object, why string) {
	known, ours := s.proofs.of(m)
	boot := volume.BootID()
	switch {
	case s.verify == VerifySize:
		return nil, ""
	case s.verify == VerifyFull && !ours:
		return m.Objects, "asked for"
	case m.Ephemeral && (boot == "" || known.boot != boot):
		return m.Objects, "the machine was started anew since this version was written"
	}
	for _, o := range m.Objects {
		info, err := s.root.Lstat(path.Join(versionsDir, m.Short(), o.Path))
		if mark, ok := known.files[o.Path]; err != nil || ok && mark != markOf(info) {
			files = append(files, o)
		}
	}
	return files, "files were changed since they were verified"
}

// trusted reports whether a version whose files have the right names and sizes
// may be believed. A version that stands the test is noted as good.
func (s *Store) trusted(ctx context.Context, m Manifest) bool {
	files, why := s.suspects(m)
	if len(files) == 0 {
		return true
	}
	if extra, err := s.unlisted(m); extra != "" || err != nil {
		s.log.WarnContext(ctx, "a version on disk is damaged: its manifest does not list a file that is there", "version", m.Short(), "file", extra, "error", err)
		return false
	}
	now, err := marks(s.root, path.Join(versionsDir, m.Short()), m.Objects)
	if err != nil || s.proofs.failed(m.Short(), now) {
		return false // going away, or read already
	}
	s.log.InfoContext(ctx, "reading a version before it is trusted", "reason", why, "version", m.Short(), "files", len(files), "bytes", Manifest{Objects: files}.Bytes())
	group, gctx := errgroup.WithContext(ctx)
	group.SetLimit(4) // disks like a few readers
	for _, o := range files {
		if o.Size > 0 {
			group.Go(func() error { return s.prove(gctx, m, o) })
		}
	}
	if err := group.Wait(); err != nil {
		if ctx.Err() == nil {
			s.proofs.add(m.Short(), proof{files: now, bad: true})
			s.log.WarnContext(ctx, "a version on disk is not what was published: it will be fetched again", "version", m.Short(), "error", err)
		}
		return false
	}
	s.note(ctx, m, now)
	return true
}

// unlisted returns a file of a version that its manifest does not list, "" if
// there is none: an engine would load a shard that somebody has put beside the
// others. Our own folder in it does not count, nor do empty folders.
func (s *Store) unlisted(m Manifest) (extra string, err error) {
	listed := make(map[string]bool, len(m.Objects))
	for _, o := range m.Objects {
		listed[o.Path] = true
	}
	dir := path.Join(versionsDir, m.Short())
	err = fs.WalkDir(s.root.FS(), dir, func(name string, d fs.DirEntry, err error) error {
		rel := strings.TrimPrefix(name, dir+"/")
		switch {
		case err != nil:
			return err
		case d.IsDir() && rel == metaDir:
			return fs.SkipDir
		case !d.IsDir() && !listed[rel]:
			extra = rel
			return fs.SkipAll
		}
		return nil
	})
	if err != nil {
		return "", localError(fmt.Errorf("looking for files in %s: %w", dir, err))
	}
	return extra, nil
}

// prove reads a file and compares it with its checksum. Of one without, in a
// version whose files are read only because it was asked for, nothing is known
// beyond its mark.
func (s *Store) prove(ctx context.Context, m Manifest, o Object) error {
	name := path.Join(versionsDir, m.Short(), o.Path)
	want := parseChecksum(o.Checksum)
	if want.Algorithm == "" || want.Parts > 0 {
		known, _ := s.proofs.of(m)
		info, err := s.root.Lstat(name)
		if err == nil && s.verify == VerifyFull && !m.Ephemeral && known.files[o.Path] == markOf(info) {
			return nil
		}
		return fmt.Errorf("%w: %s has no checksum to compare with", ErrIntegrity, name)
	}
	got, err := s.sumFile(ctx, name, want.Algorithm)
	if err != nil {
		return err // names the file
	}
	if !got.Equal(want) {
		return fmt.Errorf("%w: %s has %s, its manifest says %s", ErrIntegrity, name, got, want)
	}
	return nil
}

// note writes down that a version was good with these marks, which are those of
// before it was read: who wrote to it meanwhile has changed them.
func (s *Store) note(ctx context.Context, m Manifest, files map[string]FileMark) {
	boot := volume.BootID()
	s.proofs.add(m.Short(), proof{boot: boot, files: files})
	if maps.Equal(files, m.Files) && (!m.Ephemeral || m.BootID == boot) {
		return
	}
	m.Files = files
	if m.Ephemeral {
		m.BootID = boot
	}
	data, err := m.encode()
	if err == nil {
		err = atomicfile.Write(s.root, path.Join(versionsDir, m.Short(), manifestPath), data, atomicfile.Options{Perm: 0o444, NoSync: m.Ephemeral})
	}
	if err != nil {
		s.log.WarnContext(ctx, "could not note that the version is good: it will be read again", "version", m.Short(), "error", err)
	}
}

// sumFile computes the checksum of a file below the root, until the context
// ends.
func (s *Store) sumFile(ctx context.Context, name string, a checksum.Algorithm) (sum checksum.Sum, err error) {
	f, err := s.root.Open(name)
	if err != nil {
		return checksum.Sum{}, localError(fmt.Errorf("opening %s: %w", name, err))
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	h := a.New()
	buf := make([]byte, 1<<20)
	for {
		if ctx.Err() != nil {
			return checksum.Sum{}, context.Cause(ctx)
		}
		n, err := f.Read(buf)
		_, _ = h.Write(buf[:n]) // a hash never fails
		if errors.Is(err, io.EOF) {
			return checksum.Sum{Algorithm: a, Value: h.Sum(nil)}, nil
		}
		if err != nil {
			return checksum.Sum{}, localError(fmt.Errorf("reading %s: %w", name, err))
		}
	}
}
