package volume

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
)

// Durability says how long what is written must last.
type Durability string

// The durabilities. Auto looks at the mount.
const (
	Auto      Durability = "auto"
	Ephemeral Durability = "ephemeral"
	Durable   Durability = "durable"
)

// ErrDurability marks text that names no durability.
var ErrDurability = errors.New("unknown durability")

// ParseDurability reads a flag; empty is Auto. Errors wrap ErrDurability.
func ParseDurability(text string) (Durability, error) {
	switch d := Durability(text); d {
	case "":
		return Auto, nil
	case Auto, Ephemeral, Durable:
		return d, nil
	}
	return "", fmt.Errorf("%w %q: want auto, ephemeral or durable", ErrDurability, text)
}

// Choice is how a volume will be written, and why.
type Choice struct {
	// Durability is Ephemeral or Durable.
	Durability Durability
	// FS is the type of the file system; empty if unknown.
	FS string
	// Network: other machines may read and write the volume.
	Network bool
	// Why is for the log.
	Why string
}

// Choose decides how a folder is written. want is obeyed unless it is Auto; the
// folder or one of its parents must exist. What cannot be found out is taken to
// be durable, which is never wrong, only slower to read afterwards.
func Choose(dir string, want Durability) Choice {
	c := chooseFrom(mountInfo(), resolved(dir))
	if want == Ephemeral || want == Durable {
		c.Durability, c.Why = want, "as asked for"
	}
	return c
}

// resolved follows links as far as the path exists.
func resolved(dir string) string {
	for up, rest := filepath.Clean(dir), ""; ; up, rest = filepath.Dir(up), filepath.Join(filepath.Base(up), rest) {
		if real, err := filepath.EvalSymlinks(up); err == nil {
			return filepath.Join(real, rest)
		}
		if up == filepath.Dir(up) {
			return dir
		}
	}
}

// networkFS are the types that other machines share. FUSE is among them since
// what is behind it cannot be seen.
var networkFS = []string{"nfs", "cifs", "smb", "ceph", "lustre", "gluster", "fuse", "9p", "virtiofs", "beegfs", "gpfs", "efs", "ocfs2", "gfs2", "wekafs"}

// chooseFrom decides from the text of /proc/self/mountinfo.
func chooseFrom(info, dir string) Choice {
	m, ok := mountOf(info, dir)
	switch {
	case !ok:
		return Choice{Durability: Durable, Why: "the mount is unknown"}
	case m.fs == "tmpfs" || m.fs == "ramfs":
		return Choice{Durability: Ephemeral, FS: m.fs, Why: "the volume is memory"}
	case isNetwork(m.fs):
		return Choice{Durability: Durable, FS: m.fs, Network: true, Why: "the volume is shared over a network"}
	case strings.Contains(m.root, "/kubernetes.io~empty-dir/"):
		return Choice{Durability: Ephemeral, FS: m.fs, Why: "the volume is an emptyDir"}
	case m.fs == "overlay":
		return Choice{Durability: Ephemeral, FS: m.fs, Why: "the folder is part of the container"}
	}
	return Choice{Durability: Durable, FS: m.fs, Why: "the volume outlives the pod"}
}

func isNetwork(fs string) bool {
	for _, name := range networkFS {
		if strings.HasPrefix(fs, name) {
			return true
		}
	}
	return false
}

type mount struct{ root, point, fs string }

// mountOf finds the mount that holds a path: the one with the longest mount
// point, the last of equal ones, since it covers the others. See proc(5):
//
//	36 35 98:0 /root /point rw,noatime master:1 - ext3 /dev/root rw
func mountOf(info, dir string) (best mount, ok bool) {
	for line := range strings.Lines(info) {
		before, after, cut := strings.Cut(line, " - ")
		fields, kind := strings.Fields(before), strings.Fields(after)
		if !cut || len(fields) < 5 || len(kind) < 1 {
			continue
		}
		m := mount{root: unescape(fields[3]), point: unescape(fields[4]), fs: kind[0]}
		inside := m.point == "/" || dir == m.point || strings.HasPrefix(dir, m.point+"/")
		if inside && (!ok || len(m.point) >= len(best.point)) {
			best, ok = m, true
		}
	}
	return best, ok
}

// unescape undoes the kernel's octal escapes of separators.
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}
