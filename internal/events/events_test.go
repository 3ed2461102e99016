package events

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

var llama = Object{Namespace: "ai", Name: "llama", UID: "1234"}

// world runs a Recorder in a bubble of faked time.
type world struct {
	*Recorder
	client *fake.Clientset
	logs   bytes.Buffer
}

func run(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{client: fake.NewClientset()}
		w.Recorder = New(w.client, "pilotlight-scaler", slog.New(slog.NewTextHandler(&w.logs, nil)))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { w.Run(ctx); close(done) }()
		test(t, w)
		cancel()
		<-done
	})
}

// warn says something and lets it be written.
func (w *world) warn(o Object, message string) {
	w.Warn(o, StartFailed, message)
	synctest.Wait()
}

func (w *world) events(t *testing.T) []corev1.Event {
	t.Helper()
	list, err := w.client.CoreV1().Events("").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	return list.Items
}

func (w *world) writes() int {
	n := 0
	for _, a := range w.client.Actions() {
		if a.GetVerb() == "create" || a.GetVerb() == "patch" {
			n++
		}
	}
	return n
}

func TestEventIsAboutTheScaledObject(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.warn(llama, "no pod\nbecame ready "+strings.Repeat("x", 2000))
		all := w.events(t)
		require.Len(t, all, 1)
		e := all[0]
		require.Equal(t, corev1.ObjectReference{APIVersion: "keda.sh/v1alpha1", Kind: "ScaledObject", Namespace: "ai", Name: "llama", UID: "1234"}, e.InvolvedObject)
		require.Equal(t, StartFailed, e.Reason)
		require.Equal(t, corev1.EventTypeWarning, e.Type)
		require.True(t, strings.HasPrefix(e.Message, "no pod became ready x"))
		require.Len(t, e.Message, 1024)
		require.Equal(t, "pilotlight-scaler", e.Source.Component)
	})
}

func TestRepeatsAreOneEvent(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		for range 601 {
			w.warn(llama, "no pod became ready")
			time.Sleep(time.Second)
		}
		require.Equal(t, 2, w.writes(), "made, and brought up to date after ten minutes")
		all := w.events(t)
		require.Len(t, all, 1)
		require.EqualValues(t, 601, all[0].Count)
		require.Equal(t, 10*time.Minute, all[0].LastTimestamp.Sub(all[0].FirstTimestamp.Time))

		w.warn(llama, "the image cannot be pulled")
		require.Equal(t, 2, w.writes(), "other words wait a little too")
		time.Sleep(rewordAfter)
		w.warn(llama, "the image cannot be pulled")
		require.Equal(t, "the image cannot be pulled", w.events(t)[0].Message)

		time.Sleep(2 * time.Hour)
		w.warn(llama, "no pod became ready")
		require.Len(t, w.events(t), 2, "long ago is another event")
	})
}

func TestDeletedEventIsMadeAnew(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.warn(llama, "a")
		require.NoError(t, w.client.CoreV1().Events("ai").Delete(t.Context(), w.events(t)[0].Name, metav1.DeleteOptions{}))
		time.Sleep(repeatAfter)
		w.warn(llama, "a")
		require.Len(t, w.events(t), 1)
	})
}

func TestAThousandObjectsDoNotFloodTheServer(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		for i := range 1000 {
			w.warn(Object{Namespace: "ai", Name: strconv.Itoa(i)}, "x")
		}
		require.Equal(t, burst, w.writes())
		time.Sleep(time.Minute)
		w.warn(llama, "x")
		require.Equal(t, burst+1, w.writes())
	})
}

// Without the right there is a line an hour and a try a minute.
func TestForbidden(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.client.PrependReactor("create", "events", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "events"}, "", errors.New("no"))
		})
		for range 90 * 60 {
			w.warn(llama, "x")
			time.Sleep(time.Second)
		}
		require.Equal(t, 2, strings.Count(w.logs.String(), "grant create and patch"))
		require.LessOrEqual(t, w.writes(), 91)
	})
}

func TestWarnNeverBlocks(t *testing.T) {
	r := New(fake.NewClientset(), "x", nil)
	for range 10 * queueLength {
		r.Warn(llama, StartFailed, "nobody runs it")
	}
}

func TestANoteIsNoWarning(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.Note(llama, ModelSwapped, "version 8 is published in place of 7")
		time.Sleep(time.Second)
		w.warn(llama, "no pod became Ready")
		kinds := map[string]string{}
		for _, e := range w.events(t) {
			kinds[e.Reason] = e.Type
		}
		require.Equal(t, map[string]string{ModelSwapped: corev1.EventTypeNormal, StartFailed: corev1.EventTypeWarning}, kinds)
		time.Sleep(time.Second)
		w.Note(llama, ModelSwapped, "version 7 is published in place of 8")
		synctest.Wait()
		require.Len(t, w.events(t), 3, "the way back is another event")
	})
}
