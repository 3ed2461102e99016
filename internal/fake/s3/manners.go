package s3

import (
	"bytes"
	"crypto/md5" //nolint:gosec // Google's hash header has one
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"net/http"
	"strings"
)

// address finds bucket and key, in the path or in the host's name.
func (s *Server) address(r *http.Request) (bucket, key string) {
	path := strings.TrimPrefix(r.URL.Path, "/")
	if s.opts.Domain != "" {
		host, _, _ := strings.Cut(r.Host, ":")
		if bucket, ok := strings.CutSuffix(host, "."+s.opts.Domain); ok {
			return bucket, path
		}
	}
	bucket, key, _ = strings.Cut(path, "/")
	return bucket, key
}

// demands refuses requests that lack what the buckets demand.
func (s *Server) demands(r *http.Request) *apiError {
	owner := r.Header.Get("X-Amz-Expected-Bucket-Owner")
	switch {
	case s.opts.RequesterPays && r.Header.Get("X-Amz-Request-Payer") != "requester":
		return errorf(http.StatusForbidden, "AccessDenied", "Access Denied: the bucket is a requester pays bucket")
	case s.opts.Owner != "" && owner != "" && owner != s.opts.Owner:
		return errorf(http.StatusForbidden, "AccessDenied", "Access Denied: the bucket is another account's")
	}
	return nil
}

// keep stores an object, and a version of it where versions are kept. The lock
// is held.
func (s *Server) keep(bucket, key string, obj *object) {
	s.buckets[bucket][key] = obj
	if s.opts.Versioned {
		s.serial++
		obj.version = fmt.Sprintf("v%d.%s", s.serial, obj.etag[:4])
		s.history[bucket+"/"+key+"?"+obj.version] = obj
	}
}

// find returns the version of an object that a request names, or the current.
func (s *Server) find(r *http.Request, bucket, key string) (*object, *apiError) {
	version := r.URL.Query().Get("versionId")
	if version == "" {
		return s.lookup(bucket, key)
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	if obj, ok := s.history[bucket+"/"+key+"?"+version]; ok {
		return obj, nil
	}
	return nil, errorf(http.StatusNotFound, "NoSuchVersion", "The specified version does not exist.")
}

// unlock demands the key of an object that has one.
func (o *object) unlock(h http.Header, r *http.Request) *apiError {
	sent := r.Header.Get("X-Amz-Server-Side-Encryption-Customer-Key")
	if o.key == nil {
		if sent != "" {
			return errorf(http.StatusBadRequest, "InvalidRequest", "The encryption parameters are not applicable to this object.")
		}
		return nil
	}
	if sent == "" {
		return errorf(http.StatusBadRequest, "InvalidRequest", "The object was stored using a form of Server Side Encryption. The correct parameters must be provided to retrieve the object.")
	}
	key, err := base64.StdEncoding.DecodeString(sent)
	sum := md5.Sum(key) //nolint:gosec // see the import
	if err != nil || r.Header.Get("X-Amz-Server-Side-Encryption-Customer-Key-Md5") != encode64(sum[:]) {
		return errorf(http.StatusBadRequest, "InvalidArgument", "The calculated MD5 hash of the key did not match the hash that was provided.")
	}
	if !bytes.Equal(key, o.key) {
		return errorf(http.StatusForbidden, "AccessDenied", "Access Denied")
	}
	h.Set("X-Amz-Server-Side-Encryption-Customer-Algorithm", "AES256")
	return nil
}

// googleHash is the value of X-Goog-Hash.
func (o *object) googleHash() string {
	sum := md5.Sum(o.data) //nolint:gosec // see the import
	crc := binary.BigEndian.AppendUint32(nil, crc32.Checksum(o.data, crc32.MakeTable(crc32.Castagnoli)))
	return "crc32c=" + encode64(crc) + ",md5=" + encode64(sum[:])
}
