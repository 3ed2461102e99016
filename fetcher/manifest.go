package fetcher

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

const (
	manifestVersion = 1
	metaDir         = ".pilotlight"
	manifestPath    = metaDir + "/manifest.json"
	shortDigits     = 12        // of the digest, in a folder's name
	maxManifest     = 320 << 20 // bytes; 200,000 objects take about 40 MiB, with keys of 1,024 bytes 260
)

// Object is one file of a version.
type Object struct {
	// Path is the key below the location and sub-path, with slashes.
	Path string `json:"path"`
	// Size is in bytes.
	Size int64 `json:"size"`
	// ETag is the store's, without quotes; it pins the content.
	ETag string `json:"etag"`
	// VersionID pins the content in a versioned bucket; empty when the listing
	// gives none, as S3's plain listing does. Then the transfer learns it from the
	// first answer, and it is not recorded: the digest is that of the listing, and
	// a reader that may not see versions must come to the same one.
	VersionID string `json:"versionId"`
	// Checksum is "<algorithm>:<base64>" of what was verified in transfer:
	// crc64nvme, crc32c, crc32 or md5; empty when only the size was.
	Checksum string `json:"checksum"`
}

// Manifest says exactly which bytes a version consists of.
type Manifest struct {
	V        int    `json:"v"`
	Digest   string `json:"digest"` // SHA-256, 64 hex digits
	Ref      string `json:"ref"`
	Name     string `json:"name"`
	Version  string `json:"version"`
	Location string `json:"location"`
	SubPath  string `json:"subPath,omitempty"`
	// PointerID tells two versions with one number apart (Peeker); may be empty.
	PointerID string `json:"pointerId,omitempty"`
	// Layout is found in the downloaded files; nil before that.
	Layout    *Layout   `json:"layout,omitempty"`
	CreatedAt time.Time `json:"createdAt"`
	// Ephemeral: the files were written without fsync, and are to be believed
	// only while the machine runs that BootID names.
	Ephemeral bool   `json:"ephemeral,omitempty"`
	BootID    string `json:"bootId,omitempty"`
	// Filters are what --include ("+<glob>") and --exclude ("-<glob>") left of the
	// location, sorted.
	Filters []string `json:"filters,omitempty"`
	// Files says, by path, how the files looked when their content was proven.
	Files   map[string]FileMark `json:"files,omitempty"`
	Objects []Object            `json:"objects"` // sorted by path
}

// canonical is the text whose SHA-256 names a version: compact JSON in this
// field order, nothing escaped for HTML. Checksums are left out because not
// every reader may see them.
type canonical struct {
	SubPath string            `json:"subPath"`
	Filters []string          `json:"filters"`
	Objects []canonicalObject `json:"objects"`
}

type canonicalObject struct {
	Key       string `json:"key"`
	Size      int64  `json:"size"`
	ETag      string `json:"etag"`
	VersionID string `json:"versionId"`
}

// Digest returns the SHA-256, in hex, of the canonical form of a list of
// objects. The order of objects does not matter. Two versions with the same
// digest have the same bytes as far as the store can tell.
//
// filters are those of a Manifest; they are part of the name so that a pod that
// leaves files out never takes the folder of one that does not.
func Digest(subPath string, filters []string, objects []Object) (string, error) {
	c := canonical{SubPath: subPath, Filters: append([]string{}, filters...), Objects: []canonicalObject{}}
	for _, o := range sortedByPath(objects) {
		c.Objects = append(c.Objects, canonicalObject{Key: o.Path, Size: o.Size, ETag: o.ETag, VersionID: o.VersionID})
	}
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(c); err != nil {
		return "", fmt.Errorf("encoding the canonical manifest: %w", err)
	}
	sum := sha256.Sum256(bytes.TrimSuffix(text.Bytes(), []byte("\n")))
	return hex.EncodeToString(sum[:]), nil
}

func sortedByPath(objects []Object) []Object {
	return slices.SortedFunc(slices.Values(objects), func(a, b Object) int { return strings.Compare(a.Path, b.Path) })
}

// Short returns the first 12 hex digits of the digest, the folder's name.
func (m Manifest) Short() string { return m.Digest[:min(shortDigits, len(m.Digest))] }

// Bytes returns the sum of the objects' sizes.
func (m Manifest) Bytes() int64 {
	var sum int64
	for _, o := range m.Objects {
		sum += o.Size
	}
	return sum
}

// encode renders the manifest as it is written to disk.
func (m Manifest) encode() ([]byte, error) {
	data, err := json.MarshalIndent(m, "", " ")
	if err != nil {
		return nil, fmt.Errorf("encoding the manifest: %w", err)
	}
	return append(data, '\n'), nil
}

// DecodeManifest reads a manifest.json and proves that its digest is the one
// of its objects. Errors wrap ErrIntegrity.
func DecodeManifest(data []byte) (Manifest, error) {
	var m Manifest
	if err := json.Unmarshal(data, &m); err != nil {
		return Manifest{}, fmt.Errorf("%w: manifest.json: %w", ErrIntegrity, err)
	}
	if m.V != manifestVersion {
		return Manifest{}, fmt.Errorf("%w: manifest.json has format %d, this build reads %d", ErrIntegrity, m.V, manifestVersion)
	}
	digest, err := Digest(m.SubPath, m.Filters, m.Objects)
	if err != nil {
		return Manifest{}, err
	}
	if digest != m.Digest {
		return Manifest{}, fmt.Errorf("%w: manifest.json says digest %q, its objects have %s", ErrIntegrity, m.Digest, digest)
	}
	return m, nil
}
