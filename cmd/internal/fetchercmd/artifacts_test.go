package fetchercmd_test

import (
	"bytes"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/fetcher"
	"github.com/pilotlight-dev/pilotlight/internal/exitcode"
	fakemlflow "github.com/pilotlight-dev/pilotlight/internal/fake/mlflow"
	fakes3 "github.com/pilotlight-dev/pilotlight/internal/fake/s3"
)

// signature is what a presigned URL must be kept secret for.
const signature = "a-signature-of-this-test"

// behind are two fine-tunes behind a server's proxy, with equal names and sizes.
// One file is read in ranges where there are any.
func behind() map[string][]byte {
	files := map[string][]byte{}
	for _, version := range []string{"1", "2"} {
		dir := version + "/models/m/artifacts/"
		files[dir+"config.json"] = []byte("version " + version)
		files[dir+"model.bin"] = bytes.Repeat([]byte(version), 9<<20)
		files[dir+"sub dir/100% of it #1.txt"] = []byte(version)
		files[dir+"sub dir/empty"] = nil
	}
	return files
}

// proxied is a system whose registry hands out files itself.
type proxied struct {
	*system
	elsewhere string
	asked     atomic.Int64 // requests to elsewhere
	uses      atomic.Int64 // of presigned URLs

	mu sync.Mutex
	// answer may answer a request for a presigned URL's file, n being its number.
	answer func(w http.ResponseWriter, r *http.Request, n int64) bool
	// intercept may answer a request to the registry.
	intercept func(w http.ResponseWriter, r *http.Request) bool
}

func newProxied(t *testing.T, presigned bool) *proxied {
	t.Helper()
	p := &proxied{}
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { p.asked.Add(1) }))
	t.Cleanup(elsewhere.Close)
	p.elsewhere = elsewhere.URL
	files := behind()
	objects := fakes3.New(fakes3.Options{})
	for name, data := range files {
		objects.PutObject("proxied", name, data, fakes3.PutOptions{})
	}
	store := httptest.NewServer(p.signedOnly(t, objects))
	t.Cleanup(store.Close)
	opts := fakemlflow.Options{Username: "ann", Password: password, Artifacts: files, Intercept: func(w http.ResponseWriter, r *http.Request) bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.intercept != nil && p.intercept(w, r)
	}}
	if presigned {
		opts.Presign = func(path string) string {
			return store.URL + "/proxied/" + strings.NewReplacer("%", "%25", "#", "%23", " ", "%20").Replace(path) + "?X-Amz-Signature=" + signature
		}
	}
	p.system = &system{t: t, registry: fakemlflow.New(opts), root: filepath.Join(t.TempDir(), "models")}
	reg := httptest.NewServer(p.registry)
	t.Cleanup(reg.Close)
	p.env = map[string]string{
		"MLFLOW_TRACKING_URI": reg.URL, "MLFLOW_TRACKING_USERNAME": "ann", "MLFLOW_TRACKING_PASSWORD": password, "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
		"MLFLOW_S3_ENDPOINT_URL": elsewhere.URL, "AWS_ACCESS_KEY_ID": keyID, "AWS_SECRET_ACCESS_KEY": secret,
	}
	for _, version := range []string{"1", "2"} {
		_, err := p.registry.CreateVersion("llama", "mlflow-artifacts:/"+version+"/models/m/artifacts")
		require.NoError(t, err)
	}
	require.NoError(t, p.registry.SetAlias("llama", "champion", "1"))
	return p
}

// signedOnly answers presigned GETs and demands that nothing but the URL proves
// who asks.
func (p *proxied) signedOnly(t *testing.T, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, name := range []string{"Authorization", "Cookie", "X-Amz-Date", "X-Amz-Security-Token", "X-Amz-Checksum-Mode"} {
			if value := r.Header.Get(name); value != "" {
				t.Errorf("the store was sent %s: %s", name, value)
			}
		}
		n := p.uses.Add(1)
		p.mu.Lock()
		answer := p.answer
		p.mu.Unlock()
		switch {
		case r.Method != http.MethodGet || r.URL.Query().Get("X-Amz-Signature") != signature:
			refuse(w)
		case answer != nil && answer(w, r, n):
		default:
			r.URL.RawQuery = ""
			next.ServeHTTP(w, r)
		}
	})
}

