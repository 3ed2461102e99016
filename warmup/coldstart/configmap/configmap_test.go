package configmap_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/pilotlight-dev/pilotlight/warmup/coldstart"
	"github.com/pilotlight-dev/pilotlight/warmup/coldstart/configmap"
)

const namespace = "pilotlight"

var (
	epoch = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	llama = coldstart.Key{Namespace: "ai", Name: "llama", Trigger: "0123456789abcdef"}
)

func entry(load float64) coldstart.Entry {
	return coldstart.Entry{
		Templates: []coldstart.Template{{Hash: "5d4f", Starts: []coldstart.Start{{Schedule: 2, Fetch: 30.5, Load: load}}}},
		Counted:   []string{"llama-1@1772366400"}, State: json.RawMessage(`{"a":1}`), Updated: epoch,
	}
}

func newStore() (configmap.Store, *fake.Clientset) {
	client := fake.NewClientset()
	return configmap.Store{Client: client, Namespace: namespace}, client
}

// configMaps are those in the namespace, by name.
func configMaps(t *testing.T, client *fake.Clientset) map[string]*corev1.ConfigMap {
	t.Helper()
	list, err := client.CoreV1().ConfigMaps(namespace).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	out := map[string]*corev1.ConfigMap{}
	for i := range list.Items {
		out[list.Items[i].Name] = &list.Items[i]
	}
	return out
}

func TestRoundTrip(t *testing.T) {
	store, client := newStore()
	entries, damaged, err := store.Load(t.Context())
	require.NoError(t, err)
	require.Empty(t, damaged)
	require.Empty(t, entries, "nothing there is nothing learned, and no error")

	want := map[coldstart.Key]coldstart.Entry{}
	for i := range 96 {
		want[coldstart.Key{Namespace: fmt.Sprintf("team-%d", i%7), Name: fmt.Sprintf("llama-3.%d", i), Trigger: "0123456789abcdef"}] = entry(float64(i))
	}
	long := strings.Repeat("l", 250)
	for i, k := range []coldstart.Key{
		llama,
		{Namespace: "ai", Name: "llama"},
		{Namespace: "ai", Name: long, Trigger: "0123456789abcdef"}, // longer than a key of a ConfigMap may be
		{Namespace: "a/b", Name: "ünknown name", Trigger: "t"},     // whoever calls the scaler may say anything
	} {
		want[k] = entry(float64(1000 + i))
	}
	require.NoError(t, store.Save(t.Context(), want))
	got, damaged, err := store.Load(t.Context())
	require.NoError(t, err)
	require.Empty(t, damaged)
	require.Empty(t, cmp.Diff(want, got))

	shards := configMaps(t, client)
	require.Equal(t, configmap.Shards, len(shards), "a hundred keys are spread over all")
	for _, cm := range shards {
		require.Less(t, len(cm.Data), 20, "evenly")
		for name := range cm.Data {
			require.Empty(t, validation.IsConfigMapKey(name), name)
		}
	}
}

func TestSaveMerges(t *testing.T) {
	store, _ := newStore()
	edited := coldstart.Key{Namespace: "ai", Name: "llama", Trigger: "fedcba9876543210"} // in the same ConfigMap
	require.NoError(t, store.Save(t.Context(), map[coldstart.Key]coldstart.Entry{llama: entry(1)}))
	require.NoError(t, store.Save(t.Context(), map[coldstart.Key]coldstart.Entry{edited: entry(2)}))
	require.NoError(t, store.Save(t.Context(), map[coldstart.Key]coldstart.Entry{llama: entry(3)}))
	got, _, err := store.Load(t.Context())
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(map[coldstart.Key]coldstart.Entry{llama: entry(3), edited: entry(2)}, got))
}

