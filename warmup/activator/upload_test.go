package activator

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Many clients read nothing before they have sent their whole request. One
// that is refused in the middle of a large one can read why, all the same.
func TestWhoIsRefusedWhileSendingCanReadWhy(t *testing.T) {
	const size = 24 << 20 // more than sockets take by themselves
	const announced, chunked = "Content-Length: %d\r\n\r\n%s", "Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n"
	cases := map[string]struct {
		opts   Options
		form   string
		status int
		code   string
	}{
		"TooLarge":        {Options{MaxBody: 1 << 20}, announced, 413, "request_too_large"},
		"TooLargeChunked": {Options{MaxBody: 1 << 20}, chunked, 413, "request_too_large"},
		"LineIsFull":      {Options{MaxBytes: 1 << 20}, announced, 429, "hold_queue_full"},
		"MemoryIsFull":    {Options{MaxTotal: 8 << 20}, announced, 503, "overloaded"},
		"MemoryIsFull2":   {Options{MaxTotal: 8 << 20}, chunked, 503, "overloaded"},
	}
	const head, tail = `{"model":"llama","x":"`, `"}`
	body := head + strings.Repeat("y", size-len(head)-len(tail)) + tail
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, tc.opts)
			r.set(t, target(llama, nil))
			var d net.Dialer
			conn, err := d.DialContext(t.Context(), "tcp", strings.TrimPrefix(r.url, "http://"))
			require.NoError(t, err)
			defer func() { _ = conn.Close() }()
			require.NoError(t, conn.SetDeadline(time.Now().Add(15*time.Second)))
			_, err = fmt.Fprintf(conn, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n"+tc.form, size, body)
			require.NoError(t, err, "the rest is taken")
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			require.NoError(t, err)
			text, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			require.Equal(t, tc.status, resp.StatusCode)
			require.Contains(t, string(text), tc.code)
			require.Eventually(t, func() bool { return r.active.Load() == 0 && r.memory.used.Load() == 0 }, 30*time.Second, time.Millisecond)
		})
	}
}

// Reading on ends, and whoever sends nothing before it is asked to is not
// waited for.
func TestReadingOnIsBounded(t *testing.T) {
	cases := map[string]struct {
		header string
		sends  bool
		within time.Duration
	}{
		"SlowClient": {"", true, readOnWithin + time.Second},
		"Expects":    {"Expect: 100-continue\r\n", false, time.Second},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			in(t, Options{}, func(t *testing.T, tn *town) {
				tn.set(t, target(llama, nil))
				conn, err := tn.dial(t.Context(), "tcp", clientsAt)
				require.NoError(t, err)
				defer func() { _ = conn.Close() }()
				_, err = io.WriteString(conn, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 200000000\r\n"+tc.header+"\r\n")
				require.NoError(t, err)
				from := bufio.NewReader(conn)
				resp, err := http.ReadResponse(from, nil)
				require.NoError(t, err)
				_, err = io.Copy(io.Discard, resp.Body)
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
				require.Equal(t, http.StatusRequestEntityTooLarge, resp.StatusCode)
				began := time.Now()
				go func() {
					for tc.sends {
						if _, err := conn.Write([]byte("x")); err != nil {
							return
						}
						time.Sleep(time.Second)
					}
				}()
				_, err = from.ReadByte()
				require.Error(t, err)
				require.LessOrEqual(t, time.Since(began), tc.within)
				require.Zero(t, tn.active.Load())
			})
		})
	}
}

// drip gives out a body in small pieces and tells how much of it has come.
type drip struct {
	body io.Reader
	sent int64
	seen func(sent int64)
}

func (d *drip) Read(p []byte) (int, error) {
	d.seen(d.sent)
	n, err := d.body.Read(p[:min(len(p), 4<<10)])
	d.sent += int64(n)
	return n, err
}

// What a client announces costs it nothing, and a large body leaves little
// behind on its way into memory.
func TestMemoryGrowsWithTheBody(t *testing.T) {
	const size = 31_000_000
	for name, announced := range map[string]int64{"Announced": size, "Chunked": -1} {
		t.Run(name, func(t *testing.T) {
			body := strings.NewReader(strings.Repeat("y", size))
			memory := &budget{total: 1 << 30}
			p := &payload{memory: memory, owned: true}
			from := &drip{body: body, seen: func(sent int64) { require.LessOrEqual(t, memory.used.Load(), max(small, 4*sent+4)) }}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			u := upload{
				control: http.NewResponseController(httptest.NewRecorder()), from: from, pause: time.Second, rate: 1 << 10,
				early: func([]byte) error { return nil },
			}
			require.NoError(t, u.into(p, announced))
			runtime.ReadMemStats(&after)
			require.Len(t, p.data, size)
			if announced > 0 {
				require.Equal(t, int64(size), memory.used.Load())
				require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(2*size), "beside the body, less than another")
			}
			p.drop()
			require.Zero(t, memory.used.Load())
		})
	}
}
