package registry

// Artifact is an entry of a folder behind a tracking server's artifact proxy.
type Artifact struct {
	// Name is the last part of its path, as the server wrote it.
	Name string
	// Folder: its content is a listing of its own, and Size means nothing.
	Folder bool
	// Size is in bytes. A server leaves it out of empty files, and of files whose
	// size it does not know, which cannot be told apart: what then comes is more
	// than nothing.
	Size int64
}

// Presigned lets whoever holds it read one file in a store for some minutes. It
// is a secret: no log, error or JSON document shows it.
type Presigned struct {
	// URL is http or https and names no user.
	URL string
	// Headers are to be sent with it.
	Headers map[string]string
	// Size is the file's in bytes, -1 if the server does not say.
	Size int64
}

const redacted = "[redacted]"

// String hides the URL from %s and %v.
func (Presigned) String() string { return redacted }

// GoString hides the URL from %#v.
func (Presigned) GoString() string { return redacted }

// MarshalText hides the URL from JSON, YAML and slog.
func (Presigned) MarshalText() ([]byte, error) { return []byte(redacted), nil }
