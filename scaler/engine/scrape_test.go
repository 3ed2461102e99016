package engine_test

import (
	"compress/gzip"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/internal/freeport"
	"github.com/pilotlight-dev/pilotlight/scaler/engine"
)

// patient is the timeout where none is expected, on a busy machine too.
const patient = 10 * time.Second

// scrape fetches /metrics of a server that runs h.
func scrape(t *testing.T, o engine.Options, h http.HandlerFunc) (engine.Reading, error) {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	if o.Timeout == 0 {
		o.Timeout = patient
	}
	s := engine.NewScraper(o)
	t.Cleanup(s.Close)
	return s.Scrape(t.Context(), engine.Target{URL: srv.URL + "/metrics"})
}

func answer(contentType, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		_, _ = io.WriteString(w, body)
	}
}

func TestScrapeReadsGoodAnswers(t *testing.T) {
	tests := map[string]http.HandlerFunc{
		"Text":        answer("text/plain; version=0.0.4", load),
		"OpenMetrics": answer("application/openmetrics-text; version=1.0.0", load+"# EOF\n"),
		"OddType":     answer("application/json", load),
		"NoNewline":   answer("text/plain", strings.TrimSuffix(load, "\n")),
		"Gzip": func(w http.ResponseWriter, r *http.Request) {
			if !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
				http.Error(w, "gzip not asked for", http.StatusNotAcceptable)
				return
			}
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = io.WriteString(w, zipped(load))
		},
		"RedirectOnTheSameServer": func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/metrics" {
				http.Redirect(w, r, "/metrics/", http.StatusTemporaryRedirect)
				return
			}
			_, _ = io.WriteString(w, load)
		},
		"CloseDelimited":     raw("HTTP/1.0 200 OK\r\n\r\n" + load),
		"CloseDelimitedGzip": raw("HTTP/1.0 200 OK\r\nContent-Encoding: gzip\r\n\r\n" + zipped(strings.TrimSuffix(load, "\n"))),
	}
	for name, h := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := scrape(t, engine.Options{}, h)
			require.NoError(t, err)
			requireReading(t, only(3, 2), got)
		})
	}
}

func zipped(s string) string {
	var b strings.Builder
	z := gzip.NewWriter(&b)
	_, _ = io.WriteString(z, s)
	_ = z.Close()
	return b.String()
}

// raw answers with exactly these bytes and closes the connection.
func raw(answer string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		conn, buf, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		_, _ = buf.WriteString(answer)
		_ = buf.Flush()
		_ = conn.Close()
	}
}

func toHTTPS(w http.ResponseWriter, r *http.Request) {
	http.Redirect(w, r, "https://"+r.Host, http.StatusFound) //nolint:gosec // a test server, asked by this test only
}

