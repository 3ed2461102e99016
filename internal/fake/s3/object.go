package s3

import (
	"bufio"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// maxUpload bounds a PUT: everything is kept in memory.
const maxUpload = 1 << 30

func encode64(b []byte) string { return base64.StdEncoding.EncodeToString(b) }

func (s *Server) lookup(bucket, key string) (*object, *apiError) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	objects, ok := s.buckets[bucket]
	if !ok {
		return nil, noSuchBucket(bucket)
	}
	obj, ok := objects[key]
	if !ok {
		return nil, noSuchKey()
	}
	return obj, nil
}

// getObject serves GET and HEAD.
func (s *Server) getObject(w *answer, r *http.Request, bucket, key string) *apiError {
	obj, e := s.find(r, bucket, key)
	if e != nil {
		return e
	}
	if want := r.Header.Get("If-Match"); want != "" && want != "*" && !etagListed(want, obj.etag) {
		return preconditionFailed()
	}
	h := w.Header()
	if e := obj.unlock(h, r); e != nil {
		return e
	}
	set := func(name, value string) {
		if value != "" {
			h.Set(name, value)
		}
	}
	set("X-Amz-Version-Id", obj.version)
	set("Content-Encoding", obj.encoding)
	if s.opts.Google {
		set("X-Goog-Hash", obj.googleHash())
	}
	h.Set("ETag", `"`+obj.etag+`"`)
	h.Set("Last-Modified", obj.modified.Format(http.TimeFormat))
	h.Set("Content-Type", obj.ctype)
	h.Set("Accept-Ranges", "bytes")
	header := r.Header.Get("Range")
	if number := r.URL.Query().Get("partNumber"); number != "" {
		return s.sendPart(w, r, obj, number)
	}
	if header != "" && s.opts.R2 && asksForChecksum(r) {
		return errorf(http.StatusNotImplemented, "NotImplemented", "checksum mode is not implemented for ranged reads")
	}
	if header == "" || w.fault.IgnoreRange {
		if !s.opts.Google {
			obj.sendChecksum(h, r)
		}
		w.sendBody(r, http.StatusOK, obj.data)
		return nil
	}
	size := int64(len(obj.data))
	start, end, ok := parseRange(header, size)
	if !ok {
		h.Set("Content-Range", fmt.Sprintf("bytes */%d", size))
		return errorf(http.StatusRequestedRangeNotSatisfiable, "InvalidRange", "The requested range is not satisfiable")
	}
	h.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", start+w.fault.ShiftRange, end-1+w.fault.ShiftRange, size))
	w.sendBody(r, http.StatusPartialContent, obj.data[start:end])
	return nil
}

func etagListed(list, etag string) bool {
	for one := range strings.SplitSeq(list, ",") {
		if strings.Trim(strings.TrimSpace(one), `"`) == etag {
			return true
		}
	}
	return false
}

// parseRange reads one range ("bytes=0-9", "bytes=5-", "bytes=-3") as the half
// open interval [start, end).
func parseRange(header string, size int64) (start, end int64, ok bool) {
	text, ok := strings.CutPrefix(header, "bytes=")
	if !ok {
		return 0, 0, false
	}
	first, last, ok := strings.Cut(text, "-")
	if !ok {
		return 0, 0, false
	}
	if first == "" {
		n, err := strconv.ParseInt(last, 10, 64)
		return max(0, size-n), size, err == nil && n > 0 && size > 0
	}
	start, err := strconv.ParseInt(first, 10, 64)
	if err != nil || start < 0 || start >= size {
		return 0, 0, false
	}
	if last == "" {
		return start, size, true
	}
	end, err = strconv.ParseInt(last, 10, 64)
	return start, min(end+1, size), err == nil && end >= start
}