// refuse is S3's answer to a URL that has run out.
func refuse(w http.ResponseWriter) {
	w.WriteHeader(http.StatusForbidden)
	_, _ = fmt.Fprint(w, `<Error><Code>AccessDenied</Code><Message>Request has expired</Message></Error>`)
}

// requireServing demands version's files and no other.
func (p *proxied) requireServing(version string) {
	p.t.Helper()
	require.Equal(p.t, "version "+version, p.serving())
	for name, data := range behind() {
		if rel, ok := strings.CutPrefix(name, version+"/models/m/artifacts/"); ok {
			got, err := os.ReadFile(filepath.Join(p.root, "current", rel)) //nolint:gosec // this test's folder
			require.NoError(p.t, err)
			require.True(p.t, bytes.Equal(data, got), rel)
		}
	}
}

func (p *proxied) manifest() fetcher.Manifest {
	p.t.Helper()
	data, err := os.ReadFile(filepath.Join(p.root, "current/.pilotlight/manifest.json"))
	require.NoError(p.t, err)
	m, err := fetcher.DecodeManifest(data)
	require.NoError(p.t, err)
	return m
}

func TestFilesBehindAProxyComeByPresignedURLs(t *testing.T) {
	p := newProxied(t, true)
	code, stderr := p.init()
	require.Equal(t, exitcode.OK, code, stderr)
	p.requireServing("1")
	require.Contains(t, stderr, "by presigned URLs")
	require.NotContains(t, stderr, signature)
	require.NotContains(t, stderr, "only the size", "the store's MD5 is compared with")
	for _, o := range p.manifest().Objects {
		require.True(t, strings.HasPrefix(o.Checksum, "md5:"), o.Path)
	}
	require.Greater(t, p.uses.Load(), int64(5), "the large file comes in ranges")
	require.Zero(t, p.registry.Calls(http.MethodGet, "mlflow-artifacts/artifacts/{path}"))
	requireOtherVersion(t, p)
	require.Zero(t, p.asked.Load(), "the configured store has nothing to do with it")
}

func TestFilesBehindAProxyComeThroughIt(t *testing.T) {
	p := newProxied(t, false)
	code, stderr := p.init()
	require.Equal(t, exitcode.OK, code, stderr)
	p.requireServing("1")
	require.Contains(t, stderr, "no checksum can prove their content")
	require.Contains(t, stderr, "only the size was verified")
	require.Equal(t, 4, p.registry.Calls(http.MethodGet, "mlflow-artifacts/artifacts/{path}"), "one request for each file")
	require.Equal(t, 1, p.registry.Calls(http.MethodGet, "mlflow-artifacts/presigned/{path}"))
	requireOtherVersion(t, p)
	require.Zero(t, p.asked.Load())
}

// requireOtherVersion moves the alias to the other fine-tune, whose files have the
// same names and sizes, and back.
func requireOtherVersion(t *testing.T, p *proxied) {
	t.Helper()
	first := p.manifest()
	require.Equal(t, "mlflow-artifacts:/1/models/m/artifacts", first.Location)
	require.NoError(t, p.registry.SetAlias("llama", "champion", "2"))
	code, stderr := p.init()
	require.Equal(t, exitcode.OK, code, stderr)
	p.requireServing("2")
	require.NotEqual(t, first.Digest, p.manifest().Digest)
	require.NoError(t, p.registry.SetAlias("llama", "champion", "1"))
	code, stderr = p.init()
	require.Equal(t, exitcode.OK, code, stderr)
	require.Contains(t, lastLine(stderr), "reused=true")
	require.Equal(t, first.Digest, p.manifest().Digest)
}

