package agentwatch_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/pilotlight-dev/pilotlight/cmd/internal/agentwatch"
)

// talkative is an API server with one pod, which answers anything with a status
// and far too much; it counts what of it is read.
type talkative struct {
	t      *testing.T
	status int
	much   int64
	read   atomic.Int64
}

func (s *talkative) RoundTrip(r *http.Request) (*http.Response, error) {
	resp := &http.Response{StatusCode: s.status, ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{}, Request: r}
	if strings.Contains(r.URL.Path, "/proxy/") {
		resp.Body = counted{io.LimitReader(zeros{}, s.much), &s.read}
		return resp, nil
	}
	list := corev1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}, Items: []corev1.Pod{{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ai", Name: "a", Annotations: map[string]string{"padding": strings.Repeat("x", 3<<20)}},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.0.0.1"},
	}}}
	body, err := json.Marshal(list)
	require.NoError(s.t, err)
	resp.StatusCode, resp.Body = http.StatusOK, io.NopCloser(strings.NewReader(string(body)))
	resp.Header.Set("Content-Type", "application/json")
	return resp, nil
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

type counted struct {
	io.Reader
	read *atomic.Int64
}

func (c counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.read.Add(int64(n))
	return n, err
}

func (counted) Close() error { return nil }

// However much a pod answers, and with whatever status, a little of it is read.
// The API server's own answers are read in full: the list has three megabytes.
func TestWhatAPodAnswersIsBounded(t *testing.T) {
	for _, status := range []int{http.StatusOK, http.StatusAccepted, http.StatusForbidden, http.StatusInternalServerError} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			server := &talkative{t: t, status: status, much: 32 << 20}
			client, err := kubernetes.NewForConfigAndClient(&rest.Config{Host: "http://api"}, &http.Client{Transport: agentwatch.Bound(server)})
			require.NoError(t, err)
			c := agentwatch.Cluster{Client: client, Proxy: client.CoreV1().RESTClient()}
			_, err = c.Nudge(t.Context())
			require.Equal(t, status >= 400, err != nil, "%v", err)
			require.LessOrEqual(t, server.read.Load(), int64(2<<20))
			server.read.Store(0)
			pods, err := c.Pods(t.Context())
			require.NoError(t, err)
			require.Len(t, pods, 1)
			require.NotEmpty(t, pods[0].Unknown)
			require.LessOrEqual(t, server.read.Load(), int64(2<<20))
		})
	}
}

// deaf answers nothing.
type deaf struct{}

func (deaf) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// What ends an answer is said as it is: the bound of one, or the time of the
// whole, in which somebody else may have been waited for.
func TestWhoseTimeWasUpIsSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := agentwatch.Addresses{Addrs: []string{"a:9400"}, Client: &http.Client{Transport: deaf{}}}
		pods, err := source.Pods(t.Context())
		require.NoError(t, err)
		require.Equal(t, "no answer within 3s", pods[0].Unknown)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		pods, err = source.Pods(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, "no answer before the time was up", pods[0].Unknown)
	})
}
