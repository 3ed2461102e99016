package fetcher_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/fetcher"
	"github.com/pilotlight-dev/pilotlight/fetcher/transfer"
	"github.com/pilotlight-dev/pilotlight/registry"
)

// server is a tracking server that answers as a test wants.
type server struct {
	list    func(dir string) ([]registry.Artifact, error)
	presign func(path string) (registry.Presigned, error) // nil: none
	follow  func(p registry.Presigned, h http.Header) (*http.Response, error)
	open    func(path string) (*http.Response, error)

	listed, presigned, opened atomic.Int64
}

func (s *server) Resolve(_ context.Context, ref registry.Ref) (registry.Resolution, error) {
	loc, err := registry.ParseLocation("mlflow-artifacts:/1/m")
	return registry.Resolution{Ref: ref, Name: ref.Name, Version: "1", Location: loc}, err
}

func (s *server) ListArtifacts(_ context.Context, dir string) ([]registry.Artifact, error) {
	s.listed.Add(1)
	return s.list(dir)
}

func (s *server) PresignArtifact(_ context.Context, path string) (registry.Presigned, error) {
	s.presigned.Add(1)
	if s.presign == nil {
		return registry.Presigned{}, registry.ErrUnsupported
	}
	return s.presign(path)
}

func (s *server) OpenPresigned(_ context.Context, p registry.Presigned, h http.Header) (*http.Response, error) {
	return s.follow(p, h)
}

func (s *server) OpenArtifact(_ context.Context, path string) (*http.Response, error) {
	s.opened.Add(1)
	return s.open(path)
}

// response is an answer with a body and headers, "Name: value".
func response(status int, body string, headers ...string) *http.Response {
	h := http.Header{}
	for _, line := range headers {
		name, value, _ := strings.Cut(line, ": ")
		h.Add(name, value)
	}
	return &http.Response{StatusCode: status, Header: h, ContentLength: -1, Body: io.NopCloser(strings.NewReader(body))}
}

// serving lists and sends files, through the proxy.
func serving(files map[string][]byte) *server {
	s := &server{}
	s.list = func(dir string) (entries []registry.Artifact, err error) {
		seen := map[string]bool{}
		for name, data := range files {
			rest, ok := strings.CutPrefix("1/m/"+name, dir+"/")
			first, _, isDir := strings.Cut(rest, "/")
			if ok && !seen[first] {
				seen[first] = true
				entries = append(entries, registry.Artifact{Name: first, Folder: isDir, Size: int64(len(data))})
			}
		}
		return entries, nil
	}
	s.open = func(name string) (*http.Response, error) {
		data, ok := files[strings.TrimPrefix(name, "1/m/")]
		if !ok {
			return nil, registry.ErrNotFound
		}
		return response(http.StatusOK, string(data)), nil
	}
	return s
}

func proxiedOptions(t *testing.T, s *server) fetcher.Options {
	t.Helper()
	ref, err := registry.ParseRef("models:/llama@champion")
	require.NoError(t, err)
	return fetcher.Options{
		Ref: ref, Root: filepath.Join(t.TempDir(), "models"), Resolver: s, Deadline: 2 * time.Minute, Durability: "ephemeral",
		RetryBase: time.Millisecond, RetryMax: 5 * time.Millisecond,
		Connect: func(context.Context, registry.Location) (fetcher.S3API, error) {
			return nil, errors.New("no store is to be asked")
		},
	}
}

