package coldstart_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/warmup/coldstart"
)

// notes is a Memory of what it is given.
type notes struct {
	mu       sync.Mutex
	restored map[coldstart.Key]coldstart.Entry
	pending  map[coldstart.Key]coldstart.Entry
	failures int
}

func (*notes) Owns(k coldstart.Key) bool { return k.Trigger == "notes" }

func (n *notes) Restore(entries map[coldstart.Key]coldstart.Entry) []error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.restored = entries
	for k := range entries {
		if k.Name == "bad" {
			return []error{fmt.Errorf("%s: %w", k, coldstart.ErrEntry)}
		}
	}
	return nil
}

func (n *notes) Changed() map[coldstart.Key]coldstart.Entry {
	n.mu.Lock()
	defer n.mu.Unlock()
	out := n.pending
	n.pending = nil
	return out
}

func (n *notes) Failed(entries map[coldstart.Key]coldstart.Entry) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.failures++
	n.pending = map[coldstart.Key]coldstart.Entry{}
	for k, e := range entries {
		if n.Owns(k) {
			n.pending[k] = e
		}
	}
}

// What else is remembered is kept with the starts, and neither takes the other's.
func TestAKeeperKeepsMoreThanStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		note, bad := coldstart.Key{Namespace: "ai", Name: "x", Trigger: "notes"}, coldstart.Key{Namespace: "ai", Name: "bad", Trigger: "notes"}
		target := coldstart.Key{Namespace: "ai", Name: "llama", Trigger: "0123"}
		state := coldstart.Entry{State: json.RawMessage(`{"a":1}`), Updated: time.Now()}
		store := &memory{entries: map[coldstart.Key]coldstart.Entry{note: state, bad: state, target: state}}
		var learner coldstart.Learner
		other := &notes{}
		var said journal
		k := &coldstart.Keeper{Learner: &learner, Others: []coldstart.Memory{other}, Store: store, Logger: slog.New(slog.NewTextHandler(&said, nil))}
		k.Restore(t.Context())
		require.Len(t, other.restored, 2)
		require.Nil(t, learner.Kept(note), "the learner does not get it")
		require.NotNil(t, learner.Kept(target))
		require.Contains(t, said.text(), "ai/bad/notes")

		store.now(faults{save: errors.New("no")})
		other.pending = map[coldstart.Key]coldstart.Entry{note: {State: json.RawMessage(`{"a":2}`), Updated: time.Now()}}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { k.Run(ctx); close(done) }()
		time.Sleep(45 * time.Second)
		store.now(faults{})
		time.Sleep(time.Minute)
		cancel()
		<-done
		require.Equal(t, 1, other.failures)
		require.JSONEq(t, `{"a":2}`, string(store.entries[note].State), "written once it could be")
		require.JSONEq(t, `{"a":1}`, string(store.entries[target].State))
	})
}
