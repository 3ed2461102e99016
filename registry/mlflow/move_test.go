package mlflow_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	fake "github.com/pilotlight-dev/pilotlight/internal/fake/mlflow"
	"github.com/pilotlight-dev/pilotlight/registry"
	"github.com/pilotlight-dev/pilotlight/registry/mlflow"
)

// fault says what happens to one call.
type fault int

const (
	none       fault = iota
	lostBefore       // the connection ends and the server never saw it
	lostAfter        // the server did it and the answer never came
	busy             // 503, not done
	refused          // 403, not done
)

// faulty stands between client and registry. decide is asked about every call,
// the first is 1.
type faulty struct {
	registry *fake.Server
	decide   func(n int, r *http.Request) fault
	calls    atomic.Int64
	problems atomic.Value // what no client may send
}

func (f *faulty) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	f.check(r, body)
	switch f.decide(int(f.calls.Add(1)), r) {
	case lostBefore:
		panic(http.ErrAbortHandler)
	case lostAfter:
		f.registry.ServeHTTP(httptest.NewRecorder(), r)
		panic(http.ErrAbortHandler)
	case busy:
		w.WriteHeader(http.StatusServiceUnavailable)
	case refused:
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		_, _ = w.Write([]byte(`{"error_code":"PERMISSION_DENIED","message":"Permission denied"}`))
	default:
		f.registry.ServeHTTP(w, r)
	}
}

// check holds what is sent against MLflow's limits.
func (f *faulty) check(r *http.Request, body []byte) {
	var in struct{ Key, Value string }
	_ = json.Unmarshal(body, &in) // a GET has none
	switch {
	case r.Method == http.MethodDelete:
		f.problems.Store("an alias must never be deleted: readers would find none")
	case utf8.RuneCountInString(in.Key) > 250 || len(in.Value) > 5000:
		f.problems.Store("a tag is too long")
	}
}

// newFaulty is a registry in which llama has the versions 1 to 3 and champion
// stands on 1.
func newFaulty(t *testing.T, decide func(n int, r *http.Request) fault) (*faulty, string) {
	t.Helper()
	f := &faulty{registry: fake.New(fake.Options{}), decide: decide}
	for _, v := range []string{"1", "2", "3"} {
		_, err := f.registry.CreateVersion("llama", "s3://weights/llama/"+v)
		require.NoError(t, err)
	}
	require.NoError(t, f.registry.SetAlias("llama", "champion", "1"))
	ts := httptest.NewUnstartedServer(f)
	ts.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	ts.Start()
	t.Cleanup(func() {
		ts.Close()
		require.Nil(t, f.problems.Load())
	})
	return f, ts.URL
}

func fine(int, *http.Request) fault { return none }

func isSet(r *http.Request) bool {
	return r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/registered-models/alias")
}