func TestScrapeFailuresHaveTheirReasons(t *testing.T) {
	elsewhere := httptest.NewServer(answer("text/plain", load))
	t.Cleanup(elsewhere.Close)
	redirect := func(to string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, to, http.StatusFound) }
	}
	status := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			w.WriteHeader(code)
			_, _ = io.WriteString(w, "<html>"+load)
		}
	}
	big := load + strings.Repeat("#", 2000) + "\n"
	tests := map[string]struct {
		handler http.HandlerFunc
		want    error
		reason  string
	}{
		"Unauthorized":        {status(401), engine.ErrStatus, "status_401"},
		"NotFound":            {status(404), engine.ErrStatus, "status_404"},
		"ServerError":         {status(500), engine.ErrStatus, "status_500"},
		"NoContent":           {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }, engine.ErrStatus, "status_204"},
		"HTMLByType":          {answer("Text/HTML; charset=utf-8", load), engine.ErrHTML, "html"},
		"HTMLByContent":       {answer("text/plain", "\n <!DOCTYPE html>"), engine.ErrHTML, "html"},
		"RedirectToOtherHost": {redirect(elsewhere.URL), engine.ErrRedirect, "redirect"},
		"RedirectToHTTPS":     {toHTTPS, engine.ErrRedirect, "redirect"},
		"RedirectLoop":        {redirect("/metrics"), engine.ErrRedirect, "redirect"},
		"Empty":               {answer("text/plain", ""), engine.ErrEmpty, "empty"},
		"NotMetrics":          {answer("application/json", `{"ok":true}`), engine.ErrMalformed, "malformed"},
		"OtherModels":         {answer("text/plain", string(page("a", "b"))), engine.ErrModel, "model"},
		"OtherEngine":         {answer("text/plain", "up 1\n"), engine.ErrNoSeries, "no_series"},
		"NotFinite":           {answer("text/plain", strings.ReplaceAll(load, " 3", " NaN")), engine.ErrNotFinite, "not_finite"},
		"TooLarge":            {answer("text/plain", big), engine.ErrTooLarge, "too_large"},
		"TooLargeByLength":    {raw("HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n"), engine.ErrTooLarge, "too_large"},
		"TooLargeUnzipped": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = io.WriteString(w, zipped(big))
		}, engine.ErrTooLarge, "too_large"},
		"CutShortOfItsLength": {raw("HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n" + load), engine.ErrCut, "cut"},
		"CutInAChunk":         {raw("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nvllm:"), engine.ErrCut, "cut"},
		"CutBetweenChunks":    {raw(fmt.Sprintf("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n", len(load), load)), engine.ErrCut, "cut"},
		"CutWithoutLength":    {raw("HTTP/1.0 200 OK\r\n\r\n" + load[:len(load)-1]), engine.ErrCut, "cut"},
		"BrokenGzip":          {raw("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\nabcd"), engine.ErrCut, "cut"},
		"ClosedAtOnce":        {raw(""), engine.ErrCut, "cut"},
		"NotHTTP":             {raw("220 smtp\r\n"), engine.ErrUnknown, "other"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := scrape(t, engine.Options{MaxBody: 1500}, tc.handler)
			require.ErrorIs(t, err, tc.want)
			require.ErrorIs(t, err, engine.ErrUnknown)
			require.Equal(t, tc.reason, engine.Reason(err))
			requireReading(t, unknown(), got)
		})
	}
	require.Empty(t, engine.Reason(nil))
}

func TestRedirectsAreFollowedThreeTimes(t *testing.T) {
	var asked atomic.Int32
	_, err := scrape(t, engine.Options{}, func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		http.Redirect(w, r, "/metrics", http.StatusFound)
	})
	require.ErrorIs(t, err, engine.ErrRedirect)
	require.EqualValues(t, 1+3, asked.Load())
}

func TestStatusErrorTellsTheCode(t *testing.T) {
	_, err := scrape(t, engine.Options{}, http.NotFound)
	var se *engine.StatusError
	require.ErrorAs(t, err, &se)
	require.Equal(t, http.StatusNotFound, se.Code)
}

func TestRefusedMeansStarting(t *testing.T) {
	addr, err := freeport.Addr(t.Context())
	require.NoError(t, err)
	_, err = engine.NewScraper(engine.Options{Timeout: patient}).Scrape(t.Context(), engine.Target{URL: "http://" + addr + "/metrics"})
	require.ErrorIs(t, err, engine.ErrRefused)
	require.Equal(t, "refused", engine.Reason(err))
}

// stuck never answers.
type stuck struct{}

func (stuck) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

func TestScrapeEndsAtItsTimeout(t *testing.T) {
	for timeout, want := range map[time.Duration]time.Duration{0: time.Second, 3 * time.Second: 3 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			s := engine.NewScraper(engine.Options{Client: &http.Client{Transport: stuck{}}, Timeout: timeout})
			start := time.Now()
			_, err := s.Scrape(t.Context(), engine.Target{URL: "http://pod:8000/metrics"})
			require.ErrorIs(t, err, engine.ErrTimeout)
			require.Equal(t, "timeout", engine.Reason(err))
			require.Equal(t, want, time.Since(start))
		})
	}
}

func TestTimeoutInTheMiddleOfThePage(t *testing.T) {
	_, err := scrape(t, engine.Options{Timeout: 50 * time.Millisecond}, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, load)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	require.ErrorIs(t, err, engine.ErrTimeout)
}

func TestCancelledScrapeIsNotATimeout(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s := engine.NewScraper(engine.Options{Client: &http.Client{Transport: stuck{}}})
	_, err := s.Scrape(ctx, engine.Target{URL: "http://pod:8000/metrics"})
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, engine.ErrUnknown)
	require.Equal(t, "other", engine.Reason(err))
}