// What somebody or something has spoiled is reported by name, left out, and
// cleared by the next write; what is sound stays.
func TestSpoiledEntries(t *testing.T) {
	sound, err := coldstart.Encode(llama, entry(60))
	require.NoError(t, err)
	starts := strings.TrimSuffix(strings.Repeat(`{"load":1},`, 33), ",")
	cases := map[string]struct{ body, reason string }{
		"Damaged":     {string(sound)[:40], "cut off"},
		"Empty":       {"", "no JSON"},
		"Null":        {"null", "JSON of nothing"},
		"Prose":       {"do not touch", "edited by hand"},
		"Negative":    {strings.Replace(string(sound), `"load":60`, `"load":-60`, 1), "a start that ends before it begins"},
		"AMonth":      {strings.Replace(string(sound), `"load":60`, `"load":2592000`, 1), "a start of a month"},
		"WrongType":   {strings.Replace(string(sound), `"load":60`, `"load":"60s"`, 1), "a text for a number"},
		"Newer":       {strings.Replace(string(sound), `"v":1`, `"v":2`, 1), "written by a newer release"},
		"NoVersion":   {strings.Replace(string(sound), `"v":1,`, ``, 1), "nobody knows what it means"},
		"Nameless":    {strings.Replace(string(sound), `"name":"llama"`, `"name":""`, 1), "about nobody"},
		"Foreign":     {string(sound), "a copy under another's name"},
		"OverMany":    {`{"v":1,"namespace":"ai","name":"bad","templates":[{"starts":[` + starts + `]}]}`, "more starts than anybody keeps"},
		"OverManyToo": {`{"v":1,"namespace":"ai","name":"bad","templates":[{},{},{},{}]}`, "more templates than anybody keeps"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			store, client := newStore()
			require.NoError(t, store.Save(t.Context(), map[coldstart.Key]coldstart.Entry{llama: entry(60)}))
			for _, cm := range configMaps(t, client) {
				cm.Data["ai.bad_"] = tc.body
				_, err := client.CoreV1().ConfigMaps(namespace).Update(t.Context(), cm, metav1.UpdateOptions{})
				require.NoError(t, err)
			}
			got, damaged, err := store.Load(t.Context())
			require.NoError(t, err)
			require.Len(t, damaged, 1, tc.reason)
			require.ErrorIs(t, damaged[0], coldstart.ErrEntry)
			require.ErrorContains(t, damaged[0], "ai.bad_")
			require.Empty(t, cmp.Diff(map[coldstart.Key]coldstart.Entry{llama: entry(60)}, got), "the sound one is there")

			other := coldstart.Key{Namespace: "ai", Name: "llama", Trigger: "other"} // in the same ConfigMap
			require.NoError(t, store.Save(t.Context(), map[coldstart.Key]coldstart.Entry{other: entry(1)}))
			got, damaged, err = store.Load(t.Context())
			require.NoError(t, err)
			require.Empty(t, damaged, "cleared")
			require.Empty(t, cmp.Diff(map[coldstart.Key]coldstart.Entry{llama: entry(60), other: entry(1)}, got))
		})
	}
}

// A record that was copied into another ConfigMap must not compete with the
// one in its own.
func TestRecordInAnotherShard(t *testing.T) {
	store, client := newStore()
	entries := map[coldstart.Key]coldstart.Entry{llama: entry(60)}
	for i := range 150 {
		entries[coldstart.Key{Namespace: "ai", Name: fmt.Sprint(i)}] = entry(1)
	}
	require.NoError(t, store.Save(t.Context(), entries))
	stale, err := coldstart.Encode(llama, entry(1))
	require.NoError(t, err)
	for _, cm := range configMaps(t, client) {
		if cm.Data["ai.llama_0123456789abcdef"] == "" {
			cm.Data["ai.llama_0123456789abcdef"] = string(stale)
			_, err := client.CoreV1().ConfigMaps(namespace).Update(t.Context(), cm, metav1.UpdateOptions{})
			require.NoError(t, err)
		}
	}
	got, damaged, err := store.Load(t.Context())
	require.NoError(t, err)
	require.Len(t, damaged, configmap.Shards-1)
	require.Empty(t, cmp.Diff(entries, got))
}

func TestSizeBoundKeepsTheLatest(t *testing.T) {
	store, client := newStore()
	state, err := json.Marshal(strings.Repeat("x", 100<<10))
	require.NoError(t, err)
	key := func(i int) coldstart.Key {
		return coldstart.Key{Namespace: "ai", Name: "llama", Trigger: fmt.Sprintf("%02d", i)}
	}
	for i := range 20 { // 2 MB into one ConfigMap, the odd ones being the older
		age := time.Duration(i/2+i%2*100) * time.Hour
		require.NoError(t, store.Save(t.Context(), map[coldstart.Key]coldstart.Entry{key(i): {State: state, Updated: epoch.Add(-age)}}))
	}
	got, damaged, err := store.Load(t.Context())
	require.NoError(t, err)
	require.Empty(t, damaged)
	for i := range 7 {
		require.Contains(t, got, key(2*i), "the ones written last stay")
	}
	require.Len(t, got, 7, "seven of 100 KiB fit")
	for _, cm := range configMaps(t, client) {
		size := 0
		for name, body := range cm.Data {
			size += len(name) + len(body)
		}
		require.LessOrEqual(t, size, configmap.MaxBytes)
	}
}

