package mlflow_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/fetcher"
	fakemlflow "github.com/pilotlight-dev/pilotlight/internal/fake/mlflow"
	fakes3 "github.com/pilotlight-dev/pilotlight/internal/fake/s3"
	"github.com/pilotlight-dev/pilotlight/registry"
	client "github.com/pilotlight-dev/pilotlight/registry/mlflow"
)

// password is the registry's and must be seen nowhere else.
const password = "registry-password"

// watched is a server that keeps the headers of what it was asked.
type watched struct {
	*httptest.Server
	mu   sync.Mutex
	seen []http.Header
}

func watch(t *testing.T, next http.Handler) *watched {
	t.Helper()
	w := &watched{}
	w.Server = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.mu.Lock()
		w.seen = append(w.seen, r.Header.Clone())
		w.mu.Unlock()
		next.ServeHTTP(rw, r)
	}))
	t.Cleanup(w.Close)
	return w
}

func (w *watched) headers() []http.Header {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]http.Header(nil), w.seen...)
}

// world is a registry that may lie, a store, and somebody else's server.
type world struct {
	registry         *fakemlflow.Server
	tracking         *watched
	store, elsewhere *watched
	opts             fetcher.Options
}

func newWorld(t *testing.T, intercept func(w *world, rw http.ResponseWriter, r *http.Request) bool) *world {
	t.Helper()
	w := &world{}
	w.elsewhere = watch(t, http.NotFoundHandler())
	w.registry = fakemlflow.New(fakemlflow.Options{Username: "ann", Password: password, Recent: true, Intercept: func(rw http.ResponseWriter, r *http.Request) bool {
		return intercept != nil && intercept(w, rw, r)
	}})
	objects := fakes3.New(fakes3.Options{Credentials: map[string]string{keyID: secretKey}})
	for name, data := range rawFiles() {
		objects.PutObject(bucket, "llama/1/"+name, data, fakes3.PutOptions{})
		objects.PutObject("private", "llama/1/"+name, data, fakes3.PutOptions{})
	}
	w.tracking, w.store = watch(t, w.registry), watch(t, objects)

	resolver, err := client.New(client.Config{TrackingURI: w.tracking.URL, Username: "ann", Password: password, Attempts: 1})
	require.NoError(t, err)
	ref, err := registry.ParseRef("models:/llama@champion")
	require.NoError(t, err)
	allowed, err := registry.ParseLocation("s3://" + bucket + "/llama")
	require.NoError(t, err)
	store := connect(t, w.store.URL)
	w.opts = fetcher.Options{
		Ref: ref, Root: filepath.Join(t.TempDir(), "models"), Resolver: resolver, Deadline: 10 * time.Second,
		AllowLocations: []registry.Location{allowed},
		Connect:        func(context.Context, registry.Location) (fetcher.S3API, error) { return store.client, nil },
	}
	return w
}

// point makes the alias lead to a place.
func (w *world) point(t *testing.T, source string) {
	t.Helper()
	number, err := w.registry.CreateVersion("llama", "s3://"+bucket+"/llama/1")
	require.NoError(t, err)
	require.NoError(t, w.registry.SetLocation("llama", number, source))
	require.NoError(t, w.registry.SetAlias("llama", "champion", number))
}

// requireNoLeak demands that each server saw its own credentials only, and the
// server elsewhere nothing at all.
func (w *world) requireNoLeak(t *testing.T) {
	t.Helper()
	require.Empty(t, w.elsewhere.headers(), "somebody else was asked")
	for _, h := range w.tracking.headers() {
		require.True(t, strings.HasPrefix(h.Get("Authorization"), "Basic "), h)
		require.Empty(t, h.Get("X-Amz-Security-Token"))
	}
	for _, h := range w.store.headers() {
		require.True(t, strings.HasPrefix(h.Get("Authorization"), "AWS4-HMAC-SHA256 "), h)
	}
}

