package moves

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/warmup/coldstart"
)

var (
	noon  = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	llama = Key{"ai", "models:/llama@champion"}
)

// at is a moment of the test's day, in seconds from noon.
func at(seconds int) time.Time { return noon.Add(time.Duration(seconds) * time.Second) }

// named is an agent that heard of a version at a moment.
func named(seconds int, version string) Seen {
	return Seen{Named: &Move{At: at(seconds), To: version, By: "ai/a"}}
}

// published are the moves of a root: from, to and the second, oldest first.
func published(moves ...any) (s Seen) {
	for i := 0; i < len(moves); i += 3 {
		from, _ := moves[i].(string)
		to, _ := moves[i+1].(string)
		seconds, _ := moves[i+2].(int)
		s.History = append([]Move{{At: at(seconds), From: from, To: to, By: "ai/a"}}, s.History...)
	}
	return s
}

// line renders what a Book remembers, oldest first.
func line(b *Book, k Key) string {
	var out []string
	for _, m := range slices.Backward(b.Moves(k)) {
		out = append(out, fmt.Sprintf("%s>%s@%d", m.From, m.To, int(m.At.Sub(noon).Seconds())))
	}
	return strings.Join(out, " ")
}

func TestWhatIsRemembered(t *testing.T) {
	type round struct {
		now  int
		told []Seen
	}
	cases := map[string]struct {
		rounds []round
		want   string
		reason string
	}{
		"Stands":        {[]round{{1, []Seen{named(0, "7")}}, {31, []Seen{named(30, "7")}}}, ">7@0", "hearing it again is no move"},
		"Moved":         {[]round{{1, []Seen{named(0, "7")}}, {61, []Seen{named(60, "8")}}}, ">7@0 7>8@60", ""},
		"AndBack":       {[]round{{1, []Seen{named(0, "7")}}, {61, []Seen{named(60, "8")}}, {91, []Seen{named(90, "7")}}}, ">7@0 7>8@60 8>7@90", ""},
		"WhileAtZero":   {[]round{{1, []Seen{named(0, "7")}}, {9001, []Seen{named(9000, "8")}}}, ">7@0 7>8@9000", "another pod hears of it an hour later"},
		"InOneRound":    {[]round{{61, []Seen{named(60, "8"), named(20, "7")}}}, ">7@20 7>8@60", "in the order of time, not of answers"},
		"HeardLate":     {[]round{{61, []Seen{named(0, "7"), named(60, "8")}}, {91, []Seen{named(40, "7")}}}, ">7@0 7>8@60", "an agent that polls seldom is not a move back"},
		"OldNews":       {[]round{{1, []Seen{named(0, "7")}}, {61, []Seen{named(60, "7")}}, {62, []Seen{named(30, "6")}}}, ">7@0", "the pointer was heard at 7 since"},
		"ClockIsLate":   {[]round{{61, []Seen{named(0, "7"), named(60, "8"), named(61, "7")}}}, ">7@0 7>8@60", "two agents' seconds differ by one"},
		"NoticedSooner": {[]round{{61, []Seen{named(0, "7"), named(60, "8")}}, {62, []Seen{named(50, "8")}}}, ">7@0 7>8@50", "the earliest moment stays"},
		"ClockAhead":    {[]round{{1, []Seen{named(5000, "7")}}, {61, []Seen{named(60, "8")}}}, ">7@1 7>8@60", "the future is now"},
		"Histories":     {[]round{{900, []Seen{published("6", "7", 100, "7", "8", 200), named(890, "8")}}}, "6>7@100 7>8@200", "of a scaler that has just started"},
		"SlowDownloads": {[]round{{900, []Seen{published("7", "8", 200), published("7", "8", 500), named(890, "8")}}}, "7>8@200", "one move, whenever it was published"},
		"Overlapping": {
			[]round{{900, []Seen{published("6", "7", 100, "7", "8", 200), published("7", "8", 210, "8", "7", 300), named(890, "7")}}},
			"6>7@100 7>8@200 8>7@300", "roots that have lived for different times",
		},
		"HeardGoesFirst": {
			[]round{{1, []Seen{named(0, "7")}}, {61, []Seen{named(60, "9"), published("7", "8", 30)}}}, ">7@0 7>9@60", "while somebody listens, what roots publish comes late and tells nothing",
		},
		"AfterSilence": {
			[]round{{1, []Seen{named(0, "7")}}, {900, []Seen{published("7", "8", 400, "8", "9", 500), named(890, "9")}}}, ">7@0 7>8@400 8>9@500", "nobody listened meanwhile",
		},
		"BeforeTheLast": {
			[]round{{601, []Seen{named(600, "7")}}, {1900, []Seen{published("5", "6", 100), named(1890, "7")}}}, ">7@600", "what is older than what is known was known, or let go",
		},
		"Nothing": {[]round{{1, []Seen{{}}}}, "", ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var b Book
			for _, r := range tc.rounds {
				b.Learn(llama, r.told, at(r.now))
			}
			require.Equal(t, tc.want, line(&b, llama), tc.reason)
		})
	}
}

