package fetcher

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/pilotlight-dev/pilotlight/fetcher/transfer"
	"github.com/pilotlight-dev/pilotlight/registry"
)

// Artifacts is what a Resolver may offer beside Resolve: the files that lie behind
// its tracking server's artifact proxy. Errors wrap package registry's.
type Artifacts interface {
	// ListArtifacts lists one folder, and not what is below its folders.
	ListArtifacts(ctx context.Context, dir string) ([]registry.Artifact, error)
	// PresignArtifact asks once for a URL that opens one file for some minutes;
	// registry.ErrUnsupported means that this server gives none.
	PresignArtifact(ctx context.Context, path string) (registry.Presigned, error)
	// OpenPresigned follows such a URL without credentials; any status is an
	// answer. An error without a class means that none came.
	OpenPresigned(ctx context.Context, p registry.Presigned, header http.Header) (*http.Response, error)
	// OpenArtifact opens one whole file through the proxy.
	OpenArtifact(ctx context.Context, path string) (*http.Response, error)
}

const (
	// presignedFor is how long a URL is used again. Servers make them for 300 s
	// unless they are told otherwise.
	presignedFor  = time.Minute
	presignAtOnce = 8
	// Proxied files cost the server a copy on its own disk before the first byte
	// comes, and one of its few workers meanwhile.
	proxiedConnections = 4
	proxiedStall       = 10 * time.Minute
	proxiedLook        = 64 << 20
	// Bounds of a version's folders.
	maxArtifactDepth   = 32
	maxArtifactFolders = 10_000
)

// artifactSource reads a version's files from behind a tracking server's proxy:
// by presigned URLs, in ranges, where the server gives them, else whole through
// the proxy.
//
// A listing has no ETags. What names a file's content is its path on the server,
// which holds the id of a run or of a logged model: files of a version are
// immutable by MLflow's contract, and that is believed. Two versions never pass
// for one, nor share files. The ETag of a presigned URL's first answer is demanded
// of those that follow, so that ranges of two contents are never mixed, and it and
// the checksums in the answer are what content is compared with. The proxy gives
// none: there the size must be the listed one, and the log says that this is all.
type artifactSource struct {
	api Artifacts
	dir string // without slashes at its ends
	log *slog.Logger
	// asking bounds the questions for URLs, each of which makes the server ask its
	// store.
	asking chan struct{}

	mu      sync.Mutex
	way     way
	urls    map[string]signedURL
	learned map[string]learned
}

// way is how files are read, once that is known.
type way string

const (
	wayPresigned way = "presigned URLs"
	wayProxy     way = "the server's proxy"
)

type signedURL struct {
	registry.Presigned
	at time.Time
}

// learned is what the first answer said of a file's content.
type learned struct {
	etag  string // a strong one, quoted; empty if there was none
	facts transfer.Facts
}

func newArtifactSource(api Artifacts, loc registry.Location, subPath string, log *slog.Logger) *artifactSource {
	return &artifactSource{
		api: api, dir: strings.Trim(loc.Prefix+"/"+subPath, "/"), log: log,
		asking: make(chan struct{}, presignAtOnce),
		urls:   map[string]signedURL{}, learned: map[string]learned{},
	}
}

// place implements origin.
func (s *artifactSource) place() string { return registry.SchemeArtifacts + ":/" + s.below("") }

// below is the path of a file on the server; of "", the folder's and a slash.
func (s *artifactSource) below(rel string) string { return strings.TrimPrefix(s.dir+"/"+rel, "/") }

// setPins implements origin. There is nothing listed to pin with.
func (s *artifactSource) setPins(map[string]Object) {}