func isTag(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/set-tag") }

func championRef(t testing.TB) registry.Ref {
	t.Helper()
	ref, err := registry.ParseRef(champion)
	require.NoError(t, err)
	return ref
}

// promote is a change of llama@champion from one version to another.
func promote(from, to string) registry.Change {
	return registry.Change{Expect: registry.Position{Version: from}, To: to, Action: registry.ActionPromote, By: "ann", Message: "why"}
}

func mustRead(t *testing.T, url string) registry.Position {
	t.Helper()
	pos, err := newClient(t, mlflow.Config{TrackingURI: url}).Read(t.Context(), championRef(t))
	require.NoError(t, err)
	require.NoError(t, pos.HistoryErr)
	return pos
}

// moveCalls is how many calls a move makes when nothing goes wrong.
const moveCalls = 8

func TestMoveMakesThisManyCalls(t *testing.T) {
	f, url := newFaulty(t, fine)
	_, err := newClient(t, mlflow.Config{TrackingURI: url}).Move(t.Context(), championRef(t), promote("1", "2"))
	require.NoError(t, err)
	require.EqualValues(t, moveCalls, f.calls.Load(), "the tests of every cut point count on it")
	tag := modelTags(t, url)["pilotlight.history.champion"]
	require.Contains(t, tag, `"state":"done"`)
	require.NotContains(t, tag, "pending", "what is stored is completed, not only what is shown")
}

// Another mover, who read the record before us, writes it back without ours.
func TestAnEntryThatAnotherOverwroteIsPutBack(t *testing.T) {
	var f *faulty
	f, url := newFaulty(t, func(n int, _ *http.Request) fault {
		if n == moveCalls-1 {
			body := `{"name":"llama","key":"pilotlight.history.champion","value":"[{\"id\":\"1\",\"at\":\"2026-03-01T10:00:00Z\",\"action\":\"promote\",\"from\":\"1\",\"to\":\"3\",\"state\":\"pending\"}]"}`
			f.registry.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/api/2.0/mlflow/registered-models/set-tag", strings.NewReader(body)))
		}
		return none
	})
	_, err := newClient(t, mlflow.Config{TrackingURI: url}).Move(t.Context(), championRef(t), promote("1", "2"))
	require.NoError(t, err)
	history := mustRead(t, url).History
	require.Len(t, history, 2)
	require.Equal(t, "2", history[0].To)
	require.Equal(t, registry.StateDone, history[0].State)
	require.Equal(t, registry.StatePending, history[1].State, "theirs is left to them")
}

// A client dies, or loses the network for good, at each point of a move: what
// others read afterwards is the truth, and the next move works.
func TestMoveCutAtEveryPoint(t *testing.T) {
	for _, how := range []fault{lostBefore, lostAfter, busy} {
		for cut := 1; cut <= moveCalls+1; cut++ {
			t.Run(strings.Join([]string{map[fault]string{lostBefore: "Before", lostAfter: "After", busy: "Busy"}[how], string(rune('0' + cut))}, ""), func(t *testing.T) {
				var healed atomic.Bool
				_, url := newFaulty(t, func(n int, r *http.Request) fault {
					if n < cut || healed.Load() {
						return none
					}
					if n > cut && how == lostAfter {
						return lostBefore // dead from then on
					}
					return how
				})
				c := newClient(t, mlflow.Config{TrackingURI: url, Attempts: 2})
				pos, err := c.Move(t.Context(), championRef(t), promote("1", "2"))
				healed.Store(true)
				requireTruth(t, mustRead(t, url), pos, err)
				// Life goes on, from wherever it stands.
				now := mustRead(t, url)
				_, err = newClient(t, mlflow.Config{TrackingURI: url}).Move(t.Context(), championRef(t), promote(now.Version, "3"))
				require.NoError(t, err)
				after := mustRead(t, url)
				previous, ok := registry.Previous(after.History, "3")
				require.True(t, ok)
				require.Equal(t, now.Version, previous)
			})
		}
	}
}

// requireTruth demands that what is read agrees with itself and with what the
// mover was told.
func requireTruth(t *testing.T, read, told registry.Position, err error) {
	t.Helper()
	previous, ok := registry.Previous(read.History, read.Version)
	switch read.Version {
	case "2":
		require.True(t, ok)
		require.Equal(t, "1", previous)
		require.Equal(t, registry.StateDone, read.History[0].State)
		require.Equal(t, "why", read.History[0].Message)
	case "1":
		require.False(t, ok, "nothing has moved")
	default:
		t.Fatalf("it stands at %q", read.Version)
	}
	if err == nil {
		require.Equal(t, "2", told.Version)
		require.Equal(t, "2", read.Version)
		require.Equal(t, registry.StateDone, told.History[0].State)
		return
	}
	require.ErrorIs(t, err, registry.ErrUnreachable)
	require.NotContains(t, err.Error(), "\n")
	if read.Version == "2" {
		require.ErrorIs(t, err, registry.ErrUncertain, "an error for a move that happened says that it may have")
	}
}

// One answer gets lost, or one call is turned away, and all else works: the
// move happens once.
func TestMoveSurvivesOneFault(t *testing.T) {
	for _, how := range []fault{lostBefore, lostAfter, busy} {
		for cut := 1; cut <= moveCalls; cut++ {
			var sets atomic.Int64
			_, url := newFaulty(t, func(n int, r *http.Request) fault {
				if isSet(r) {
					sets.Add(1)
				}
				if n == cut {
					return how
				}
				return none
			})
			pos, err := newClient(t, mlflow.Config{TrackingURI: url}).Move(t.Context(), championRef(t), promote("1", "2"))
			require.NoError(t, err, "%d at %d", how, cut)
			require.NoError(t, pos.HistoryErr)
			read := mustRead(t, url)
			require.Equal(t, pos, read)
			require.Len(t, read.History, 1)
			if how == lostAfter {
				require.EqualValues(t, 1, sets.Load(), "an alias that was set is not set again (%d)", cut)
			}
		}
	}
}

// Somebody else moves the alias by hand right before each call.
func TestMoveMeetsAnother(t *testing.T) {
	tests := map[int]struct {
		want   string
		err    error
		reason string
	}{
		1: {"3", registry.ErrConflict, "before our look"},
		2: {"2", nil, "the window that MLflow leaves open"},
		5: {"2", nil, "the window that MLflow leaves open"},
		6: {"3", registry.ErrConflict, "between the set and the look afterwards"},
		7: {"3", nil, "after it: ours had happened"},
	}
	for cut, tc := range tests {
		var f *faulty
		f, url := newFaulty(t, func(n int, _ *http.Request) fault {
			if n == cut {
				_ = f.registry.SetAlias("llama", "champion", "3") // exists
			}
			return none
		})
		_, err := newClient(t, mlflow.Config{TrackingURI: url}).Move(t.Context(), championRef(t), promote("1", "2"))
		if tc.err == nil {
			require.NoError(t, err, "%d: %s", cut, tc.reason)
		} else {
			require.ErrorIs(t, err, tc.err, "%d: %s", cut, tc.reason)
			require.ErrorContains(t, err, "names version 3")
		}
		require.Equal(t, tc.want, mustRead(t, url).Version, "%d: %s", cut, tc.reason)
	}
}

// The answer of the set is lost, and somebody else has moved the alias since:
// ours must not be sent again.
func TestALostAnswerDoesNotOverwriteAnother(t *testing.T) {
	var f *faulty
	var sets atomic.Int64
	f, url := newFaulty(t, func(_ int, r *http.Request) fault {
		switch {
		case isSet(r):
			sets.Add(1)
			return lostAfter
		case sets.Load() == 1:
			_ = f.registry.SetAlias("llama", "champion", "3") // exists
		}
		return none
	})
	_, err := newClient(t, mlflow.Config{TrackingURI: url}).Move(t.Context(), championRef(t), promote("1", "2"))
	require.ErrorIs(t, err, registry.ErrConflict)
	require.EqualValues(t, 1, sets.Load())
	require.Equal(t, "3", mustRead(t, url).Version)
}

func TestConflictWritesNothing(t *testing.T) {
	f, url := newFaulty(t, func(_ int, r *http.Request) fault {
		if r.Method != http.MethodGet {
			return refused
		}
		return none
	})
	_, err := newClient(t, mlflow.Config{TrackingURI: url}).Move(t.Context(), championRef(t), promote("2", "3"))
	require.ErrorIs(t, err, registry.ErrConflict)
	require.ErrorContains(t, err, "it names version 1, expected was 2")
	require.Zero(t, f.registry.Calls("POST", "registered-models/set-tag"))
}

func TestARefusedMoveLeavesNoRecord(t *testing.T) {
	_, url := newFaulty(t, func(_ int, r *http.Request) fault {
		if isSet(r) {
			return refused
		}
		return none
	})
	_, err := newClient(t, mlflow.Config{TrackingURI: url}).Move(t.Context(), championRef(t), promote("1", "2"))
	require.ErrorIs(t, err, registry.ErrDenied)
	require.NotErrorIs(t, err, registry.ErrUncertain)
	pos := mustRead(t, url)
	require.Equal(t, "1", pos.Version)
	require.Empty(t, pos.History)
}

func TestARecordThatIsRefusedStopsTheMove(t *testing.T) {
	_, url := newFaulty(t, func(_ int, r *http.Request) fault {
		if isTag(r) {
			return refused
		}
		return none
	})
	_, err := newClient(t, mlflow.Config{TrackingURI: url}).Move(t.Context(), championRef(t), promote("1", "2"))
	require.ErrorIs(t, err, registry.ErrDenied)
	require.ErrorContains(t, err, "nothing has moved")
	require.Equal(t, "1", mustRead(t, url).Version)
}

func TestMoveChecksTheVersionFirst(t *testing.T) {
	f, url := newFaulty(t, fine)
	require.NoError(t, f.registry.SetStatus("llama", "2", fake.StatusPending))
	require.NoError(t, f.registry.SetStatus("llama", "3", fake.StatusFailed))
	c := newClient(t, mlflow.Config{TrackingURI: url})
	for to, want := range map[string]error{"2": registry.ErrPending, "3": registry.ErrBroken, "9": registry.ErrNotFound} {
		_, err := c.Move(t.Context(), championRef(t), promote("1", to))
		require.ErrorIs(t, err, want, to)
	}
	require.Zero(t, f.registry.Calls("POST", "registered-models/set-tag"), "nothing was written")
}

// The caller gives up while the server sets the alias.
func TestMoveFindsOutAfterItsCallerHasGone(t *testing.T) {
	for how, want := range map[fault]string{lostAfter: "2", lostBefore: "1"} {
		ctx, cancel := context.WithCancel(t.Context())
		_, url := newFaulty(t, func(_ int, r *http.Request) fault {
			if isSet(r) {
				cancel()
				return how
			}
			return none
		})
		pos, err := newClient(t, mlflow.Config{TrackingURI: url}).Move(ctx, championRef(t), promote("1", "2"))
		if want == "2" {
			require.NoError(t, err, "it moved, and the caller learns it")
			require.NoError(t, pos.HistoryErr)
		} else {
			require.ErrorIs(t, err, context.Canceled)
		}
		requireTruth(t, mustRead(t, url), pos, err)
		require.Equal(t, want, mustRead(t, url).Version)
		cancel()
	}
}

func TestLatestAndVNumbersAreReserved(t *testing.T) {
	_, url := newFaulty(t, fine)
	c := newClient(t, mlflow.Config{TrackingURI: url})
	for _, alias := range []string{"latest", "LATEST", "v7", "V12"} {
		ref := registry.Ref{Kind: registry.KindAlias, Name: "llama", Selector: alias}
		_, err := c.Move(t.Context(), ref, promote("1", "2"))
		require.ErrorIs(t, err, registry.ErrUnsupported, alias)
	}
	for _, alias := range []string{"v", "v7a", "latest-good"} {
		ref := registry.Ref{Kind: registry.KindAlias, Name: "llama", Selector: alias}
		_, err := c.Move(t.Context(), ref, promote("1", "2"))
		require.ErrorIs(t, err, registry.ErrNotFound, alias)
	}
}

func TestLongAliasesHaveARecordToo(t *testing.T) {
	f, url := newFaulty(t, fine)
	c := newClient(t, mlflow.Config{TrackingURI: url})
	for _, alias := range []string{strings.Repeat("a", 255), strings.Repeat("ü", 120), strings.Repeat("a", 254) + "b"} {
		require.NoError(t, f.registry.SetAlias("llama", alias, "1"))
		ref := registry.Ref{Kind: registry.KindAlias, Name: "llama", Selector: alias}
		pos, err := c.Move(t.Context(), ref, promote("1", "2"))
		require.NoError(t, err)
		require.Len(t, pos.History, 1, "its own record")
	}
}

func TestInit(t *testing.T) {
	f, url := newFaulty(t, fine)
	c := newClient(t, mlflow.Config{TrackingURI: url})
	canary := registry.Ref{Kind: registry.KindAlias, Name: "llama", Selector: "canary"}
	pos, err := c.Init(t.Context(), canary, promote("", "2"))
	require.NoError(t, err)
	require.Equal(t, "2", pos.Version)
	require.Equal(t, registry.ActionInit, pos.History[0].Action)
	require.Empty(t, pos.History[0].From)
	read, err := c.Read(t.Context(), canary)
	require.NoError(t, err)
	require.Equal(t, pos, read)

	_, err = c.Init(t.Context(), canary, promote("", "3"))
	require.ErrorIs(t, err, registry.ErrExists)
	require.NoError(t, f.registry.DeleteVersion("llama", "2"))
	_, err = c.Init(t.Context(), canary, promote("", "3"))
	require.ErrorIs(t, err, registry.ErrExists, "dangling is not missing")
	_, err = c.Init(t.Context(), registry.Ref{Kind: registry.KindAlias, Name: "nobody", Selector: "canary"}, promote("", "3"))
	require.ErrorIs(t, err, registry.ErrNotFound)
	_, err = c.Init(t.Context(), registry.Ref{Kind: registry.KindAlias, Name: "llama", Selector: "new"}, promote("", "9"))
	require.ErrorIs(t, err, registry.ErrNotFound, "nor is an alias made for a version that is not there")
}

func TestInitWhoseAnswerWasLost(t *testing.T) {
	for _, how := range []fault{lostBefore, lostAfter} {
		var once atomic.Bool
		_, url := newFaulty(t, func(_ int, r *http.Request) fault {
			if isSet(r) && once.CompareAndSwap(false, true) {
				return how
			}
			return none
		})
		canary := registry.Ref{Kind: registry.KindAlias, Name: "llama", Selector: "canary"}
		pos, err := newClient(t, mlflow.Config{TrackingURI: url}).Init(t.Context(), canary, promote("", "2"))
		require.NoError(t, err)
		require.Len(t, pos.History, 1)
	}
}

// setTag writes a registered-model tag as somebody with a browser does.
func setTag(t *testing.T, base, key, value string) {
	t.Helper()
	body, err := json.Marshal(map[string]string{"name": "llama", "key": key, "value": value})
	require.NoError(t, err)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, base+"/api/2.0/mlflow/registered-models/set-tag", bytes.NewReader(body))
	require.NoError(t, err)
	resp, err := new(http.Client).Do(req)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusOK, resp.StatusCode)
}