func TestNewsIsToldOnce(t *testing.T) {
	var b Book
	_, moved := b.Learn(llama, []Seen{named(0, "7")}, at(1))
	require.False(t, moved, "it was heard of for the first time")
	m, moved := b.Learn(llama, []Seen{named(60, "8")}, at(61))
	require.True(t, moved)
	require.Equal(t, Move{At: at(60), From: "7", To: "8", By: "ai/a"}, m)
	_, moved = b.Learn(llama, []Seen{named(90, "8")}, at(91))
	require.False(t, moved)
}

func TestABookIsBounded(t *testing.T) {
	var b Book
	for i := range 3 * Kept {
		b.Learn(llama, []Seen{named(60*i, fmt.Sprint(i))}, at(60*i))
	}
	require.Len(t, b.Moves(llama), Kept)
	require.Equal(t, fmt.Sprint(3*Kept-1), b.Moves(llama)[0].To, "the latest")
}

// A Book that is full takes nobody else in, and forgets nobody: what a scaler
// has stored is not written over with the little that was heard since.
func TestAFullBookForgetsNothing(t *testing.T) {
	require.Greater(t, maxKeys, 10_000, "the targets of a scaler")
	var b Book
	for i := range 3 {
		b.Learn(llama, []Seen{named(60*i, fmt.Sprint(i))}, at(60*i))
	}
	stored := b.Changed()
	for round := range 2 {
		for i := range maxKeys + 10 {
			b.Learn(Key{"ai", fmt.Sprint(i)}, []Seen{named(9000+round*60, fmt.Sprint(round))}, at(9000+round*60))
		}
	}
	require.Len(t, b.entries, maxKeys)
	require.Len(t, b.Moves(llama), 3, "though it has not changed for longest")
	require.Len(t, b.Moves(Key{"ai", "0"}), 2)
	require.NotContains(t, b.Changed(), coldstart.Key{Namespace: "ai", Name: fmt.Sprint(maxKeys + 5), Trigger: Trigger})
	late := Key{"ai", "late"}
	require.True(t, b.Full(late))
	require.False(t, b.Full(llama))
	require.False(t, b.Quiet(late, at(1e6)), "its agents' histories are of no use")
	require.True(t, b.Quiet(llama, at(1e6)))

	// After a restart the latest are taken in.
	for i := range maxKeys {
		k := coldstart.Key{Namespace: "ai", Name: fmt.Sprint(i), Trigger: Trigger}
		e := stored[coldstart.Key{Namespace: "ai", Name: llama.Ref, Trigger: Trigger}]
		e.Updated = at(-i)
		stored[k] = e
	}
	var again Book
	require.Empty(t, again.Restore(stored))
	require.Len(t, again.entries, maxKeys)
	require.Len(t, again.Moves(llama), 3)
	require.Empty(t, again.Moves(Key{"ai", fmt.Sprint(maxKeys - 1)}), "the one that has changed least lately")
}

// Of two namespaces' pods each speaks for its own: they may ask other registries.
func TestNamespacesAreApart(t *testing.T) {
	var b Book
	other := Key{"chat", llama.Ref}
	b.Learn(llama, []Seen{named(0, "7")}, at(1))
	b.Learn(other, []Seen{{Named: &Move{At: at(10), To: "3", By: "chat/a"}}}, at(11))
	require.Equal(t, ">7@0", line(&b, llama))
	require.Equal(t, ">3@10", line(&b, other))
	stored := b.Changed()
	both, damaged := Read(stored, llama.Ref, "")
	require.Empty(t, damaged)
	require.Len(t, both, 2)
	require.Equal(t, []string{"ai", "chat"}, []string{both[0].Namespace, both[1].Namespace})
	one, _ := Read(stored, llama.Ref, "chat")
	require.Len(t, one, 1)
	require.Equal(t, "3", one[0].Moves[0].To)
	none, _ := Read(stored, "models:/llama@other", "")
	require.Empty(t, none)
}