func TestEachServerSeesItsOwnCredentials(t *testing.T) {
	w := newWorld(t, nil)
	w.point(t, "s3://"+bucket+"/llama/1")
	_, err := fetcher.Init(t.Context(), w.opts)
	require.NoError(t, err)
	requireTree(t, w.opts.Root, rawFiles())
	require.NotEmpty(t, w.tracking.headers())
	require.NotEmpty(t, w.store.headers())
	w.requireNoLeak(t)
}

// TestLocationsThatLeadAstray gives the pointer a place that somebody would like
// the fetcher to go to with the credentials it has. ELSEWHERE is a server's
// address.
func TestLocationsThatLeadAstray(t *testing.T) {
	for name, tc := range map[string]struct {
		location string
		want     error
	}{
		"ProxyOfAnotherHost":  {"mlflow-artifacts://ELSEWHERE/llama/1", registry.ErrUnsupported},
		"ProxyNotAllowed":     {"mlflow-artifacts:/llama/1", registry.ErrBroken},
		"OutOfTheProxy":       {"mlflow-artifacts:/../llama/1", registry.ErrBroken},
		"WebAddress":          {"http://ELSEWHERE/llama/1", registry.ErrUnsupported},
		"BucketNotAllowed":    {"s3://private/llama/1", registry.ErrBroken},
		"PrefixNotAllowed":    {"s3://" + bucket + "/llama-of-others/1", registry.ErrBroken},
		"AboveTheAllowed":     {"s3://" + bucket, registry.ErrBroken},
		"OutOfTheAllowed":     {"s3://" + bucket + "/llama/../private", registry.ErrBroken},
		"BucketWithAPassword": {"s3://user:word@" + bucket + "/llama/1", registry.ErrBroken},
		"R2OfAnotherHost":     {"r2://" + bucket + "@ELSEWHERE/llama/1", registry.ErrBroken},
		"R2WithASuffix":       {"r2://" + bucket + "@a.r2.cloudflarestorage.com.example.com/llama/1", registry.ErrBroken},
		"AnotherRegistry":     {"models://ELSEWHERE/llama/1", registry.ErrBroken},
		"File":                {"file:///etc", registry.ErrUnsupported},
		"Path":                {"/etc", registry.ErrUnsupported},
		"Itself":              {"models:/llama@champion", registry.ErrBroken},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			w.point(t, strings.ReplaceAll(tc.location, "ELSEWHERE", strings.TrimPrefix(w.elsewhere.URL, "http://")))
			_, err := fetcher.Init(t.Context(), w.opts)
			require.ErrorIs(t, err, tc.want)
			require.NotContains(t, err.Error(), password)
			require.NotContains(t, err.Error(), ":word@")
			require.NoFileExists(t, filepath.Join(w.opts.Root, "current"))
			require.Empty(t, w.store.headers(), "the store was asked")
			w.requireNoLeak(t)
		})
	}
}

// TestRedirectsThatLeadAstray sends the client to another host, at each of the
// calls that a resolution makes.
func TestRedirectsThatLeadAstray(t *testing.T) {
	for _, call := range []string{"registered-models/alias", "model-versions/get-download-uri", "logged-models/"} {
		for _, status := range []int{http.StatusFound, http.StatusTemporaryRedirect, http.StatusPermanentRedirect} {
			t.Run(call+" "+http.StatusText(status), func(t *testing.T) {
				w := newWorld(t, func(w *world, rw http.ResponseWriter, r *http.Request) bool {
					if !strings.Contains(r.URL.Path, call) {
						return false
					}
					http.Redirect(rw, r, w.elsewhere.URL+r.URL.RequestURI(), status)
					return true
				})
				id := "m-" + strings.Repeat("0", 32)
				w.registry.AddLoggedModel(id, "s3://"+bucket+"/llama/1")
				w.point(t, "models:/"+id)
				_, err := fetcher.Init(t.Context(), w.opts)
				require.ErrorIs(t, err, registry.ErrDenied)
				require.NotContains(t, err.Error(), password)
				require.NoFileExists(t, filepath.Join(w.opts.Root, "current"))
				w.requireNoLeak(t)
			})
		}
	}
}
