package registry_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/registry"
)

// moves reads a history from lines such as "10:00 6->7 done", newest first; the
// last word is a state, or an action whose entry is done.
func moves(t *testing.T, lines ...string) []registry.Entry {
	t.Helper()
	var out []registry.Entry
	for _, text := range lines {
		f := strings.Fields(text)
		require.Len(t, f, 3, text)
		clock := f[0]
		if len(clock) == len("10:00") {
			clock += ":00"
		}
		at, err := time.Parse(time.TimeOnly, clock)
		require.NoError(t, err)
		from, to, ok := strings.Cut(f[1], "->")
		require.True(t, ok, text)
		e := registry.Entry{At: at.AddDate(2026, 0, 0), From: from, To: to, Action: registry.ActionPromote, State: f[2]}
		if f[2] == registry.ActionSeen || f[2] == registry.ActionInit {
			e.Action, e.State = f[2], registry.StateDone
		}
		out = append(out, e)
	}
	return out
}

// lines is the reverse of moves.
func lines(history []registry.Entry) []string {
	var out []string
	for _, e := range history {
		last := e.State
		if e.Action == registry.ActionSeen || e.Action == registry.ActionInit {
			last = e.Action
		}
		clock := strings.TrimSuffix(e.At.Format(time.TimeOnly), ":00")
		out = append(out, clock+" "+e.From+"->"+e.To+" "+last)
	}
	return out
}

func TestSettle(t *testing.T) {
	tests := map[string]struct {
		history []string
		current string
		want    []string
		reason  string
	}{
		"CrashAfterMove":  {[]string{"10:00 7->6 pending"}, "6", []string{"10:00 7->6 done"}, "the alias stands there"},
		"CrashBeforeMove": {[]string{"10:00 7->6 pending"}, "7", []string{"10:00 7->6 pending"}, "it never moved"},
		"Elsewhere":       {[]string{"10:00 7->6 pending"}, "9", []string{"10:00 7->6 pending"}, "nobody can know"},
		"LeftLater":       {[]string{"11:00 6->5 done", "10:00 7->6 pending"}, "5", []string{"11:00 6->5 done", "10:00 7->6 done"}, "6 was left, so it was reached"},
		"NeverReached":    {[]string{"11:00 7->5 done", "10:00 7->6 pending"}, "5", []string{"11:00 7->5 done", "10:00 7->6 pending"}, "7 was left, so 6 never was"},
		"TwoAtOnce":       {[]string{"10:00 7->5 pending", "10:00 7->6 pending"}, "6", []string{"10:00 7->5 pending", "10:00 7->6 done"}, "only one of them came"},
		"ChainOfPending":  {[]string{"11:00 6->5 pending", "10:00 7->6 pending"}, "5", []string{"11:00 6->5 done", "10:00 7->6 done"}, "the completion of both failed"},
		"SamePlace":       {[]string{"10:00 6->6 pending"}, "6", []string{"10:00 6->6 pending"}, "standing still proves nothing"},
		"UnknownOrigin":   {[]string{"11:00 ->5 done", "10:00 7->6 pending"}, "5", []string{"11:00 ->5 done", "10:00 7->6 pending"}, "no evidence"},
		"Empty":           {nil, "6", nil, ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			history := moves(t, tc.history...)
			got := registry.Settle(history, tc.current)
			require.Empty(t, cmp.Diff(tc.want, lines(got)), tc.reason)
			require.Empty(t, cmp.Diff(tc.history, lines(history)), "the input is left alone")
			require.Equal(t, got, registry.Settle(got, tc.current), "twice is once")
		})
	}
}

