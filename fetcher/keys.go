package fetcher

import (
	"fmt"
	"path"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxComponent is the longest file name of Linux file systems, in bytes.
const maxComponent = 255

// KeyProblem is one key that cannot become a file safely.
type KeyProblem struct {
	Key    string
	Reason string
}

// KeyError lists every hostile key of a listing. It unwraps to ErrIntegrity.
type KeyError struct {
	Problems []KeyProblem
}

// Error names the keys, at most a hundred of them.
func (e *KeyError) Error() string {
	const limit = 100
	var b strings.Builder
	fmt.Fprintf(&b, "%v: %d unsafe object keys, nothing was written: ", ErrIntegrity, len(e.Problems))
	for i, p := range e.Problems {
		if i == limit {
			fmt.Fprintf(&b, " and %d more", len(e.Problems)-limit)
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%q (%s)", p.Key, p.Reason)
	}
	b.WriteString("; rename or delete them in the store")
	return b.String()
}

// Unwrap gives the class.
func (e *KeyError) Unwrap() error { return ErrIntegrity }

// CheckKeys proves that the relative keys of a version can be written as files
// below one folder: none leaves it, none hides control characters, none is both
// a file and a folder, none takes the place of our own metadata. It returns nil
// or a *KeyError that names all offenders.
func CheckKeys(objects []Object) error {
	var bad KeyError
	add := func(key, reason string) { bad.Problems = append(bad.Problems, KeyProblem{key, reason}) }
	files := make(map[string]bool, len(objects))
	for _, o := range objects {
		if reason := checkKey(o.Path); reason != "" {
			add(o.Path, reason)
			continue
		}
		if files[o.Path] {
			add(o.Path, "listed twice")
		}
		files[o.Path] = true
	}
	for _, o := range objects {
		if !files[o.Path] {
			continue
		}
		for dir := path.Dir(o.Path); dir != "." && dir != "/"; dir = path.Dir(dir) {
			if files[dir] {
				add(o.Path, fmt.Sprintf("%q is a file as well", dir))
				break
			}
		}
	}
	if len(bad.Problems) == 0 {
		return nil
	}
	return &bad
}

// checkKey returns why one relative key is unsafe, or "".
func checkKey(key string) string {
	switch {
	case key == "":
		return "empty name"
	case !utf8.ValidString(key):
		return "not valid UTF-8"
	case strings.ContainsFunc(key, unicode.IsControl):
		return "control character"
	case strings.HasPrefix(key, "/"):
		return "absolute path"
	case strings.HasSuffix(key, "/"):
		return "a folder with content"
	}
	for i, part := range strings.Split(key, "/") {
		switch {
		case part == "":
			return "empty path component"
		case part == "." || part == "..":
			return "path component " + part
		case len(part) > maxComponent:
			return fmt.Sprintf("a component longer than %d bytes", maxComponent)
		case i == 0 && part == metaDir:
			return "reserved for Pilotlight"
		}
	}
	return ""
}
