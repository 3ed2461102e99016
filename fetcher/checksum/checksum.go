// Package checksum knows the checksums that object stores give, computes them
// over ranges that arrive in any order, and puts the ranges' sums together.
//
// A CRC is a remainder, so the CRC of two strings one after the other follows
// from their CRCs and the length of the second ([Combine]); sixteen connections
// can each check the range that they read, and the sum of the whole object
// comes out without reading it again. An MD5 or SHA has no such rule: it needs
// the bytes in their order.
//
// Stores give two types of sums ([Sum]). A full-object one is that of the bytes.
// A composite one, of an upload in parts, is the sum of the parts' sums, and can
// be checked only by who knows where the parts end ([Composite]).
package checksum

import (
	"crypto/md5" //nolint:gosec // S3's single-part ETag is an MD5: it finds damage, not forgery
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"strconv"
	"strings"

	"github.com/minio/crc64nvme"
)

// Algorithm names a checksum as manifests write it.
type Algorithm string

// The algorithms. The first three combine.
const (
	CRC64NVME Algorithm = "crc64nvme"
	CRC32C    Algorithm = "crc32c"
	CRC32     Algorithm = "crc32"
	SHA256    Algorithm = "sha256"
	MD5       Algorithm = "md5"
)

// ErrUnknown marks text that is no checksum of ours.
var ErrUnknown = errors.New("unknown checksum")

// Combines reports whether sums of ranges can be put together.
func (a Algorithm) Combines() bool { return a == CRC64NVME || a == CRC32C || a == CRC32 }

// Size is the length of a value in bytes; 0 for an unknown algorithm.
func (a Algorithm) Size() int {
	return map[Algorithm]int{CRC64NVME: 8, CRC32C: 4, CRC32: 4, SHA256: sha256.Size, MD5: md5.Size}[a]
}

// New returns a running sum; nil for an unknown algorithm.
func (a Algorithm) New() hash.Hash {
	switch a {
	case CRC64NVME:
		return crc64nvme.New()
	case CRC32C:
		return crc32.New(crc32.MakeTable(crc32.Castagnoli))
	case CRC32:
		return crc32.NewIEEE()
	case SHA256:
		return sha256.New()
	case MD5:
		return md5.New() //nolint:gosec // see the import
	}
	return nil
}

// Update adds bytes to a CRC, which is 0 before the first.
func (a Algorithm) Update(crc uint64, p []byte) uint64 {
	switch a {
	case CRC32C:
		return uint64(crc32.Update(uint32(crc), crc32.MakeTable(crc32.Castagnoli), p)) //nolint:gosec // made by this function
	case CRC32:
		return uint64(crc32.Update(uint32(crc), crc32.IEEETable, p)) //nolint:gosec // as above
	}
	return crc64nvme.Update(crc, p)
}

// Bytes writes a CRC as stores do: big endian.
func (a Algorithm) Bytes(crc uint64) []byte {
	if a == CRC64NVME {
		return binary.BigEndian.AppendUint64(nil, crc)
	}
	return binary.BigEndian.AppendUint32(nil, uint32(crc)) //nolint:gosec // 32-bit CRCs
}

// Sum is a checksum of an object.
type Sum struct {
	Algorithm Algorithm
	Value     []byte
	// Parts is the number of parts of a composite sum, 0 for a full-object one.
	Parts int
}

// String is "<algorithm>:<base64>", with "-<parts>" behind a composite one.
func (s Sum) String() string {
	text := string(s.Algorithm) + ":" + base64.StdEncoding.EncodeToString(s.Value)
	if s.Parts > 0 {
		text += "-" + strconv.Itoa(s.Parts)
	}
	return text
}

// Equal reports whether two sums say the same.
func (s Sum) Equal(o Sum) bool {
	return s.Algorithm == o.Algorithm && s.Parts == o.Parts && len(s.Value) > 0 && string(s.Value) == string(o.Value)
}

// Parse reads what String wrote. Errors wrap ErrUnknown.
func Parse(text string) (Sum, error) {
	name, value, ok := strings.Cut(text, ":")
	if !ok {
		return Sum{}, fmt.Errorf("%w %q", ErrUnknown, text)
	}
	return FromBase64(Algorithm(name), value)
}

// FromBase64 reads a header's value: base64, with "-<parts>" behind a composite
// one. Errors wrap ErrUnknown.
func FromBase64(a Algorithm, value string) (Sum, error) {
	text, count, composite := strings.Cut(value, "-")
	parts := 0
	if composite {
		n, err := strconv.Atoi(count)
		if err != nil || n < 1 {
			return Sum{}, fmt.Errorf("%w %s of %q parts", ErrUnknown, a, count)
		}
		parts = n
	}
	raw, err := base64.StdEncoding.DecodeString(text)
	if err != nil || a.Size() == 0 || len(raw) != a.Size() {
		return Sum{}, fmt.Errorf("%w %s %q", ErrUnknown, a, value)
	}
	return Sum{Algorithm: a, Value: raw, Parts: parts}, nil
}

// FromETag reads an ETag that is the MD5 of the content: 32 hex digits, as of
// an upload in one part without KMS or a customer's key.
func FromETag(etag string) (Sum, bool) {
	raw, err := hex.DecodeString(etag)
	if err != nil || len(raw) != md5.Size {
		return Sum{}, false
	}
	return Sum{Algorithm: MD5, Value: raw}, true
}
