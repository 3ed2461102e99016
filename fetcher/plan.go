package fetcher

import (
	"cmp"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
)

// blockSize is the allocation unit assumed by the space check: 4 KiB on ext4
// and xfs.
const blockSize = 4096

// Plan is what a run is going to do. It is computed without touching anything.
type Plan struct {
	Manifest Manifest
	// Reuse: the version is complete on disk, only the link may have to move.
	Reuse bool
	// Fetch lists the objects to download, the largest first, so that the last
	// worker is not left alone with a big one.
	Fetch []Object
	// Dirs lists the folders to create, parents first.
	Dirs []string
	// Bytes is what will be downloaded.
	Bytes int64
	// Space is what the volume must have free: the files in whole blocks, and
	// one block per file and folder for metadata.
	Space int64
}

// NewPlan decides what a manifest needs. complete says that exactly this
// version is on disk already.
func NewPlan(m Manifest, complete bool) Plan {
	if complete {
		return Plan{Manifest: m, Reuse: true}
	}
	p := Plan{Manifest: m, Bytes: m.Bytes(), Dirs: folders(m.Objects)}
	p.Fetch = slices.SortedStableFunc(slices.Values(m.Objects), func(a, b Object) int { return cmp.Compare(b.Size, a.Size) })
	for _, o := range m.Objects {
		p.Space += (o.Size+blockSize-1)/blockSize*blockSize + blockSize
	}
	p.Space += int64(len(p.Dirs)+2) * blockSize
	return p
}

// folders returns every folder that the objects need, parents first.
func folders(objects []Object) []string {
	seen := map[string]bool{}
	for _, o := range objects {
		for dir := path.Dir(o.Path); dir != "." && !seen[dir]; dir = path.Dir(dir) {
			seen[dir] = true
		}
	}
	dirs := make([]string, 0, len(seen))
	for dir := range seen {
		dirs = append(dirs, dir)
	}
	slices.Sort(dirs) // a parent sorts before its children
	return dirs
}

// Write prints the plan for people, one line per fact and object.
func (p Plan) Write(w io.Writer) error {
	var b strings.Builder
	m := p.Manifest
	fmt.Fprintf(&b, "model     %s\n", m.Ref)
	if m.Version != "" {
		fmt.Fprintf(&b, "version   %s\n", m.Version)
	}
	fmt.Fprintf(&b, "location  %s\n", m.Location)
	fmt.Fprintf(&b, "digest    %s\n", m.Digest)
	if p.Reuse {
		fmt.Fprintf(&b, "action    publish the complete version on disk, download nothing\n")
	} else {
		fmt.Fprintf(&b, "action    download %d objects, %d bytes; needs %d bytes free\n", len(p.Fetch), p.Bytes, p.Space)
	}
	for _, o := range p.Fetch {
		fmt.Fprintf(&b, "fetch     %12d  %s\n", o.Size, o.Path)
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("printing the plan: %w", err)
	}
	return nil
}