// answer makes client refuse a verb on ConfigMaps so many times.
func answer(client *fake.Clientset, verb string, times int, err error) (asked *int) {
	asked = new(int)
	client.PrependReactor(verb, "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
		*asked++
		return *asked <= times, nil, err
	})
	return asked
}

func TestAnotherWriter(t *testing.T) {
	resource := corev1.Resource("configmaps")
	conflict := apierrors.NewConflict(resource, "pilotlight-state-0", errors.New("changed"))
	exists := apierrors.NewAlreadyExists(resource, "pilotlight-state-0")
	cases := map[string]struct {
		verb   string
		err    error
		times  int
		asked  int
		fails  bool
		reason string
	}{
		"Conflict":       {"update", conflict, 2, 3, false, "read and merged again"},
		"Created":        {"create", exists, 1, 2, false, "somebody else has made it just now"},
		"AlwaysConflict": {"update", conflict, 1 << 30, 5, true, "given up: the next write tries again"},
		"OtherError":     {"update", errors.New("etcd is full"), 1 << 30, 1, true, "trying at once would not help"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			store, client := newStore()
			entries := map[coldstart.Key]coldstart.Entry{llama: entry(1)}
			if tc.verb == "update" {
				require.NoError(t, store.Save(t.Context(), entries))
			}
			asked := answer(client, tc.verb, tc.times, tc.err)
			entries[llama] = entry(2)
			err := store.Save(t.Context(), entries)
			require.Equal(t, tc.asked, *asked, tc.reason)
			if tc.fails {
				require.ErrorIs(t, err, tc.err)
				require.ErrorContains(t, err, "pilotlight/pilotlight-state-")
				return
			}
			require.NoError(t, err, tc.reason)
			got, _, err := store.Load(t.Context())
			require.NoError(t, err)
			require.Empty(t, cmp.Diff(entries, got))
		})
	}
}

func TestNotReached(t *testing.T) {
	forbidden := apierrors.NewForbidden(corev1.Resource("configmaps"), "", errors.New("no such right"))
	refused := errors.New("connection refused")
	for name, tc := range map[string]struct {
		err   error
		asked int
	}{
		"Forbidden":   {forbidden, 1}, // the same for all: once says it
		"Unreachable": {refused, configmap.Shards},
	} {
		t.Run(name, func(t *testing.T) {
			store, client := newStore()
			asked := answer(client, "get", 1<<30, tc.err)
			_, _, err := store.Load(t.Context())
			require.ErrorIs(t, err, tc.err)
			require.Equal(t, tc.asked, *asked)
			require.ErrorIs(t, store.Save(t.Context(), map[coldstart.Key]coldstart.Entry{llama: entry(1)}), tc.err)
		})
	}
}

// What the other ConfigMaps hold is there although one cannot be had.
func TestPartlyReached(t *testing.T) {
	store, client := newStore()
	entries := map[coldstart.Key]coldstart.Entry{}
	for i := range 100 {
		entries[coldstart.Key{Namespace: "ai", Name: fmt.Sprint(i)}] = entry(1)
	}
	require.NoError(t, store.Save(t.Context(), entries))
	refused := errors.New("timed out")
	answer(client, "get", 1, refused)
	got, _, err := store.Load(t.Context())
	require.ErrorIs(t, err, refused)
	require.Greater(t, len(got), 80)
	require.Less(t, len(got), 100)
}

func TestEndedContext(t *testing.T) {
	store, client := newStore()
	ctx, cancel := context.WithCancel(t.Context())
	asked := new(int)
	client.PrependReactor("get", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
		*asked++
		cancel()
		return true, nil, ctx.Err()
	})
	_, _, err := store.Load(ctx)
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, 1, *asked, "the rest is not tried")
}

func TestStateThatIsNoJSON(t *testing.T) {
	store, _ := newStore()
	bad := coldstart.Key{Namespace: "ai", Name: "bad"}
	err := store.Save(t.Context(), map[coldstart.Key]coldstart.Entry{llama: entry(1), bad: {State: json.RawMessage("{")}})
	require.ErrorContains(t, err, "ai/bad")
	got, _, err := store.Load(t.Context())
	require.NoError(t, err)
	require.Contains(t, got, llama, "it does not keep the others from being written")
}
