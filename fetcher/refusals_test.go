package fetcher_test

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/fetcher"
	fake "github.com/pilotlight-dev/pilotlight/internal/fake/s3"
)

// refuser stands before a store and answers some requests with an S3 error, as a
// store does that has the bucket in another region.
type refuser struct {
	http.Handler
	which        func(*http.Request) bool
	status       int
	code, region string
	refused      atomic.Int64
}

func (s *refuser) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !s.which(r) {
		s.Handler.ServeHTTP(w, r)
		return
	}
	s.refused.Add(1)
	if s.region != "" {
		w.Header().Set("X-Amz-Bucket-Region", s.region)
	}
	w.WriteHeader(s.status)
	if r.Method != http.MethodHead { // which has no body
		_, _ = w.Write([]byte("<Error><Code>" + s.code + "</Code><Message>as the store\nputs it</Message></Error>"))
	}
}

// requireOneLine demands an error that ends the run at once and says why.
func requireOneLine(t *testing.T, w *world, words string) {
	t.Helper()
	opts := w.ranged()
	opts.Connections = 1
	_, err := fetcher.Init(t.Context(), opts)
	require.ErrorIs(t, err, fetcher.ErrStoreDenied)
	require.ErrorContains(t, err, words)
	require.NotContains(t, err.Error(), "\n")
	require.NoDirExists(t, w.root+"/current")
}

func TestABucketInAnotherRegionIsNamedAsSuch(t *testing.T) {
	t.Parallel()
	isList := func(r *http.Request) bool { return r.URL.Query().Has("list-type") }
	tests := map[string]struct {
		which        func(*http.Request) bool
		status       int
		code, region string
		words        string
	}{
		"List":            {isList, http.StatusMovedPermanently, "PermanentRedirect", "eu-west-1", "the bucket is in the region eu-west-1: set AWS_REGION"},
		"ListUnnamed":     {isList, http.StatusMovedPermanently, "PermanentRedirect", "", "the bucket is in another region: set AWS_REGION"},
		"Head":            {isHead, http.StatusMovedPermanently, "", "eu-west-1", "the bucket is in the region eu-west-1: set AWS_REGION"},
		"Range":           {isRange, http.StatusMovedPermanently, "PermanentRedirect", "eu-west-1", "the bucket is in the region eu-west-1: set AWS_REGION"},
		"SmallFile":       {isSmallGet, http.StatusMovedPermanently, "PermanentRedirect", "eu-west-1", "the bucket is in the region eu-west-1: set AWS_REGION"},
		"SignedForOther":  {isList, http.StatusBadRequest, "AuthorizationHeaderMalformed", "eu-west-1", "the bucket is in the region eu-west-1: set AWS_REGION"},
		"WrongConstraint": {isList, http.StatusBadRequest, "IllegalLocationConstraintException", "", "the bucket is in another region: set AWS_REGION"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.put("llama/1", shards("one"))
			s := &refuser{Handler: w.store, which: tc.which, status: tc.status, code: tc.code, region: tc.region}
			ts := httptest.NewServer(s)
			t.Cleanup(ts.Close)
			w.url = ts.URL
			requireOneLine(t, w, tc.words)
			require.LessOrEqual(t, s.refused.Load(), int64(3), "no repetition helps")
		})
	}
}

// Nobody follows a store to another host, and it is said at once.
func TestAStoreThatSendsElsewhereIsNamedAsSuch(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put("llama/1", shards("one"))
	other := httptest.NewServer(w.store)
	t.Cleanup(other.Close)
	ts := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		http.Redirect(rw, r, other.URL+r.URL.RequestURI(), http.StatusTemporaryRedirect)
	}))
	t.Cleanup(ts.Close)
	w.url = ts.URL
	requireOneLine(t, w, other.Listener.Addr().String()+"; give that host as the endpoint")
	require.Zero(t, w.store.Count("ListObjectsV2"))
}

func TestAClockThatTheStoreRefusesIsNamedAsSuch(t *testing.T) {
	t.Parallel()
	for name, ahead := range map[string]time.Duration{"StoreAhead": time.Hour, "StoreBehind": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			w := storeOf(t, fake.Options{
				Credentials: map[string]string{"id": "secret"}, Now: func() time.Time { return time.Now().Add(ahead) },
			})
			w.put("llama/1", shards("one"))
			requireOneLine(t, w, "correct the clock of this node")
			require.LessOrEqual(t, w.store.Count("ListObjectsV2"), 3, "no repetition helps")
		})
	}
}
