package checksum

import (
	"crypto/md5" //nolint:gosec // S3's ETag is made of MD5s: it finds damage, not forgery
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
)

// FromMultipartETag reads the ETag that S3 gives an upload in parts: the MD5 of
// the parts' MD5s in hex, and their number. Not every store means that by it
// (Cloudflare R2 invents the digits, encryption with KMS changes them), so that
// content which does not fit it is not thereby wrong.
func FromMultipartETag(etag string) (Sum, bool) {
	digits, count, ok := strings.Cut(etag, "-")
	n, err := strconv.Atoi(count)
	if !ok || err != nil || n < 1 || n > MaxParts {
		return Sum{}, false
	}
	raw, err := hex.DecodeString(digits)
	if err != nil || len(raw) != md5.Size {
		return Sum{}, false
	}
	return Sum{Algorithm: MD5, Value: raw, Parts: n}, true
}

// MaxParts is the most parts that an upload has.
const MaxParts = 10_000

// usualParts are the part sizes of the clients that people upload with, in MiB,
// by how often they are met: boto3, the AWS CLI, MLflow's client and aws-sdk-java
// (8), aws-sdk-go and rclone (5), MinIO's client and its Go library (16), MLflow's
// server (10), s5cmd (50), s3cmd (15), and round numbers that people set.
var usualParts = []int64{8, 5, 16, 10, 50, 15, 64, 100, 32, 128, 25, 256, 20, 512, 1024}

// maxGuesses bounds what UniformParts returns: each costs an MD5 of all bytes.
const maxGuesses = 4

// UniformParts guesses the size of the parts, all equal but the last, of an
// object that was uploaded in n of them; the likeliest first, four at most. One
// part is the whole. Where many parts leave little choice, whole MiB are tried
// too, to which clients round up when their usual size would need more than
// 10,000 parts.
func UniformParts(size int64, n int) []int64 {
	const mib = 1 << 20
	if size < 1 || n < 1 || n > MaxParts {
		return nil
	}
	if n == 1 {
		return []int64{size}
	}
	least, most := (size+int64(n)-1)/int64(n), (size-1)/int64(n-1) // what makes n parts
	var out []int64
	try := func(p int64) {
		if p >= least && p <= most && !slices.Contains(out, p) && len(out) < maxGuesses {
			out = append(out, p)
		}
	}
	for _, p := range usualParts {
		try(p * mib)
	}
	for _, p := range usualParts {
		try(p * 1e6)
	}
	if first := (least + mib - 1) / mib; most/mib-first < maxGuesses {
		for p := first; p <= most/mib; p++ {
			try(p * mib)
		}
	}
	return out
}