func TestListingsOfAProxyThatCannotBeFiles(t *testing.T) {
	t.Parallel()
	file, folder := func(name string) registry.Artifact { return registry.Artifact{Name: name, Size: 1} }, func(name string) registry.Artifact { return registry.Artifact{Name: name, Folder: true} }
	for name, tc := range map[string]struct {
		list func(dir string) []registry.Artifact
		says string
		asks int64 // at most
	}{
		"Parent":         {func(string) []registry.Artifact { return []registry.Artifact{file("..")} }, "path component ..", 1},
		"ParentFolder":   {func(string) []registry.Artifact { return []registry.Artifact{folder("..")} }, "path component ..", 1},
		"Absolute":       {func(string) []registry.Artifact { return []registry.Artifact{file("/etc/passwd")} }, "absolute path", 1},
		"Outside":        {func(string) []registry.Artifact { return []registry.Artifact{file("../../x")} }, "path component ..", 1},
		"Path":           {func(string) []registry.Artifact { return []registry.Artifact{file("a/b")} }, "a path where a name should be", 1},
		"PathOfFolder":   {func(string) []registry.Artifact { return []registry.Artifact{folder("a/b")} }, "a path where a name should be", 1},
		"Control":        {func(string) []registry.Artifact { return []registry.Artifact{file("a\nb")} }, "control character", 1},
		"ControlFolder":  {func(string) []registry.Artifact { return []registry.Artifact{folder("a\x1b[2J")} }, "control character", 1},
		"NotUTF8":        {func(string) []registry.Artifact { return []registry.Artifact{file("a\xff")} }, "UTF-8", 1},
		"Empty":          {func(string) []registry.Artifact { return []registry.Artifact{file("")} }, "empty name", 1},
		"EmptyFolder":    {func(string) []registry.Artifact { return []registry.Artifact{folder("")} }, "empty name", 1},
		"Long":           {func(string) []registry.Artifact { return []registry.Artifact{file(strings.Repeat("a", 256))} }, "longer than 255", 1},
		"FileAndFolder":  {func(string) []registry.Artifact { return []registry.Artifact{file("a"), folder("a")} }, "listed twice", 1},
		"Twice":          {func(string) []registry.Artifact { return []registry.Artifact{file("a"), file("a")} }, "listed twice", 1},
		"Ours":           {func(string) []registry.Artifact { return []registry.Artifact{file(".pilotlight")} }, "reserved", 1},
		"Endless":        {func(string) []registry.Artifact { return []registry.Artifact{folder("deeper")} }, "deep", 40},
		"EndlessAndWide": {func(string) []registry.Artifact { return []registry.Artifact{folder("a"), folder("b"), folder("c")} }, "folders", 10_000},
		"TooMany": {func(string) []registry.Artifact {
			many := make([]registry.Artifact, 0, 200_001)
			for i := range 200_001 {
				many = append(many, file(fmt.Sprint(i)))
			}
			return many
		}, "more than 200000", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serving(nil)
			s.list = func(dir string) ([]registry.Artifact, error) { return tc.list(dir), nil }
			opts := proxiedOptions(t, s)
			_, err := fetcher.Init(t.Context(), opts)
			require.ErrorIs(t, err, fetcher.ErrIntegrity)
			require.ErrorContains(t, err, tc.says)
			require.NotContains(t, err.Error(), "\n")
			require.LessOrEqual(t, s.listed.Load(), tc.asks)
			require.Zero(t, s.opened.Load()+s.presigned.Load())
			require.NoFileExists(t, filepath.Join(opts.Root, "current"))
		})
	}
}

func TestAnEmptyPlaceBehindAProxyIsABrokenPointer(t *testing.T) {
	t.Parallel()
	_, err := fetcher.Init(t.Context(), proxiedOptions(t, serving(nil)))
	require.ErrorIs(t, err, registry.ErrBroken)
	require.ErrorContains(t, err, "mlflow-artifacts:/1/m/")
}

func TestAProxiedPlaceNeedsATrackingServer(t *testing.T) {
	t.Parallel()
	s := serving(model("one"))
	opts := proxiedOptions(t, s)
	loc, err := registry.ParseLocation("mlflow-artifacts:/1/m")
	require.NoError(t, err)
	opts.Resolver = fetcher.Fixed{Name: "llama", Version: "1", Location: loc}
	_, err = fetcher.List(t.Context(), opts)
	require.ErrorIs(t, err, registry.ErrUnsupported)

	opts.Artifacts = s
	got, err := fetcher.Inspect(t.Context(), opts)
	require.NoError(t, err)
	res, err := fetcher.Init(t.Context(), proxiedOptions(t, s))
	require.NoError(t, err)
	require.Equal(t, res.Manifest.Digest, got.Manifest.Digest, "looking on tells what fetching will come to")
	require.Equal(t, contents(model("one")), readTree(t, res.Path))
}