func (s *Server) putObject(w *answer, r *http.Request, bucket, key string) *apiError {
	if r.Header.Get("X-Amz-Copy-Source") != "" || r.URL.Query().Has("partNumber") {
		return errorf(http.StatusNotImplemented, "NotImplemented", "copies and multipart uploads are not implemented")
	}
	data, e := readUpload(r)
	if e != nil {
		return e
	}
	obj := newObject(data, PutOptions{ContentType: r.Header.Get("Content-Type")}, s.opts.Now())
	if want := r.Header.Get("X-Amz-Checksum-Crc64nvme"); want != "" && want != obj.sum {
		return errorf(http.StatusBadRequest, "BadDigest", "The CRC64NVME you specified did not match the calculated checksum.")
	}
	if e := s.store(r, bucket, key, obj); e != nil {
		return e
	}
	w.Header().Set("ETag", `"`+obj.etag+`"`)
	w.WriteHeader(http.StatusOK)
	return nil
}

// store checks the preconditions and keeps the object in one critical section,
// so that If-Match on a PUT is a true compare-and-set.
func (s *Server) store(r *http.Request, bucket, key string, obj *object) *apiError {
	s.mu.Lock()
	defer s.mu.Unlock()
	objects, ok := s.buckets[bucket]
	if !ok {
		return noSuchBucket(bucket)
	}
	old := objects[key]
	if want := r.Header.Get("If-Match"); want != "" {
		if old == nil {
			return noSuchKey()
		}
		if want != "*" && !etagListed(want, old.etag) {
			return preconditionFailed()
		}
	}
	if r.Header.Get("If-None-Match") == "*" && old != nil {
		return preconditionFailed()
	}
	s.keep(bucket, key, obj)
	return nil
}

// readUpload reads a body, plain or aws-chunked, and checks its signed hash.
func readUpload(r *http.Request) ([]byte, *apiError) {
	hash := r.Header.Get("X-Amz-Content-Sha256")
	body := io.LimitReader(r.Body, maxUpload+1)
	var data []byte
	var err error
	if strings.HasPrefix(hash, "STREAMING-") {
		data, err = decodeChunked(body)
	} else {
		data, err = io.ReadAll(body)
	}
	switch {
	case err != nil:
		return nil, errorf(http.StatusBadRequest, "IncompleteBody", "reading the body: %v", err)
	case len(data) > maxUpload:
		return nil, errorf(http.StatusBadRequest, "EntityTooLarge", "Your proposed upload exceeds the maximum allowed size")
	}
	if len(hash) == sha256.Size*2 {
		sum := sha256.Sum256(data)
		if hex.EncodeToString(sum[:]) != hash {
			return nil, errorf(http.StatusBadRequest, "XAmzContentSHA256Mismatch", "The provided 'x-amz-content-sha256' header does not match what was computed.")
		}
	}
	if want := r.Header.Get("X-Amz-Decoded-Content-Length"); want != "" && want != strconv.Itoa(len(data)) {
		return nil, errorf(http.StatusBadRequest, "IncompleteBody", "decoded %d bytes, announced %s", len(data), want)
	}
	return data, nil
}

var errChunk = errors.New("malformed aws-chunked body")

// decodeChunked reads "<hex size>[;chunk-signature=...]\r\n<data>\r\n" until
// the chunk of size 0; trailers after it are skipped.
func decodeChunked(body io.Reader) ([]byte, error) {
	in := bufio.NewReader(body)
	var data []byte
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errChunk, err)
		}
		sizeText, _, _ := strings.Cut(strings.TrimSpace(line), ";")
		size, err := strconv.ParseInt(sizeText, 16, 64)
		if err != nil || size < 0 || size+int64(len(data)) > maxUpload {
			return nil, fmt.Errorf("%w: chunk size %q", errChunk, sizeText)
		}
		if size == 0 {
			_, err := io.Copy(io.Discard, in)
			return data, err
		}
		chunk := make([]byte, size+2)
		if _, err := io.ReadFull(in, chunk); err != nil {
			return nil, fmt.Errorf("%w: %w", errChunk, err)
		}
		data = append(data, chunk[:size]...)
	}
}

func (s *Server) deleteObject(w *answer, _ *http.Request, bucket, key string) *apiError {
	s.mu.Lock()
	defer s.mu.Unlock()
	objects, ok := s.buckets[bucket]
	if !ok {
		return noSuchBucket(bucket)
	}
	delete(objects, key)
	w.WriteHeader(http.StatusNoContent)
	return nil
}