func TestMerge(t *testing.T) {
	record := []string{"11:00 6->7 done", "10:00 5->6 done"}
	tests := map[string]struct {
		recorded []string
		seen     [][]string
		want     []string
		reason   string
	}{
		"NothingSeen":   {record, nil, record, ""},
		"SeenIsRecord":  {record, [][]string{{"10:00:30 ->6 seen", "11:00:20 6->7 seen"}}, record, "a poll later"},
		"SlowClock":     {record, [][]string{{"10:59:40 6->7 seen"}}, record, "the agent's clock is late"},
		"SeenLate":      {record, [][]string{{"15:00 6->7 seen"}}, record, "an agent that slept sees where it stands"},
		"ByHand":        {record, [][]string{{"12:05 ->4 seen"}, {"12:00 7->4 seen"}}, []string{"12:00 7->4 seen", "11:00 6->7 done", "10:00 5->6 done"}, "the earliest of those that saw it"},
		"FillsOrigin":   {record, [][]string{{"12:00 ->4 seen"}}, []string{"12:00 7->4 seen", "11:00 6->7 done", "10:00 5->6 done"}, "from where it stood"},
		"Between":       {record, [][]string{{"10:30 6->9 seen"}}, []string{"11:00 6->7 done", "10:30 6->9 seen", "10:00 5->6 done"}, "in its time"},
		"ThereAndBack":  {record, [][]string{{"12:00 7->9 seen", "13:00 9->7 seen"}}, []string{"13:00 9->7 seen", "12:00 7->9 seen", "11:00 6->7 done", "10:00 5->6 done"}, "two moves by hand"},
		"OnlySeen":      {nil, [][]string{{"10:00 ->6 seen", "12:00 6->7 seen"}, {"10:01 ->6 seen"}}, []string{"12:00 6->7 seen", "10:00 ->6 seen"}, ""},
		"ProvesPending": {[]string{"11:00 6->7 pending"}, [][]string{{"11:00:10 6->7 seen"}}, []string{"11:00 6->7 done"}, "it was seen there"},
		"PendingIsNoPlace": {
			[]string{"11:00 6->7 pending", "10:00 5->6 done"},
			[][]string{{"11:30 ->6 seen"}},
			[]string{"11:00 6->7 pending", "10:00 5->6 done"},
			"it still stands at 6",
		},
		"SkewedRecord": {[]string{"09:00 6->7 done", "10:00 5->6 done"}, [][]string{{"10:00:20 6->7 seen"}}, []string{"09:00 6->7 done", "10:00 5->6 done"}, "order of writing counts, not the laptop's clock"},
		"Nonsense":     {record, [][]string{{"10:30 6-> seen"}}, record, "no place"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var seen [][]registry.Entry
			for _, s := range tc.seen {
				seen = append(seen, moves(t, s...))
			}
			recorded := moves(t, tc.recorded...)
			got := registry.Merge(recorded, seen...)
			require.Empty(t, cmp.Diff(tc.want, lines(got)), tc.reason)
			require.Equal(t, lines(got), lines(registry.Merge(got, seen...)), "merging the same again changes nothing")
			require.Empty(t, cmp.Diff(tc.recorded, lines(recorded)), "the input is left alone")
		})
	}
}

func TestPrevious(t *testing.T) {
	tests := map[string]struct {
		history []string
		current string
		want    string
		reason  string
	}{
		"Usual":           {[]string{"11:00 6->7 done", "10:00 5->6 done"}, "7", "6", "what the last move left"},
		"RollBackARoll":   {[]string{"12:00 7->6 done", "11:00 6->7 done"}, "6", "7", "literally what served before"},
		"PendingUndone":   {[]string{"12:00 7->6 pending", "11:00 6->7 done"}, "7", "6", "the pending move never happened"},
		"PendingDone":     {[]string{"12:00 7->6 pending", "11:00 6->7 done"}, "6", "7", "it did"},
		"PendingUnknown":  {[]string{"12:00 7->8 pending", "11:00 6->7 done"}, "9", "7", "8 may never have served"},
		"ByHandUnseen":    {[]string{"11:00 6->7 done"}, "9", "7", "the last known place"},
		"ByHandSeen":      {[]string{"12:00 8->9 seen", "11:00 6->7 done"}, "9", "8", "the agent knows better"},
		"OnlyInit":        {[]string{"10:00 ->7 init"}, "7", "", "nothing before"},
		"Nothing":         {nil, "7", "", "no record at all"},
		"StandingStill":   {[]string{"11:00 6->6 done", "10:00 5->6 done"}, "6", "5", "no version precedes itself"},
		"NoOriginKnown":   {[]string{"12:00 ->7 seen", "11:00 5->6 done"}, "7", "6", "the entry below knows"},
		"OnlyPending":     {[]string{"12:00 7->8 pending"}, "7", "", "8 never served"},
		"PendingHappened": {[]string{"12:00 7->8 pending"}, "8", "7", "the first move, unconfirmed"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, ok := registry.Previous(moves(t, tc.history...), tc.current)
			require.Equal(t, tc.want, got, tc.reason)
			require.Equal(t, tc.want != "", ok)
		})
	}
}

