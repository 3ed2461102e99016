package s3

import (
	"crypto/md5" //nolint:gosec // S3's ETag is an MD5 by definition
	"crypto/sha256"
	"encoding/xml"
	"fmt"
	"hash"
	"hash/crc32"
	"net/http"
	"strconv"
	"strings"

	"github.com/minio/crc64nvme"
)

// part is a piece of an object as it was uploaded.
type part struct {
	off, size int64
	sum       string
}

// sumKinds are the checksums by their names in PutOptions.
var sumKinds = map[string]struct {
	header string // after X-Amz-Checksum-
	hash   func() hash.Hash
}{
	"":          {"Crc64nvme", func() hash.Hash { return crc64nvme.New() }},
	"crc64nvme": {"Crc64nvme", func() hash.Hash { return crc64nvme.New() }},
	"crc32c":    {"Crc32c", func() hash.Hash { return crc32.New(crc32.MakeTable(crc32.Castagnoli)) }},
	"crc32":     {"Crc32", func() hash.Hash { return crc32.NewIEEE() }},
	"sha256":    {"Sha256", sha256.New},
}

// describe gives a new object the parts, ETag and checksum that its upload would
// have given it.
func (o *object) describe(opts PutOptions) {
	sizes := opts.PartSizes
	if n := opts.MultipartParts; n > 0 {
		size := (int64(len(o.data)) + int64(n) - 1) / int64(n)
		for left := int64(len(o.data)); left > 0; left -= size {
			sizes = append(sizes, min(size, left))
		}
	}
	kind := sumKinds[opts.Algorithm]
	all, etags := kind.hash(), md5.New() //nolint:gosec // see the import
	off := int64(0)
	for _, size := range sizes {
		data := o.data[off : off+size]
		h, etag := kind.hash(), md5.Sum(data) //nolint:gosec // see the import
		_, _ = h.Write(data)                  // a hash never fails
		sum := h.Sum(nil)
		_, _ = all.Write(sum)       // as above
		_, _ = etags.Write(etag[:]) // as above
		o.parts = append(o.parts, part{off: off, size: size, sum: encode64(sum)})
		off += size
	}
	if len(sizes) > 0 {
		o.etag = fmt.Sprintf("%x-%d", etags.Sum(nil), len(sizes))
	}
	if opts.ETag != "" {
		o.etag = opts.ETag
	}
	switch {
	case opts.Checksum != "":
		o.sum, o.sumName = opts.Checksum, kind.header
	case opts.Composite:
		o.sum, o.sumName = fmt.Sprintf("%s-%d", encode64(all.Sum(nil)), len(sizes)), kind.header
	case !opts.NoChecksum:
		h := kind.hash()
		_, _ = h.Write(o.data) // as above
		o.sum, o.sumName = encode64(h.Sum(nil)), kind.header
	}
}

// sendChecksum sets the headers of an object's checksum, if it was asked for.
func (o *object) sendChecksum(h http.Header, r *http.Request) {
	if o.sum == "" || !asksForChecksum(r) {
		return
	}
	h.Set("X-Amz-Checksum-"+o.sumName, o.sum)
	kind := "FULL_OBJECT"
	if strings.Contains(o.sum, "-") {
		kind = "COMPOSITE"
	}
	h.Set("X-Amz-Checksum-Type", kind)
}

func asksForChecksum(r *http.Request) bool {
	return strings.EqualFold(r.Header.Get("X-Amz-Checksum-Mode"), "ENABLED")
}

// sendPart answers a GET or HEAD of one part by its number.
func (s *Server) sendPart(w *answer, r *http.Request, obj *object, number string) *apiError {
	n, err := strconv.Atoi(number)
	if err != nil || n < 1 || n > max(1, len(obj.parts)) {
		return errorf(http.StatusRequestedRangeNotSatisfiable, "InvalidPartNumber", "The requested partnumber is not satisfiable")
	}
	p := part{size: int64(len(obj.data))}
	if len(obj.parts) > 0 {
		p = obj.parts[n-1]
		w.Header().Set("X-Amz-Mp-Parts-Count", strconv.Itoa(len(obj.parts)))
	}
	w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", p.off, p.off+p.size-1, len(obj.data)))
	w.sendBody(r, http.StatusPartialContent, obj.data[p.off:p.off+p.size])
	return nil
}

// objectAttributes serves GetObjectAttributes as far as parts go.
func (s *Server) objectAttributes(w *answer, r *http.Request, bucket, key string) *apiError {
	if s.opts.R2 || s.opts.Google {
		return errorf(http.StatusNotImplemented, "NotImplemented", "GetObjectAttributes is not implemented")
	}
	obj, e := s.find(r, bucket, key)
	if e != nil {
		return e
	}
	if e := obj.unlock(w.Header(), r); e != nil {
		return e
	}
	type xmlPart struct {
		PartNumber int
		Size       int64
	}
	out := struct {
		XMLName     xml.Name `xml:"GetObjectAttributesResponse"`
		ETag        string
		PartsCount  int       `xml:"ObjectParts>PartsCount"`
		IsTruncated bool      `xml:"ObjectParts>IsTruncated"`
		Parts       []xmlPart `xml:"ObjectParts>Part"`
	}{ETag: obj.etag, PartsCount: len(obj.parts)}
	for i, p := range obj.parts {
		out.Parts = append(out.Parts, xmlPart{PartNumber: i + 1, Size: p.size})
	}
	writeXML(w, http.StatusOK, out)
	return nil
}
