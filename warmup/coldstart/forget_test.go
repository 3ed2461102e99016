package coldstart_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/warmup/coldstart"
)

// A scaler serves 10,000 targets, and some triggers have just been edited.
func TestManyTargets(t *testing.T) {
	started := map[coldstart.Key]int{}
	l := coldstart.Learner{OnStart: func(k coldstart.Key, _ coldstart.Start) { started[k]++ }}
	const targets = 12_000
	key := func(i int) coldstart.Key { return coldstart.Key{Namespace: "ai", Name: fmt.Sprint(i)} }
	for round := range 3 {
		for i := range targets {
			l.Observe(key(i), pods("a", 60, 60), epoch.Add(time.Duration(round)*time.Second))
		}
	}
	require.Len(t, started, targets)
	for k, n := range started {
		require.Equal(t, 2, n, "each pod of %s once", k)
	}
}

// Each edit of a trigger makes a key. Those that nobody asks about any more are
// the first to go, and of them those that the Store has.
func TestBoundedKeys(t *testing.T) {
	const all, ofOne = 20_000, 32
	at := func(i int) time.Time { return epoch.Add(time.Duration(i) * time.Second) }
	name := func(i int) coldstart.Key { return coldstart.Key{Namespace: "ai", Name: fmt.Sprint(i)} }
	edit := func(i int) coldstart.Key {
		return coldstart.Key{Namespace: "ai", Name: "llama", Trigger: fmt.Sprint(i)}
	}
	cases := map[string]struct {
		bound  int
		key    func(int) coldstart.Key
		going  int // keys that go when ten come
		reason string
	}{
		"AllTargets":      {all, name, 1000, "all keys together"},
		"OneScaledObject": {ofOne, edit, 10, "those of one do not take the others' room"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var l coldstart.Learner
			known := func(i int) bool { return l.Kept(tc.key(i)) != nil }
			keep := func(i int) { l.Keep(tc.key(i), json.RawMessage(`{}`), at(i)) }
			keep(0)
			(&memory{}).keep(t, &l)
			for i := 1; i < tc.bound; i++ {
				keep(i)
			}
			l.Observe(tc.key(0), nil, at(2*tc.bound))
			keep(tc.bound)
			require.False(t, known(0), "what is not written yet stays before what is, although that was asked about")
			require.True(t, known(1))
			(&memory{}).keep(t, &l)
			l.Observe(tc.key(1), nil, at(2*tc.bound))
			for i := range 10 {
				keep(tc.bound + 1 + i)
			}
			require.True(t, known(1), "it is asked about")
			require.False(t, known(2), tc.reason)
			require.False(t, known(tc.going+1))
			require.True(t, known(tc.going+2))
			require.True(t, known(tc.bound+10))

			stored := map[coldstart.Key]coldstart.Entry{}
			for i := range tc.bound + 5 {
				stored[tc.key(i)] = coldstart.Entry{State: json.RawMessage(`{}`), Updated: at(i)}
			}
			l = coldstart.Learner{}
			l.Restore(stored)
			require.False(t, known(4))
			for i := max(5, tc.going); i < tc.bound+5; i++ {
				require.True(t, known(i), "the latest of what was stored")
			}
		})
	}
}