// modelTags are the registered model's tags.
func modelTags(t *testing.T, base string) map[string]string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base+"/api/2.0/mlflow/registered-models/get?"+url.Values{"name": {"llama"}}.Encode(), nil)
	require.NoError(t, err)
	resp, err := new(http.Client).Do(req)
	require.NoError(t, err)
	var out struct {
		Model struct{ Tags []struct{ Key, Value string } } `json:"registered_model"`
	}
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&out))
	require.NoError(t, resp.Body.Close())
	tags := map[string]string{}
	for _, tag := range out.Model.Tags {
		tags[tag.Key] = tag.Value
	}
	return tags
}

func TestAHandEditedRecordNeverBlocksARollback(t *testing.T) {
	good := `{"id":"0011223344556677","at":"2026-03-01T10:00:00Z","action":"promote","from":"3","to":"1","state":"done"}`
	tests := map[string]struct {
		tag  string
		kept int
	}{
		"Text":     {"rolled back by Bob, see chat", 0},
		"Cut":      {"[" + good, 0},
		"Object":   {`{"history":[]}`, 0},
		"OneWrong": {"[" + good + `,{"to":3}]`, 1},
		"Control":  {"\x01\x02", 0},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			_, url := newFaulty(t, fine)
			setTag(t, url, "pilotlight.history.champion", tc.tag)
			var log bytes.Buffer
			c := newClient(t, mlflow.Config{TrackingURI: url, Logger: slog.New(slog.NewTextHandler(&log, nil))})
			pos, err := c.Read(t.Context(), championRef(t))
			require.NoError(t, err)
			require.Equal(t, "1", pos.Version)
			require.ErrorContains(t, pos.HistoryErr, "pilotlight.history.champion")
			require.NotContains(t, pos.HistoryErr.Error(), "\n")
			require.Len(t, pos.History, tc.kept, "what can be read is")
			require.Contains(t, log.String(), "level=WARN")
			_, err = c.Move(t.Context(), championRef(t), promote("1", "2"))
			require.NoError(t, err)
			require.Len(t, mustRead(t, url).History, tc.kept+1)
			var saved []string
			for key, value := range modelTags(t, url) {
				if strings.HasPrefix(key, "pilotlight.unreadable.") {
					saved = append(saved, value)
				}
			}
			require.Equal(t, []string{tc.tag}, saved, "the old text is kept for whoever wants to repair it")
		})
	}
}

