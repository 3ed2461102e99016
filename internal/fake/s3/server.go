// Package s3 is an S3 server in memory: buckets and objects over HTTP, and a
// Go API to fill them. The demo downloads from it and tests talk to it.
//
// It answers path-style requests: ListObjectsV2 (prefix, delimiter, max-keys,
// continuation, encoding-type), GET and HEAD with Range, partNumber and If-Match,
// GetObjectAttributes, PUT (also aws-chunked), DELETE, and the bucket calls. An
// object has an MD5 ETag and a full-object CRC64NVME unless PutOptions say that
// it was uploaded otherwise: in parts, with another checksum, a composite one, or
// none. Checksums are sent when x-amz-checksum-mode asks for them and never with
// a range, as stores do. Requests signed in the Authorization header are verified
// (SigV4) when Options.Credentials is set; Options.R2 takes on the manners of
// Cloudflare's store.
//
// Other stores' manners are options too: Options.Google sends that store's hashes
// and refuses signatures over Accept-Encoding, Options.Versioned keeps what is
// overwritten, Options.RequesterPays, Owner and Domain demand what buckets can
// demand, and PutOptions.CustomerKey is SSE-C.
//
// Faults are injected at one seam: Options.Fault (or SetFault) sees each
// request and may slow, cut, stall, corrupt, mislabel or refuse the answer.
// Options can also slow everything down, so that a demo's download can be
// watched.
//
// Left out: multipart uploads, listings of versions, presigned URLs, and the
// signatures of single aws-chunked chunks.
package s3

import (
	"crypto/md5" //nolint:gosec // S3's ETag is an MD5 by definition
	"encoding/hex"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// Options adjusts New. The zero value accepts everybody and is fast.
type Options struct {
	// Credentials maps access key ids to secrets; when empty, requests are not
	// authenticated.
	Credentials map[string]string
	// Fault is asked about every request that passed authentication; nil and
	// the zero Fault change nothing.
	Fault func(*http.Request) Fault
	// BytesPerSecond limits each answer's body; 0 is unlimited.
	BytesPerSecond int64
	// Latency is waited before every answer.
	Latency time.Duration
	// MaxKeys bounds a listing page; 0 is S3's own 1000.
	MaxKeys int
	// R2 refuses what Cloudflare's store refuses: a checksum with a range (501),
	// and GetObjectAttributes.
	R2 bool
	// Google takes on the manners of Google's store: X-Goog-Hash with every
	// answer, no S3 checksums, no GetObjectAttributes, and a signature over
	// Accept-Encoding, which its front end changes, is wrong.
	Google bool
	// Versioned keeps what is overwritten or deleted, gives each object a version
	// id, and answers to one.
	Versioned bool
	// RequesterPays refuses requests that do not agree to pay (403).
	RequesterPays bool
	// Owner is the account id of all buckets; a request that expects another is
	// refused (403). Empty means that it is not looked at.
	Owner string
	// Domain makes requests to <bucket>.<Domain> name the bucket in the host;
	// empty means that none do.
	Domain string
	// PlainKeys lists keys as they are, whatever encoding-type asks for.
	PlainKeys bool
	// Now is the clock of Last-Modified and of signature ages; nil is time.Now.
	Now func() time.Time
}

// Server is the store. It is safe for concurrent use.
type Server struct {
	opts Options

	mu      sync.RWMutex
	fault   func(*http.Request) Fault
	rate    int64
	buckets map[string]map[string]*object
	history map[string]*object // by bucket, key and version id
	serial  int                // of version ids
	counts  map[string]int
}

type object struct {
	data     []byte
	etag     string // without quotes
	sum      string // the value of its checksum header; empty if it has none
	sumName  string // the header's name, such as Crc32c
	parts    []part // as uploaded; one for a plain upload
	modified time.Time
	ctype    string
	version  string // empty where versions are not kept
	key      []byte // of SSE-C; nil for none
	encoding string // Content-Encoding, as uploaded
}

// New returns a store without buckets.
func New(opts Options) *Server {
	if opts.Now == nil {
		opts.Now = time.Now
	}
	if opts.MaxKeys <= 0 || opts.MaxKeys > 1000 {
		opts.MaxKeys = 1000
	}
	return &Server{
		opts: opts, fault: opts.Fault, rate: opts.BytesPerSecond,
		buckets: map[string]map[string]*object{}, history: map[string]*object{}, counts: map[string]int{},
	}
}

// PutOptions adjusts PutObject.
type PutOptions struct {
	// MultipartParts gives the object the ETag of an upload in that many equal
	// parts ("<md5 of md5s>-N"), which says nothing about the content.
	MultipartParts int
	// PartSizes does the same with parts of these sizes.
	PartSizes []int64
	// ETag, when set, is given in place of one that is made of MD5s, as Cloudflare
	// R2 does for uploads in parts.
	ETag string
	// Algorithm of the checksum: "crc64nvme" (the default), "crc32c", "crc32" or
	// "sha256".
	Algorithm string
	// Composite reports the checksum of the parts' checksums, as AWS does for
	// uploads in parts unless told otherwise.
	Composite bool
	// NoChecksum hides the CRC64NVME, as a store that knows none.
	NoChecksum bool
	// Checksum, when set, is reported in place of the true CRC64NVME (base64).
	Checksum string
	// ContentType is answered on GET; empty is application/octet-stream.
	ContentType string
	// ContentEncoding is kept and answered; the content is not touched.
	ContentEncoding string
	// CustomerKey is a key of SSE-C, without which nobody reads the object. Its
	// ETag is not the content's MD5.
	CustomerKey []byte
}

// CreateBucket adds a bucket; an existing one keeps its objects.
func (s *Server) CreateBucket(bucket string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.buckets[bucket] == nil {
		s.buckets[bucket] = map[string]*object{}
	}
}

// PutObject stores a copy of data, creating the bucket if need be, and returns
// the ETag without quotes.
func (s *Server) PutObject(bucket, key string, data []byte, opts PutOptions) string {
	obj := newObject(slices.Clone(data), opts, s.opts.Now())
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.buckets[bucket] == nil {
		s.buckets[bucket] = map[string]*object{}
	}
	s.keep(bucket, key, obj)
	return obj.etag
}

// DeleteObject removes an object; a missing one is no error, as in S3.
func (s *Server) DeleteObject(bucket, key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.buckets[bucket], key)
}