func TestProxiedPlacesMustBeAllowed(t *testing.T) {
	for allowed, want := range map[string]int{
		"mlflow-artifacts:/1/models": exitcode.OK, "mlflow-artifacts:/": exitcode.OK,
		"mlflow-artifacts:/1/mod": exitcode.PointerBroken, "s3://weights": exitcode.PointerBroken, "mlflow-artifacts://host/1": exitcode.Usage,
	} {
		t.Run(allowed, func(t *testing.T) {
			p := newProxied(t, true)
			code, stderr := p.init("--allow-location", allowed)
			require.Equal(t, want, code, stderr)
			if want != exitcode.OK {
				require.Contains(t, stderr, "--allow-location")
				require.Zero(t, p.registry.Calls(http.MethodGet, "mlflow-artifacts/artifacts"))
			}
		})
	}
}

// proxiedFault breaks one thing about the files' way. n counts the requests to
// the store.
type proxiedFault struct {
	presigned bool
	answer    func(p *proxied, w http.ResponseWriter, r *http.Request, n int64) bool
	registry  func(p *proxied, w http.ResponseWriter, r *http.Request) bool
	want      int
	words     string
}

func TestProxiedFaults(t *testing.T) {
	page := func(w http.ResponseWriter) bool {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = fmt.Fprint(w, "<!doctype html><title>Sign in</title>")
		return true
	}
	cut := func(w http.ResponseWriter) bool {
		w.Header().Set("Content-Disposition", "attachment; filename=model.bin")
		w.(http.Flusher).Flush()
		_, _ = w.Write(bytes.Repeat([]byte("1"), 1<<20))
		return true
	}
	isFile := func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/model.bin") }
	fromProxy := func(r *http.Request) bool { return isFile(r) && strings.Contains(r.URL.Path, "/artifacts/1/") }
	var cuts atomic.Int64
	tests := map[string]proxiedFault{
		"CutStream": {registry: func(_ *proxied, w http.ResponseWriter, r *http.Request) bool { return fromProxy(r) && cut(w) }, want: exitcode.Integrity, words: "less than it listed"},
		"CutStreamOnce": {registry: func(_ *proxied, w http.ResponseWriter, r *http.Request) bool {
			return fromProxy(r) && cuts.Add(1) == 1 && cut(w)
		}, want: exitcode.OK},
		"LongStream": {registry: func(_ *proxied, w http.ResponseWriter, r *http.Request) bool {
			if fromProxy(r) {
				w.(http.Flusher).Flush()
				_, _ = w.Write(make([]byte, 10<<20))
			}
			return fromProxy(r)
		}, want: exitcode.Integrity, words: "more than it announced"},
		"LoginPage": {registry: func(_ *proxied, w http.ResponseWriter, r *http.Request) bool { return fromProxy(r) && page(w) }, want: exitcode.RegistryUnreachable, words: "login"},
		"LoginPageOfListing": {registry: func(_ *proxied, w http.ResponseWriter, r *http.Request) bool {
			return strings.HasSuffix(r.URL.Path, "/mlflow-artifacts/artifacts") && page(w)
		}, want: exitcode.RegistryUnreachable, words: "login"},
		"RedirectOfProxy": {registry: func(p *proxied, w http.ResponseWriter, r *http.Request) bool {
			if fromProxy(r) {
				http.Redirect(w, r, p.elsewhere, http.StatusTemporaryRedirect)
			}
			return fromProxy(r)
		}, want: exitcode.RegistryUnreachable, words: "redirect to another host"},
		"NotServed": {registry: func(_ *proxied, w http.ResponseWriter, r *http.Request) bool {
			if strings.Contains(r.URL.Path, "/mlflow-artifacts/") {
				http.Error(w, "Endpoint: x disabled due to the mlflow server running with `--no-serve-artifacts`.", http.StatusServiceUnavailable)
				return true
			}
			return false
		}, want: exitcode.PointerBroken, words: "--no-serve-artifacts"},
		"ExpiredOnce": {presigned: true, answer: func(_ *proxied, w http.ResponseWriter, _ *http.Request, n int64) bool {
			if n == 2 {
				refuse(w)
			}
			return n == 2
		}, want: exitcode.OK},
		"Expired": {presigned: true, answer: func(_ *proxied, w http.ResponseWriter, _ *http.Request, _ int64) bool { refuse(w); return true }, want: exitcode.StoreUnreachable, words: "403 to a presigned URL (AccessDenied)"},
		"RedirectOfStore": {presigned: true, answer: func(p *proxied, w http.ResponseWriter, r *http.Request, _ int64) bool {
			http.Redirect(w, r, p.elsewhere+r.URL.RequestURI(), http.StatusTemporaryRedirect)
			return true
		}, want: exitcode.StoreUnreachable, words: "redirect"},
		"Overwritten": {presigned: true, answer: func(_ *proxied, w http.ResponseWriter, r *http.Request, _ int64) bool {
			if isFile(r) && r.Header.Get("If-Match") != "" {
				w.WriteHeader(http.StatusPreconditionFailed)
				return true
			}
			return false
		}, want: exitcode.Integrity, words: "overwritten"},
		"OtherContent": {presigned: true, answer: func(_ *proxied, w http.ResponseWriter, r *http.Request, _ int64) bool {
			if strings.HasSuffix(r.URL.Path, "/config.json") {
				w.Header().Set("ETag", `"0123456789abcdef0123456789abcdef"`)
				_, _ = fmt.Fprint(w, "version x")
				return true
			}
			return false
		}, want: exitcode.Integrity, words: "md5"},
		"RangesIgnored": {presigned: true, answer: func(_ *proxied, _ http.ResponseWriter, r *http.Request, _ int64) bool {
			r.Header.Del("Range")
			return false
		}, want: exitcode.Integrity, words: "answers 200 to a request for a range"},
		"ThrottledOnce": {presigned: true, answer: func(_ *proxied, w http.ResponseWriter, _ *http.Request, n int64) bool {
			if n == 1 {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
			return n == 1
		}, want: exitcode.OK},
		"NotAStore": {presigned: true, registry: func(_ *proxied, w http.ResponseWriter, r *http.Request) bool {
			if strings.Contains(r.URL.Path, "/presigned/") {
				w.Header().Set("Content-Type", "application/json")
				_, _ = fmt.Fprint(w, `{"url":"file:///etc/passwd?`+signature+`","headers":{}}`)
				return true
			}
			return false
		}, want: exitcode.PointerBroken, words: "not http(s)"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProxied(t, tc.presigned)
			p.mu.Lock()
			p.answer = func(w http.ResponseWriter, r *http.Request, n int64) bool {
				return tc.answer != nil && tc.answer(p, w, r, n)
			}
			p.intercept = func(w http.ResponseWriter, r *http.Request) bool { return tc.registry != nil && tc.registry(p, w, r) }
			p.mu.Unlock()
			code, stderr := p.init("--deadline", "20s")
			require.Equal(t, tc.want, code, stderr)
			require.NotContains(t, stderr, signature)
			require.Zero(t, p.asked.Load(), "somebody else was asked")
			if tc.want == exitcode.OK {
				p.requireServing("1")
				return
			}
			require.Contains(t, stderr, tc.words)
			require.NoFileExists(t, filepath.Join(p.root, "current"))
		})
	}
}

// A run that only chooses among the files names another version, as of a store.
func TestChoiceAmongProxiedFiles(t *testing.T) {
	p := newProxied(t, false)
	code, stderr := p.init("--include", "config.json", "--any-layout")
	require.Equal(t, exitcode.OK, code, stderr)
	names := map[string]bool{}
	for _, o := range p.manifest().Objects {
		names[o.Path] = true
	}
	require.True(t, maps.Equal(map[string]bool{"config.json": true}, names), names)
}