func TestEntriesAreBounded(t *testing.T) {
	history := moves(t, "12:00 7->6 done", "11:00 6->7 done", "10:00 5->6 done")
	all := registry.EncodeEntries(history, 5000)
	got, err := registry.DecodeEntries(all, 100)
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(history, got))
	cut := registry.EncodeEntries(history, len(all)-1)
	got, err = registry.DecodeEntries(cut, 100)
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(history[:2], got), "the oldest is dropped")
	require.Equal(t, "[]", string(registry.EncodeEntries(history, 10)))
	got, err = registry.DecodeEntries(all, 1)
	require.NoError(t, err)
	require.Len(t, got, 1)
}

func TestDecodeEntriesKeepsWhatItCan(t *testing.T) {
	good := `{"id":"0011223344556677","at":"2026-03-01T10:00:00+02:00","action":"promote","from":"6","to":"7","state":"done","by":"a\u001b[31mn\nn"}`
	tests := map[string]struct {
		text  string
		kept  int
		words string
	}{
		"Good":      {"[" + good + "]", 1, ""},
		"Empty":     {"[]", 0, ""},
		"Null":      {"null", 0, ""},
		"Text":      {"moved it back, sorry", 0, "not a JSON array"},
		"Object":    {"{}", 0, "not a JSON array"},
		"Truncated": {"[" + good, 0, "not a JSON array"},
		"NoTarget":  {`[{"at":"2026-03-01T10:00:00Z","action":"promote","state":"done"},` + good + "]", 1, `entry 1: not an entry: it has no "to"`},
		"NoTime":    {"[" + good + `,{"to":"7","action":"promote","state":"done"}]`, 1, `"at" is no time`},
		"NoAction":  {`[{"to":"7","at":"2026-03-01T10:00:00Z","state":"done"}]`, 0, `"action"`},
		"State":     {`[{"to":"7","at":"2026-03-01T10:00:00Z","action":"promote","state":"maybe"}]`, 0, `"state" is "maybe"`},
		"Number":    {`[7,` + good + `]`, 1, "1 of 2 entries"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := registry.DecodeEntries([]byte(tc.text), 10)
			require.Len(t, got, tc.kept)
			if tc.words == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, tc.words)
			}
			for _, e := range got {
				require.Equal(t, "a [31mn n", e.By, "no control characters reach a terminal")
				require.Equal(t, time.UTC, e.At.Location())
			}
		})
	}
}

func TestNewEntryCutsAtARune(t *testing.T) {
	for n := registry.MaxMessage - 5; n < registry.MaxMessage+5; n++ {
		e := registry.NewEntry(registry.Change{To: "7", Message: strings.Repeat("x", n%4) + strings.Repeat("🔥", n)}, "6", time.Now(), registry.StateDone)
		require.LessOrEqual(t, len(e.Message), registry.MaxMessage)
		require.True(t, strings.HasSuffix(e.Message, "🔥..."), e.Message)
	}
	a := registry.NewEntry(registry.Change{To: "7"}, "", time.Now(), registry.StateDone)
	b := registry.NewEntry(registry.Change{To: "7"}, "", time.Now(), registry.StateDone)
	require.NotEqual(t, a.ID, b.ID)
	require.Equal(t, registry.ActionPromote, a.Action)
}

func FuzzHistory(f *testing.F) {
	f.Add([]byte(`[{"to":"7","from":"6","at":"2026-03-01T10:00:00Z","action":"promote","state":"pending"}]`), []byte(`[{"to":"6","at":"2026-03-01T10:00:10Z","action":"seen","state":"done"}]`), "7")
	f.Add([]byte(`[{"to":"7"},3]`), []byte(`null`), "")
	f.Fuzz(func(t *testing.T, recorded, seen []byte, current string) {
		a, _ := registry.DecodeEntries(recorded, 50)
		b, _ := registry.DecodeEntries(seen, 50)
		merged := registry.Merge(a, b, b)
		require.GreaterOrEqual(t, len(merged), len(a), "no recorded move is lost")
		require.LessOrEqual(t, len(merged), len(a)+len(b), "and nothing is counted twice")
		previous, ok := registry.Previous(merged, current)
		require.Equal(t, ok, previous != "")
		if ok {
			require.NotEqual(t, current, previous)
		}
		text := registry.EncodeEntries(a, 1<<20)
		again, err := registry.DecodeEntries(text, 50)
		require.NoError(t, err, "what was cleaned once stays as it is")
		require.Empty(t, cmp.Diff(a, again))
		require.LessOrEqual(t, len(registry.EncodeEntries(a, 300)), 300)
	})
}