// What a look finds out about content, it finds out behind a proxy as well, as
// long as the file is not too large to be fetched for it.
func TestInspectLooksIntoProxiedFiles(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(files map[string][]byte)
		says   string
	}{
		"CutShard": {func(files map[string][]byte) {
			files["model-00001-of-00002.safetensors"] = files["model-00001-of-00002.safetensors"][:1000]
		}, "a cut upload"},
		"ShardForgotten": {func(files map[string][]byte) { delete(files, "model-00002-of-00002.safetensors") }, "missing from the store"},
	} {
		files := model("one")
		tc.change(files)
		_, err := fetcher.Inspect(t.Context(), proxiedOptions(t, serving(files)))
		require.ErrorIs(t, err, fetcher.ErrIntegrity, name)
		require.ErrorContains(t, err, tc.says, name)
		_, err = fetcher.Init(t.Context(), proxiedOptions(t, serving(files)))
		require.ErrorIs(t, err, fetcher.ErrIntegrity, name)
	}
	s := serving(model("one"))
	list := s.list
	s.list = func(dir string) ([]registry.Artifact, error) {
		entries, err := list(dir)
		for i := range entries {
			if path.Ext(entries[i].Name) == ".safetensors" {
				entries[i].Size = 1 << 30
			}
		}
		return entries, err
	}
	_, err := fetcher.Inspect(t.Context(), proxiedOptions(t, s))
	require.NoError(t, err)
	require.Equal(t, int64(1), s.opened.Load(), "the index only")
}

// A URL serves for a minute, one that was refused not again, and every answer must
// be of the content of the first.
func TestPresignedURLsAreRenewedAndContentIsPinned(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		data := bytes.Repeat([]byte("x"), 100)
		etag, status := `"first"`, 0
		var demanded []string
		s := &server{
			presign: func(string) (registry.Presigned, error) {
				return registry.Presigned{URL: "http://store/" + time.Now().String(), Size: 100}, nil
			},
			follow: func(_ registry.Presigned, h http.Header) (*http.Response, error) {
				demanded = append(demanded, h.Get("If-Match"))
				if status != 0 {
					return response(status, "<Error><Code>AccessDenied</Code></Error>"), nil
				}
				var off, last int
				_, err := fmt.Sscanf(h.Get("Range"), "bytes=%d-%d", &off, &last)
				return response(http.StatusPartialContent, string(data[off:last+1]), "ETag: "+etag, fmt.Sprintf("Content-Range: bytes %d-%d/100", off, last)), err
			},
		}
		src, o := fetcher.ProxiedSource(s, "1/m"), transfer.Object{Path: "model.bin", Size: 100}
		get := func() error {
			body, err := src.Get(t.Context(), o, 10, 20)
			if err == nil {
				err = body.Close()
			}
			return err
		}
		_, err := src.Facts(t.Context(), o)
		require.NoError(t, err)
		require.NoError(t, get())
		require.Equal(t, []string{"", `"first"`}, demanded)
		require.Equal(t, int64(1), s.presigned.Load())

		time.Sleep(61 * time.Second)
		require.NoError(t, get())
		require.Equal(t, int64(2), s.presigned.Load(), "older than a minute")

		status = http.StatusForbidden
		err = get()
		require.ErrorIs(t, err, transfer.ErrCredentials)
		require.ErrorContains(t, err, "store answers 403")
		status = 0
		require.NoError(t, get())
		require.Equal(t, int64(3), s.presigned.Load(), "one that was refused")

		etag = `"second"` // from a store that does not know If-Match
		require.ErrorIs(t, get(), fetcher.ErrIntegrity)
	})
}

// Ranges of a store whose ETags are weak have nothing to be pinned by; demanding
// one would fail.
func TestWeakETagsAreNotDemanded(t *testing.T) {
	t.Parallel()
	s := &server{
		presign: func(string) (registry.Presigned, error) {
			return registry.Presigned{URL: "http://store/x", Size: -1}, nil
		},
		follow: func(_ registry.Presigned, h http.Header) (*http.Response, error) {
			if h.Get("If-Match") != "" {
				return response(http.StatusPreconditionFailed, ""), nil
			}
			return response(http.StatusPartialContent, "x", `ETag: W/"d41d8cd98f00b204e9800998ecf8427e"`, "Content-Range: bytes 0-0/9"), nil
		},
	}
	src, o := fetcher.ProxiedSource(s, "1/m"), transfer.Object{Path: "x", Size: 9}
	for range 2 {
		facts, err := src.Facts(t.Context(), o)
		require.NoError(t, err)
		require.Empty(t, facts.Sums, "nor are they an MD5")
	}
	body, err := src.Get(t.Context(), o, 0, 1)
	require.NoError(t, err)
	require.NoError(t, body.Close())
}