func TestARestartForgetsNoMove(t *testing.T) {
	var before Book
	before.Learn(llama, []Seen{named(0, "7")}, at(1))
	before.Learn(llama, []Seen{named(60, "8")}, at(61))
	stored := before.Changed()
	require.Len(t, stored, 1)
	require.Empty(t, before.Changed(), "it is written")
	before.Failed(stored)
	require.Equal(t, stored, before.Changed(), "it is not")
	for k, e := range stored { // as a Store does: through JSON
		body, err := coldstart.Encode(k, e)
		require.NoError(t, err)
		k2, e2, err := coldstart.Decode(body)
		require.NoError(t, err)
		require.Equal(t, k, k2)
		stored[k] = e2
	}
	var after Book
	after.Learn(llama, []Seen{named(120, "9")}, at(121)) // before the Store could be reached
	require.Empty(t, after.Restore(stored))
	require.Empty(t, after.Restore(stored), "once")
	require.Equal(t, ">7@0 7>8@60 >9@120", line(&after, llama))
	after.Learn(llama, []Seen{named(150, "7")}, at(151))
	require.Equal(t, ">7@0 7>8@60 >9@120 9>7@150", line(&after, llama))
}

func TestWhatCannotBeReadIsReportedAndReplaced(t *testing.T) {
	key := coldstart.Key{Namespace: "ai", Name: llama.Ref, Trigger: Trigger}
	state := func(moves ...Move) string {
		body, err := json.Marshal(memory{moves})
		require.NoError(t, err)
		return string(body)
	}
	good := Move{At: at(0), To: "7", By: "ai/a"}
	change := func(f func(*Move)) Move { m := good; f(&m); return m }
	cases := map[string]string{
		"NoJSON":     "[]",
		"Empty":      state(),
		"TooMany":    state(slices.Repeat([]Move{good}, Kept+1)...),
		"NoVersion":  state(change(func(m *Move) { m.To = "" })),
		"Terminal":   state(change(func(m *Move) { m.By = "ai/\x1b[2J" })),
		"Long":       state(change(func(m *Move) { m.From = strings.Repeat("x", 300) })),
		"Elsewhere":  state(change(func(m *Move) { m.By = "chat/a" })),
		"NoTime":     state(change(func(m *Move) { m.At = time.Time{} })),
		"WrongOrder": state(good, change(func(m *Move) { m.At = at(60) })),
	}
	for name, text := range cases {
		t.Run(name, func(t *testing.T) {
			var b Book
			stored := map[coldstart.Key]coldstart.Entry{key: {State: json.RawMessage(text)}}
			damaged := b.Restore(stored)
			require.Len(t, damaged, 1)
			require.ErrorIs(t, damaged[0], coldstart.ErrEntry)
			require.ErrorContains(t, damaged[0], "moves of models:/llama@champion in namespace ai")
			_, damaged = Read(stored, llama.Ref, "")
			require.Len(t, damaged, 1)
			b.Learn(llama, []Seen{named(0, "7")}, at(1))
			require.Contains(t, b.Changed(), key, "the next write replaces it")
		})
	}
}

func TestWhatAnAgentSays(t *testing.T) {
	const hash = "8274e780f9" // of models:/llama@champion
	answer := `{"v":1,"ref":"models:/llama@champion","named":{"version":"8","at":"2026-03-01T13:00:00Z"},
		"published":{"version":"8","digest":"d8"},
		"history":[{"version":"8","digest":"d8","at":"2026-03-01T12:59:00Z"},{"version":"7","digest":"d7","at":"2026-03-01T12:00:00Z"}]}`
	// Its clock is an hour ahead.
	ref, told, err := parse([]byte(answer), hash, "ai/a", at(3610), at(10))
	require.NoError(t, err)
	require.Equal(t, llama.Ref, ref)
	require.Equal(t, &Move{At: at(0), To: "8", Digest: "d8", By: "ai/a"}, told.Named)
	require.Equal(t, []Move{{At: at(-60), From: "7", To: "8", Digest: "d8", By: "ai/a"}}, told.History, "the first publication tells nothing")

	cases := map[string]struct{ answer, reason string }{
		"OtherModel": {strings.ReplaceAll(answer, "llama", "mistral"), "its pod's label says another one"},
		"NoRef":      {`{"v":1}`, ""},
		"OtherV":     {strings.Replace(answer, `"v":1`, `"v":2`, 1), "a format that is not known"},
		"NoJSON":     {"<html>", ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, _, err := parse([]byte(tc.answer), hash, "ai/a", at(0), at(0))
			require.ErrorIs(t, err, errNoStatus, tc.reason)
		})
	}
	hostile := strings.NewReplacer(`{"version":"8","at"`, `{"version":"8\u001b[2J","at"`, `"version":"7"`, `"version":"8"`).Replace(answer)
	_, told, err = parse([]byte(hostile), hash, "ai/a", at(0), at(0))
	require.NoError(t, err)
	require.Nil(t, told.Named)
	require.Empty(t, told.History, "the same version again is no move")
	require.False(t, errors.Is(err, errNoStatus))
}