// list implements origin: it walks the folders, breadth first.
func (s *artifactSource) list(ctx context.Context) ([]Object, error) {
	var objects []Object
	var bad KeyError
	folders := []string{""} // each but the first ends with a slash
	for entries := 0; len(folders) > 0; {
		dir := folders[0]
		folders = folders[1:]
		found, err := s.api.ListArtifacts(ctx, strings.TrimSuffix(s.below(dir), "/"))
		if err != nil {
			return nil, fmt.Errorf("listing %s%s: %w", s.place(), dir, err)
		}
		seen := make(map[string]bool, len(found))
		for _, a := range found {
			entries++
			rel := dir + a.Name
			switch reason := checkKey(a.Name); {
			case reason != "" || strings.Contains(a.Name, "/"):
				bad.Problems = append(bad.Problems, KeyProblem{rel, cmp.Or(reason, "a path where a name should be")})
			case seen[a.Name]:
				bad.Problems = append(bad.Problems, KeyProblem{rel, "listed twice"})
			case a.Folder:
				folders = append(folders, rel+"/")
			default:
				objects = append(objects, Object{Path: rel, Size: a.Size, ETag: registry.SchemeArtifacts + ":/" + s.below(rel)})
			}
			seen[a.Name] = true
		}
		switch {
		case entries > maxObjects || len(bad.Problems) > maxObjects:
			return nil, fmt.Errorf("listing %s: %w: more than %d files and folders", s.place(), ErrIntegrity, maxObjects)
		case len(folders) > maxArtifactFolders:
			return nil, fmt.Errorf("listing %s: %w: more than %d folders", s.place(), ErrIntegrity, maxArtifactFolders)
		case strings.Count(dir, "/") > maxArtifactDepth:
			return nil, fmt.Errorf("listing %s: %w: folders more than %d deep", s.place(), ErrIntegrity, maxArtifactDepth)
		}
	}
	if len(bad.Problems) > 0 {
		return nil, fmt.Errorf("listing %s: %w", s.place(), &bad)
	}
	return objects, nil
}

// limits implements origin. It finds out which way files are read, if they are.
func (s *artifactSource) limits(ctx context.Context, objects []Object) (limits, error) {
	if len(objects) == 0 {
		return limits{}, nil
	}
	_, presigned, err := s.presign(ctx, objects[0].Path)
	if err != nil || presigned {
		return limits{}, err
	}
	return limits{whole: true, lookMax: proxiedLook, connections: proxiedConnections, stall: proxiedStall}, nil
}

// presign returns a URL for a file, a fresh one or one of less than a minute;
// false if this server gives none. The first answer decides for the run.
func (s *artifactSource) presign(ctx context.Context, rel string) (registry.Presigned, bool, error) {
	s.mu.Lock()
	decided, known := s.way, s.urls[rel]
	s.mu.Unlock()
	switch {
	case decided == wayProxy:
		return registry.Presigned{}, false, nil
	case known.URL != "" && time.Since(known.at) < presignedFor:
		return known.Presigned, true, nil
	}
	select {
	case s.asking <- struct{}{}:
		defer func() { <-s.asking }()
	case <-ctx.Done():
		return registry.Presigned{}, false, context.Cause(ctx)
	}
	at := time.Now()
	p, err := s.api.PresignArtifact(ctx, s.below(rel))
	if errors.Is(err, registry.ErrUnsupported) && decided == "" {
		s.decide(ctx, wayProxy)
		return registry.Presigned{}, false, nil
	}
	if err != nil {
		return registry.Presigned{}, false, artifactError(ctx, err)
	}
	s.decide(ctx, wayPresigned)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.urls[rel] = signedURL{p, at}
	return p, true, nil
}

// decide settles which way files are read and says so, once.
func (s *artifactSource) decide(ctx context.Context, to way) {
	s.mu.Lock()
	first := s.way == ""
	if first {
		s.way = to
	}
	s.mu.Unlock()
	switch {
	case first && to == wayProxy:
		s.log.WarnContext(ctx, "reading files through the tracking server's proxy: no checksum can prove their content, only sizes and the structure of safetensors files", "way", string(to), "location", s.place())
	case first:
		s.log.InfoContext(ctx, "reading files by presigned URLs of the tracking server", "way", string(to), "location", s.place())
	}
}

// forget drops a URL that was refused, unless another took its place.
func (s *artifactSource) forget(rel string, p registry.Presigned) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.urls[rel].URL == p.URL {
		delete(s.urls, rel)
	}
}

// Facts implements transfer.Source: a byte of the file, for what comes with it.
func (s *artifactSource) Facts(ctx context.Context, o transfer.Object) (transfer.Facts, error) {
	if known, ok := s.known(o.Path); ok {
		return known.facts, nil
	}
	p, presigned, err := s.presign(ctx, o.Path)
	if err != nil || !presigned || o.Size == 0 {
		return transfer.Facts{}, err
	}
	a, err := s.follow(ctx, o, p, 0, 1)
	if err != nil {
		return transfer.Facts{}, err
	}
	known, _ := s.known(o.Path)
	return known.facts, drain(a.body)
}

// drain reads the byte that was asked for, so that the connection can be used
// again. What it was does not matter.
func drain(body io.ReadCloser) error {
	_, err := io.CopyN(io.Discard, body, 1)
	if err = errors.Join(err, body.Close()); err != nil {
		return fmt.Errorf("%w: %w", ErrStoreUnreachable, err)
	}
	return nil
}