// DELETE of a version over REST leaves its aliases behind: the alias can be
// read about and moved away.
func TestADanglingAliasCanBeMovedAway(t *testing.T) {
	f, url := newFaulty(t, fine)
	c := newClient(t, mlflow.Config{TrackingURI: url})
	_, err := c.Move(t.Context(), championRef(t), promote("1", "3"))
	require.NoError(t, err)
	require.NoError(t, f.registry.DeleteVersion("llama", "3"))
	pos, err := c.Read(t.Context(), championRef(t))
	require.ErrorIs(t, err, registry.ErrBroken)
	require.NotErrorIs(t, err, registry.ErrNotFound)
	require.Equal(t, "3", pos.Version, "the position comes along")
	previous, ok := registry.Previous(pos.History, pos.Version)
	require.True(t, ok)
	require.Equal(t, "1", previous)
	moved, err := c.Move(t.Context(), championRef(t), registry.Change{Expect: pos, To: previous, Action: registry.ActionRollback})
	require.NoError(t, err)
	require.Equal(t, "1", moved.Version)
	require.Equal(t, "3", moved.History[0].From)
}

func TestRecordsOfTwoAliasesAreApart(t *testing.T) {
	f, url := newFaulty(t, fine)
	require.NoError(t, f.registry.SetAlias("llama", "challenger", "3"))
	c := newClient(t, mlflow.Config{TrackingURI: url})
	_, err := c.Move(t.Context(), championRef(t), promote("1", "2"))
	require.NoError(t, err)
	pos, err := c.Read(t.Context(), registry.Ref{Kind: registry.KindAlias, Name: "llama", Selector: "challenger"})
	require.NoError(t, err)
	require.Empty(t, pos.History)
}
