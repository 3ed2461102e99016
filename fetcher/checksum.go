package fetcher

import (
	"net/http"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/pilotlight-dev/pilotlight/fetcher/checksum"
	"github.com/pilotlight-dev/pilotlight/fetcher/transfer"
)

// facts collects from an answer's header what its object can be compared with.
func facts(header http.Header, etag string) transfer.Facts {
	f := transfer.Facts{Sums: sums(header, etag)}
	if s, ok := checksum.FromMultipartETag(etag); ok && !encrypted(header) {
		f.ETag = s
	}
	return f
}

// sums collects from an answer's header what its object can be compared with:
// S3's checksums, Google's, and an ETag that is the MD5 of the content.
func sums(header http.Header, etag string) []checksum.Sum {
	var out []checksum.Sum
	composite := strings.EqualFold(header.Get("X-Amz-Checksum-Type"), string(types.ChecksumTypeComposite))
	add := func(a checksum.Algorithm, value string) {
		if value == "" {
			return
		}
		s, err := checksum.FromBase64(a, value)
		if err != nil || s.Parts == 0 && composite {
			return // composite, of a number of parts that is not told
		}
		out = append(out, s)
	}
	for _, a := range []checksum.Algorithm{checksum.CRC64NVME, checksum.CRC32C, checksum.CRC32, checksum.SHA256} {
		add(a, header.Get("X-Amz-Checksum-"+string(a)))
	}
	for _, line := range header.Values("X-Goog-Hash") { // crc32c=n03x6A==,md5=...
		for field := range strings.SplitSeq(line, ",") {
			name, value, _ := strings.Cut(strings.TrimSpace(field), "=")
			if name == "crc32c" || name == "md5" {
				add(checksum.Algorithm(name), value)
			}
		}
	}
	if s, ok := checksum.FromETag(etag); ok && !encrypted(header) {
		out = append(out, s)
	}
	return out
}

// encrypted reports the encryptions under which an ETag is no MD5: KMS and a
// customer's key.
func encrypted(header http.Header) bool {
	how := header.Get("X-Amz-Server-Side-Encryption")
	return strings.HasPrefix(how, string(types.ServerSideEncryptionAwsKms)) || header.Get("X-Amz-Server-Side-Encryption-Customer-Algorithm") != ""
}