func (s *artifactSource) known(rel string) (learned, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known, ok := s.learned[rel]
	return known, ok
}

// Get implements transfer.Source.
func (s *artifactSource) Get(ctx context.Context, o transfer.Object, off, n int64) (transfer.Body, error) {
	p, presigned, err := s.presign(ctx, o.Path)
	if err != nil {
		return transfer.Body{}, err
	}
	if !presigned {
		return s.proxied(ctx, o, off, n)
	}
	a, err := s.follow(ctx, o, p, off, n)
	if err != nil {
		return transfer.Body{}, err
	}
	body := transfer.Body{ReadCloser: a.body}
	if off == 0 && n == o.Size {
		known, _ := s.known(o.Path)
		body.Facts = known.facts
	}
	return body, nil
}

// follow asks the store for a range, or for all of a file.
func (s *artifactSource) follow(ctx context.Context, o transfer.Object, p registry.Presigned, off, n int64) (answer, error) {
	if p.Size >= 0 && p.Size != o.Size {
		return answer{}, fmt.Errorf("%w: the file has %d bytes, listed were %d", errSpoiled, p.Size, o.Size)
	}
	header := http.Header{}
	whole := off == 0 && n == o.Size
	if !whole {
		header.Set("Range", fmt.Sprintf("bytes=%d-%d", off, off+n-1))
	}
	before, pinned := s.known(o.Path)
	if before.etag != "" {
		header.Set("If-Match", before.etag)
	}
	resp, err := s.api.OpenPresigned(ctx, p, header) //nolint:bodyclose // handed on, and closed by the transfer
	if err != nil {
		return answer{}, presignedError(ctx, err)
	}
	a := answer{status: resp.StatusCode, header: resp.Header, length: resp.ContentLength, body: resp.Body}
	etag := strongETag(a.header)
	switch {
	case resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusPartialContent:
		s.forget(o.Path, p)
		err = refused(resp, p)
	case pinned && before.etag != "" && etag != before.etag:
		err = errOverwritten
	case whole:
		err = a.checkWhole(o)
	default:
		err = a.checkRange(off, n, o.Size)
	}
	if err != nil {
		return answer{}, errors.Join(err, a.body.Close())
	}
	s.learn(o.Path, learned{etag: etag, facts: facts(a.header, strings.Trim(etag, `"`))}, whole)
	return a, nil
}

// learn keeps what the first answer said, and the sums that only a whole answer
// has.
func (s *artifactSource) learn(rel string, l learned, whole bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if before, ok := s.learned[rel]; !ok || whole && before.etag == l.etag {
		s.learned[rel] = l
	}
}

// strongETag is the answer's ETag, quoted, if it can be demanded of others.
func strongETag(header http.Header) string {
	etag := header.Get("ETag")
	if len(etag) < 3 || strings.HasPrefix(etag, "W/") {
		return ""
	}
	return `"` + strings.Trim(etag, `"`) + `"`
}

// proxied opens a file through the proxy, or the first n bytes of it.
func (s *artifactSource) proxied(ctx context.Context, o transfer.Object, off, n int64) (transfer.Body, error) {
	if off != 0 {
		return transfer.Body{}, fmt.Errorf("%w: the tracking server's proxy sends whole files only", ErrStoreDenied)
	}
	resp, err := s.api.OpenArtifact(ctx, s.below(o.Path)) //nolint:bodyclose // as above
	if err != nil {
		return transfer.Body{}, artifactError(ctx, err)
	}
	a := answer{status: resp.StatusCode, header: resp.Header, length: resp.ContentLength, body: resp.Body}
	if err := a.checkWhole(o); err != nil {
		return transfer.Body{}, errors.Join(err, a.body.Close())
	}
	body := &exactBody{ReadCloser: a.body, left: o.Size}
	if n < o.Size {
		return transfer.Body{ReadCloser: struct {
			io.Reader
			io.Closer
		}{io.LimitReader(body, n), body}}, nil
	}
	return transfer.Body{ReadCloser: body}, nil
}

// exactBody calls it doubtful content when a body without a length ends early:
// that is all that tells a copy that was cut from a whole one.
type exactBody struct {
	io.ReadCloser
	left int64
}

// Read implements io.Reader.
func (b *exactBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.left -= int64(n)
	if errors.Is(err, io.EOF) && b.left > 0 {
		err = fmt.Errorf("%w: the tracking server sends %d bytes less than it listed", errSpoiled, b.left)
	}
	return n, err // io.EOF must stay itself
}