func TestErrorsNameTheTargetButNoSecret(t *testing.T) {
	for _, path := range []string{"/metrics?token=hunter2", "/redirect?token=hunter2"} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/redirect" {
				http.Redirect(w, r, "http://user:hunter2@192.0.2.1/?token=hunter2", http.StatusFound)
				return
			}
			http.NotFound(w, r)
		}))
		t.Cleanup(srv.Close)
		target := strings.Replace(srv.URL, "http://", "http://user:hunter2@", 1) + path
		_, err := engine.NewScraper(engine.Options{Timeout: patient}).Scrape(t.Context(), engine.Target{URL: target})
		require.ErrorContains(t, err, srv.URL+strings.SplitN(path, "?", 2)[0])
		require.NotContains(t, err.Error(), "hunter2")
	}
	for _, bad := range []string{"http://user:hunter2@host:bad/", "metrics?hunter2", ""} {
		_, err := engine.NewScraper(engine.Options{Timeout: patient}).Scrape(t.Context(), engine.Target{URL: bad})
		require.ErrorIs(t, err, engine.ErrUnknown)
		require.NotContains(t, err.Error(), "hunter2")
	}
}

func TestScrapeKeepsTheConnection(t *testing.T) {
	var connections atomic.Int32
	srv := httptest.NewUnstartedServer(answer("text/plain", load))
	srv.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	srv.Start()
	t.Cleanup(srv.Close)
	s := engine.NewScraper(engine.Options{Timeout: patient})
	for range 5 {
		_, err := s.Scrape(t.Context(), engine.Target{URL: srv.URL})
		require.NoError(t, err)
	}
	require.EqualValues(t, 1, connections.Load())
}

func TestConcurrentScrapesDoNotMixPages(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, err := strconv.Atoi(r.URL.Query().Get("n"))
		if err != nil {
			http.Error(w, "n", http.StatusBadRequest)
			return
		}
		_, _ = fmt.Fprintf(w, "vllm:num_requests_running %d\nvllm:num_requests_waiting %d\n", n, n)
	}))
	t.Cleanup(srv.Close)
	s := engine.NewScraper(engine.Options{Timeout: patient})
	var wg sync.WaitGroup
	for n := range 8 {
		wg.Go(func() {
			for range 20 {
				got, err := s.Scrape(t.Context(), engine.Target{URL: fmt.Sprintf("%s/?n=%d", srv.URL, n)})
				if err != nil || got.Running != float64(n) || got.Waiting != float64(n) {
					t.Errorf("page %d: got %v, %v, error %v", n, got.Running, got.Waiting, err)
				}
			}
		})
	}
	wg.Wait()
}

func TestScrapeOverTLS(t *testing.T) {
	srv := httptest.NewTLSServer(answer("text/plain", load))
	t.Cleanup(srv.Close)
	config, ok := srv.Client().Transport.(*http.Transport)
	require.True(t, ok)
	trusting := engine.NewScraper(engine.Options{TLS: &tls.Config{RootCAs: config.TLSClientConfig.RootCAs, MinVersion: tls.VersionTLS12}, Timeout: patient})
	got, err := trusting.Scrape(t.Context(), engine.Target{URL: srv.URL})
	require.NoError(t, err)
	requireReading(t, only(3, 2), got)

	_, err = engine.NewScraper(engine.Options{Timeout: patient}).Scrape(t.Context(), engine.Target{URL: srv.URL})
	require.ErrorIs(t, err, engine.ErrUnknown)
	require.Equal(t, "other", engine.Reason(err))
}

// A connection that the engine would close before the next scrape is not kept.
func TestConnectionsAreKeptForTheNextScrape(t *testing.T) {
	cases := map[string]struct {
		every time.Duration
		want  int64
	}{
		"Usual":    {time.Second, 1},
		"NotSaid":  {0, 1},
		"TooLate":  {5 * time.Second, 3},
		"MuchLate": {time.Minute, 3},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var opened atomic.Int64
			srv := httptest.NewUnstartedServer(answer("text/plain", load))
			srv.Config.ConnState = func(_ net.Conn, state http.ConnState) {
				if state == http.StateNew {
					opened.Add(1)
				}
			}
			srv.Start()
			t.Cleanup(srv.Close)
			s := engine.NewScraper(engine.Options{Timeout: patient, Every: tc.every})
			t.Cleanup(s.Close)
			for range 3 {
				_, err := s.Scrape(t.Context(), engine.Target{URL: srv.URL})
				require.NoError(t, err)
			}
			require.Equal(t, tc.want, opened.Load())
		})
	}
}