// DeleteVersions removes what is kept of an object beside the current version.
func (s *Server) DeleteVersions(bucket, key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	current := s.buckets[bucket][key]
	for name, obj := range s.history {
		if strings.HasPrefix(name, bucket+"/"+key+"?") && obj != current {
			delete(s.history, name)
		}
	}
}

// SetFault replaces the fault seam; nil removes it.
func (s *Server) SetFault(f func(*http.Request) Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = f
}

// SetBytesPerSecond changes the limit of each answer's body; 0 lifts it.
func (s *Server) SetBytesPerSecond(n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rate = n
}

// Count returns how many requests of an S3 operation arrived: "GetObject",
// "HeadObject", "GetObjectAttributes", "ListObjectsV2", "PutObject", "DeleteObject", "HeadBucket",
// "CreateBucket", "GetBucketLocation", "ListBuckets".
func (s *Server) Count(operation string) int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.counts[operation]
}

// Counts returns all counters at once.
func (s *Server) Counts() map[string]int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return maps.Clone(s.counts)
}

func newObject(data []byte, opts PutOptions, now time.Time) *object {
	sum := md5.Sum(data) //nolint:gosec // see the import
	obj := &object{data: data, etag: hex.EncodeToString(sum[:]), modified: now.UTC().Truncate(time.Second), ctype: opts.ContentType, encoding: opts.ContentEncoding}
	if obj.ctype == "" {
		obj.ctype = "application/octet-stream"
	}
	obj.describe(opts)
	if len(opts.CustomerKey) > 0 {
		obj.key = slices.Clone(opts.CustomerKey)
		obj.etag = hex.EncodeToString(md5.New().Sum(obj.key)[:16]) //nolint:gosec // any other than the content's
	}
	return obj
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	bucket, key := s.address(r)
	op, serve := s.route(r, bucket, key)
	s.mu.Lock()
	s.counts[op]++
	fault := s.fault
	s.mu.Unlock()
	if !wait(r.Context(), s.opts.Latency) {
		return
	}
	if e := s.authenticate(r); e != nil {
		writeError(w, r, e)
		return
	}
	if e := s.demands(r); e != nil {
		writeError(w, r, e)
		return
	}
	var f Fault
	if fault != nil {
		f = fault(r)
	}
	if f.Status != 0 {
		if f.RetryAfter != "" {
			w.Header().Set("Retry-After", f.RetryAfter)
		}
		writeError(w, r, f.asError())
		return
	}
	if serve == nil {
		writeError(w, r, errorf(http.StatusNotImplemented, "NotImplemented", "this server does not know %s %s", r.Method, r.URL.RequestURI()))
		return
	}
	if e := serve(&answer{ResponseWriter: w, server: s, fault: f}, r, bucket, key); e != nil {
		writeError(w, r, e)
	}
}

type operation func(w *answer, r *http.Request, bucket, key string) *apiError

// route names the operation of a request and finds its handler.
func (s *Server) route(r *http.Request, bucket, key string) (string, operation) {
	query := r.URL.Query()
	switch {
	case bucket == "" && r.Method == http.MethodGet:
		return "ListBuckets", s.listBuckets
	case bucket == "":
		return "Unknown", nil
	case key != "":
		switch r.Method {
		case http.MethodGet:
			if query.Has("attributes") {
				return "GetObjectAttributes", s.objectAttributes
			}
			return "GetObject", s.getObject
		case http.MethodHead:
			return "HeadObject", s.getObject
		case http.MethodPut:
			return "PutObject", s.putObject
		case http.MethodDelete:
			return "DeleteObject", s.deleteObject
		}
	case r.Method == http.MethodGet && query.Has("location"):
		return "GetBucketLocation", s.bucketLocation
	case r.Method == http.MethodGet && query.Get("list-type") == "2":
		return "ListObjectsV2", s.listObjects
	case r.Method == http.MethodHead:
		return "HeadBucket", s.headBucket
	case r.Method == http.MethodPut:
		return "CreateBucket", s.createBucket
	}
	return "Unknown", nil
}
