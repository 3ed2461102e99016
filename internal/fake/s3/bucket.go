package s3

import (
	"encoding/base64"
	"encoding/xml"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

func (s *Server) hasBucket(bucket string) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	_, ok := s.buckets[bucket]
	return ok
}

func (s *Server) listBuckets(w *answer, _ *http.Request, _, _ string) *apiError {
	type entry struct{ Name, CreationDate string }
	out := struct {
		XMLName xml.Name `xml:"ListAllMyBucketsResult"`
		Buckets []entry  `xml:"Buckets>Bucket"`
	}{}
	s.mu.RLock()
	names := slices.Sorted(maps.Keys(s.buckets))
	s.mu.RUnlock()
	for _, name := range names {
		out.Buckets = append(out.Buckets, entry{name, "2026-01-01T00:00:00.000Z"})
	}
	writeXML(w, http.StatusOK, out)
	return nil
}

func (s *Server) headBucket(w *answer, _ *http.Request, bucket, _ string) *apiError {
	if !s.hasBucket(bucket) {
		return noSuchBucket(bucket)
	}
	w.Header().Set("X-Amz-Bucket-Region", "us-east-1")
	w.WriteHeader(http.StatusOK)
	return nil
}

func (s *Server) createBucket(w *answer, _ *http.Request, bucket, _ string) *apiError {
	if s.hasBucket(bucket) {
		return errorf(http.StatusConflict, "BucketAlreadyOwnedByYou", "Your previous request to create the named bucket succeeded and you already own it.")
	}
	s.CreateBucket(bucket)
	w.Header().Set("Location", "/"+bucket)
	w.WriteHeader(http.StatusOK)
	return nil
}

func (s *Server) bucketLocation(w *answer, _ *http.Request, bucket, _ string) *apiError {
	if !s.hasBucket(bucket) {
		return noSuchBucket(bucket)
	}
	writeXML(w, http.StatusOK, struct {
		XMLName xml.Name `xml:"LocationConstraint"`
	}{})
	return nil
}

type listResult struct {
	XMLName               xml.Name `xml:"ListBucketResult"`
	Name                  string
	Prefix                string
	Delimiter             string `xml:",omitempty"`
	MaxKeys               int
	KeyCount              int
	EncodingType          string `xml:",omitempty"`
	IsTruncated           bool
	ContinuationToken     string `xml:",omitempty"`
	NextContinuationToken string `xml:",omitempty"`
	Contents              []listEntry
	CommonPrefixes        []commonPrefix
}

type listEntry struct {
	Key          string
	LastModified string
	ETag         string
	Size         int
	StorageClass string
}

type commonPrefix struct{ Prefix string }

// listObjects serves ListObjectsV2. A page ends after max-keys entries, common
// prefixes included; the token is the last entry, opaque to clients.
func (s *Server) listObjects(w *answer, r *http.Request, bucket, _ string) *apiError {
	q := r.URL.Query()
	after, e := startAfter(q)
	if e != nil {
		return e
	}
	limit := s.opts.MaxKeys
	if text := q.Get("max-keys"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 {
			return errorf(http.StatusBadRequest, "InvalidArgument", "max-keys %q", text)
		}
		limit = min(limit, n)
	}
	encode := func(text string) string { return text }
	encoding := q.Get("encoding-type")
	if s.opts.PlainKeys {
		encoding = ""
	}
	if encoding == "url" {
		encode = encodeKey
	}
	out := listResult{
		Name: bucket, Prefix: encode(q.Get("prefix")), Delimiter: encode(q.Get("delimiter")), MaxKeys: limit,
		EncodingType: encoding, ContinuationToken: q.Get("continuation-token"),
	}
	query := listQuery{prefix: q.Get("prefix"), delimiter: q.Get("delimiter"), after: after, limit: limit, encode: encode}
	if e := s.fillPage(&out, bucket, query); e != nil {
		return e
	}
	writeXML(w, http.StatusOK, out)
	return nil
}

func startAfter(q url.Values) (string, *apiError) {
	token := q.Get("continuation-token")
	if token == "" {
		return q.Get("start-after"), nil
	}
	raw, err := base64.URLEncoding.DecodeString(token)
	if err != nil {
		return "", errorf(http.StatusBadRequest, "InvalidArgument", "The continuation token provided is incorrect")
	}
	return string(raw), nil
}

type listQuery struct {
	prefix, delimiter, after string
	limit                    int
	encode                   func(string) string
}

func (s *Server) fillPage(out *listResult, bucket string, q listQuery) *apiError {
	s.mu.RLock()
	defer s.mu.RUnlock()
	objects, ok := s.buckets[bucket]
	if !ok {
		return noSuchBucket(bucket)
	}
	last := ""
	for _, key := range slices.Sorted(maps.Keys(objects)) {
		rest, ok := strings.CutPrefix(key, q.prefix)
		if !ok {
			continue
		}
		entry, folded := key, false
		if q.delimiter != "" {
			if i := strings.Index(rest, q.delimiter); i >= 0 {
				entry, folded = q.prefix+rest[:i+len(q.delimiter)], true
			}
		}
		if entry <= q.after || folded && entry == last {
			continue
		}
		if out.KeyCount == q.limit {
			out.IsTruncated = true
			out.NextContinuationToken = base64.URLEncoding.EncodeToString([]byte(last))
			return nil
		}
		last = entry
		out.KeyCount++
		if folded {
			out.CommonPrefixes = append(out.CommonPrefixes, commonPrefix{q.encode(entry)})
			continue
		}
		obj := objects[key]
		out.Contents = append(out.Contents, listEntry{
			Key: q.encode(key), LastModified: obj.modified.Format(time.RFC3339),
			ETag: `"` + obj.etag + `"`, Size: len(obj.data), StorageClass: "STANDARD",
		})
	}
	return nil
}

// encodeKey escapes a key as S3 does for encoding-type=url: everything but
// letters, digits, "-._*/" is percent-encoded, and a space becomes "+".
func encodeKey(key string) string {
	return strings.ReplaceAll(strings.ReplaceAll(url.QueryEscape(key), "%2F", "/"), "%2A", "*")
}
