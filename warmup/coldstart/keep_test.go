package coldstart_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/warmup/coldstart"
)

// memory is a Store that can fail, hang and hold what cannot be read.
type memory struct {
	mu sync.Mutex // between a Keeper and its test
	faults
	entries map[coldstart.Key]coldstart.Entry
	saved   []int // number of entries of each Save that was tried
	loads   int
}

// faults are what goes wrong with a Store.
type faults struct {
	load, save error
	damaged    []error
	hang       bool
}

// now makes other things go wrong from now on.
func (m *memory) now(f faults) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.faults = f
}

// writes are the sizes of the writes that were tried.
func (m *memory) writes() []int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.saved)
}

// hold takes part of a Store's call: it hangs if it must.
func (m *memory) hold(ctx context.Context) (faults, error) {
	m.mu.Lock()
	f := m.faults
	m.mu.Unlock()
	if !f.hang {
		return f, nil
	}
	<-ctx.Done()
	return f, ctx.Err()
}

func (m *memory) Load(ctx context.Context) (map[coldstart.Key]coldstart.Entry, []error, error) {
	f, err := m.hold(ctx)
	if err != nil {
		return nil, nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.loads++
	if f.load != nil {
		return nil, nil, f.load
	}
	return maps.Clone(m.entries), f.damaged, nil
}

func (m *memory) Save(ctx context.Context, entries map[coldstart.Key]coldstart.Entry) error {
	f, err := m.hold(ctx)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.saved = append(m.saved, len(entries))
	if f.save != nil {
		return f.save
	}
	if m.entries == nil {
		m.entries = map[coldstart.Key]coldstart.Entry{}
	}
	for k, e := range entries { // as a Store does: through JSON
		body, err := coldstart.Encode(k, e)
		if err != nil {
			return err
		}
		k, e, err := coldstart.Decode(body)
		if err != nil {
			return err
		}
		m.entries[k] = e
	}
	return nil
}

// journal is a log that can be read while it is written.
type journal struct {
	mu sync.Mutex
	bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.Buffer.Write(p)
}

func (j *journal) text() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.String()
}

// keep saves all that l has learned.
func (m *memory) keep(t *testing.T, l *coldstart.Learner) {
	t.Helper()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	// A Store that is empty for the while of reading: l is as it is.
	(&coldstart.Keeper{Learner: l, Store: writeOnly{m}}).Run(ended)
}

type writeOnly struct{ *memory }

func (writeOnly) Load(context.Context) (map[coldstart.Key]coldstart.Entry, []error, error) {
	return nil, nil, nil
}

// keeping runs a Keeper in a bubble of faked time.
func keeping(t *testing.T, m *memory, test func(l *coldstart.Learner, stop func(), log *journal)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var l coldstart.Learner
		var log journal
		k := &coldstart.Keeper{Learner: &l, Store: m, Logger: slog.New(slog.NewTextHandler(&log, nil))}
		k.Restore(t.Context())
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { k.Run(ctx); close(done) }()
		stop := func() { cancel(); <-done }
		defer stop()
		test(&l, stop, &log)
	})
}

// pass lets time pass and what is due then happen.
func pass(d time.Duration) {
	time.Sleep(d) // in a bubble
	synctest.Wait()
}

func TestOnlyChangesAreWritten(t *testing.T) {
	m := &memory{}
	keeping(t, m, func(l *coldstart.Learner, stop func(), _ *journal) {
		pass(5 * time.Minute)
		require.Empty(t, m.writes(), "nothing learned, nothing written")
		other := coldstart.Key{Namespace: "ai", Name: "mistral"}
		l.Observe(llama, pods("a", 60), time.Now())
		l.Keep(other, json.RawMessage(`1`), time.Now())
		pass(30 * time.Second)
		require.Equal(t, []int{2}, m.writes())
		l.Observe(llama, pods("a", 60), time.Now())
		l.Keep(other, json.RawMessage(`1`), time.Now())
		pass(5 * time.Minute)
		require.Equal(t, []int{2}, m.writes(), "the same pod and the same state")
		l.Keep(other, json.RawMessage(`2`), time.Now())
		pass(30 * time.Second)
		require.Equal(t, []int{2, 1}, m.writes(), "only the one that changed")
		stop()
		require.Equal(t, []int{2, 1}, m.writes())
	})
}

// What stays wrong is said once, and again when it has changed or come back.
func TestTroubleWithTheStoreIsSaidOnce(t *testing.T) {
	denied := errors.New("configmaps are forbidden")
	m := &memory{faults: faults{load: denied}}
	keeping(t, m, func(l *coldstart.Learner, _ func(), log *journal) {
		times := func() int { return strings.Count(log.text(), "level=WARN") }
		pass(10 * time.Minute)
		require.Equal(t, 1, times(), "it cannot be read")
		m.now(faults{save: errors.New("configmaps may not be written")})
		l.Keep(llama, json.RawMessage(`1`), time.Now())
		pass(10 * time.Minute)
		require.Equal(t, 2, times(), "nor be written to")
		m.now(faults{})
		pass(time.Minute)
		m.now(faults{save: denied})
		l.Keep(llama, json.RawMessage(`2`), time.Now())
		pass(10 * time.Minute)
		require.Equal(t, 3, times(), "and not again, after it had worked")
	})
}

func TestLastWriteAtTheEnd(t *testing.T) {
	m := &memory{}
	keeping(t, m, func(l *coldstart.Learner, stop func(), _ *journal) {
		l.Observe(llama, pods("a", 60), time.Now())
		stop()
		require.Equal(t, []int{1}, m.writes())
		require.Len(t, m.entries, 1)
	})
}

func TestFailedWriteIsTriedAgain(t *testing.T) {
	m := &memory{faults: faults{save: errors.New("etcd is full")}}
	keeping(t, m, func(l *coldstart.Learner, _ func(), log *journal) {
		l.Observe(llama, pods("a", 60), time.Now())
		pass(90 * time.Second)
		require.Equal(t, []int{1, 1, 1}, m.writes())
		require.Contains(t, log.text(), "etcd is full")
		m.now(faults{})
		pass(30 * time.Second)
		require.Len(t, m.entries, 1)
		pass(5 * time.Minute)
		require.Len(t, m.writes(), 4, "and then it is done")
	})
}

func TestHangingStoreBlocksNobodyForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memory{faults: faults{hang: true}}
		var l coldstart.Learner
		k := &coldstart.Keeper{Learner: &l, Store: m}
		began := time.Now()
		k.Restore(t.Context())
		require.Equal(t, coldstart.Patience, time.Since(began), "serving begins after that")

		m.now(faults{})
		k.Restore(t.Context())
		m.now(faults{hang: true})
		l.Observe(llama, pods("a", 60), time.Now())
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		began = time.Now()
		k.Run(ctx)
		require.Equal(t, coldstart.Patience, time.Since(began), "and the process ends after that")
	})
}

func TestUnreadableEntriesAreReported(t *testing.T) {
	m := &memory{
		entries: map[coldstart.Key]coldstart.Entry{llama: {State: json.RawMessage(`1`)}},
		faults:  faults{damaged: []error{fmt.Errorf("configmap x, key ai.bad_t: %w", coldstart.ErrEntry)}},
	}
	keeping(t, m, func(l *coldstart.Learner, _ func(), log *journal) {
		require.JSONEq(t, `1`, string(l.Kept(llama)), "the sound ones are there")
		require.Contains(t, log.text(), "ai.bad_t")
		l.Keep(coldstart.Key{Namespace: "ai", Name: "bad"}, json.RawMessage(`2`), time.Now())
		pass(30 * time.Second)
		require.Equal(t, []int{1}, m.writes(), "what is damaged is learned anew")
		require.Equal(t, 1, m.loads)
	})
}

// A Store that cannot be reached at first must not be overwritten with the
// little that was learned since.
func TestNothingIsWrittenBeforeAllIsRead(t *testing.T) {
	m := &memory{}
	var before coldstart.Learner
	before.Observe(llama, pods("a", 60, 60, 60), epoch)
	m.keep(t, &before)
	m.saved = nil // the writes to come
	m.now(faults{load: errors.New("connection refused")})
	keeping(t, m, func(l *coldstart.Learner, _ func(), log *journal) {
		require.Contains(t, log.text(), "connection refused")
		require.Equal(t, said, l.Quantiles(llama, "a", said).P50, "it works with what the user said")
		l.Keep(llama, json.RawMessage(`1`), time.Now())
		pass(5 * time.Minute)
		require.Empty(t, m.writes())
		m.now(faults{})
		pass(30 * time.Second)
		require.InDelta(t, 60, l.Quantiles(llama, "a", said).P50.Seconds(), 1e-6)
		require.Equal(t, []int{1}, m.writes())
		require.Len(t, m.entries[llama].Templates[0].Starts, 3)
		require.JSONEq(t, `1`, string(m.entries[llama].State))
	})
}
