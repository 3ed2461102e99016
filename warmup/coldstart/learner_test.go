package coldstart_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/warmup/coldstart"
)

var (
	epoch = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	llama = coldstart.Key{Namespace: "ai", Name: "llama", Trigger: "t1"}
)

const said = 2 * time.Minute

// pod is a pod of a template that took so many seconds to get Ready.
func pod(name, template string, took float64) coldstart.Pod {
	ready := epoch.Add(time.Duration(took * float64(time.Second)))
	return coldstart.Pod{Name: name, Template: template, Created: epoch, Scheduled: epoch, Initialised: epoch, Ready: ready}
}

// pods are pods of one template that took so many seconds each.
func pods(template string, took ...float64) []coldstart.Pod {
	var out []coldstart.Pod
	for i, s := range took {
		out = append(out, pod(fmt.Sprintf("%s-%d", template, i), template, s))
	}
	return out
}

// counting is a Learner that writes down what OnStart was told.
func counting() (*coldstart.Learner, *[]coldstart.Start) {
	var got []coldstart.Start
	return &coldstart.Learner{OnStart: func(_ coldstart.Key, s coldstart.Start) { got = append(got, s) }}, &got
}

func TestSlices(t *testing.T) {
	at := func(s int) time.Time { return epoch.Add(time.Duration(s) * time.Second) }
	var never time.Time
	cases := map[string]struct {
		scheduled, initialised, ready time.Time
		want                          coldstart.Start
		reason                        string
	}{
		"InOrder":               {at(5), at(35), at(95), coldstart.Start{Schedule: 5, Fetch: 30, Load: 60}, "each slice is what lies between"},
		"NoScheduled":           {never, at(35), at(95), coldstart.Start{Fetch: 35, Load: 60}, "its time goes to the next slice"},
		"NoInitialised":         {at(5), never, at(95), coldstart.Start{Schedule: 5, Load: 90}, "a pod without init containers"},
		"OnlyReady":             {never, never, at(95), coldstart.Start{Load: 95}, "a file may give no more"},
		"ScheduledAfterReady":   {at(100), at(35), at(95), coldstart.Start{Schedule: 95}, "clocks of different nodes"},
		"InitialisedTooEarly":   {at(50), at(10), at(95), coldstart.Start{Schedule: 50, Load: 45}, "no slice is negative"},
		"InitialisedAfterReady": {at(5), at(200), at(95), coldstart.Start{Schedule: 5, Fetch: 90}, "nor longer than the whole"},
		"ScheduledTooEarly":     {at(-9), at(35), at(95), coldstart.Start{Fetch: 35, Load: 60}, "no slice begins before the pod"},
		"AtOnce":                {at(0), at(0), at(0), coldstart.Start{}, "all in the same second"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			l, got := counting()
			l.Observe(llama, []coldstart.Pod{{Name: "a", Created: epoch, Scheduled: tc.scheduled, Initialised: tc.initialised, Ready: tc.ready}}, epoch)
			require.Equal(t, []coldstart.Start{tc.want}, *got, tc.reason)
			require.Equal(t, tc.ready.Sub(epoch), (*got)[0].Total(), "the sum is right whatever is missing")
		})
	}
}

func TestWhatIsNoStart(t *testing.T) {
	cases := map[string]struct {
		pod    coldstart.Pod
		reason string
	}{
		"NotReady":         {coldstart.Pod{Name: "a", Created: epoch}, "it has not ended"},
		"NotCreated":       {coldstart.Pod{Name: "a", Ready: epoch}, "its beginning is not known"},
		"ReadyBeforeBirth": {coldstart.Pod{Name: "a", Created: epoch, Ready: epoch.Add(-time.Second)}, "a clock is wrong"},
		"DaysLong":         {coldstart.Pod{Name: "a", Created: epoch, Ready: epoch.Add(72 * time.Hour)}, "nothing starts for so long"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			l, got := counting()
			l.Observe(llama, []coldstart.Pod{tc.pod}, epoch)
			watch(l, []coldstart.Pod{tc.pod})
			require.Empty(t, *got, tc.reason)
		})
	}
}

func TestSeedUntilEnough(t *testing.T) {
	var l coldstart.Learner
	seed := coldstart.Quantiles{P50: 2 * time.Minute, P95: 200 * time.Second}
	require.Equal(t, seed, l.Quantiles(llama, "a", said), "never seen: what the user said, times 5/3")
	l.Observe(llama, pods("a", 60, 60), epoch)
	require.Equal(t, seed, l.Quantiles(llama, "a", said), "two starts are not enough")
	_, ok := l.Learned(llama)
	require.False(t, ok, "and nothing is said to be learned")
	l.Observe(llama, pods("a", 60, 60, 60), epoch)
	q := l.Quantiles(llama, "a", said)
	require.InDelta(t, 60, q.P50.Seconds(), 1e-6)
	require.InDelta(t, 66, q.P95.Seconds(), 1e-6, "three equal ones: the least spread")
	learned, ok := l.Learned(llama)
	require.True(t, ok)
	require.Equal(t, q, learned)
	require.Equal(t, seed, l.Quantiles(coldstart.Key{Namespace: "ai", Name: "mistral"}, "a", said), "another ScaledObject learns for itself")
	require.Equal(t, coldstart.Longest, l.Quantiles(coldstart.Key{}, "", 1<<62).P50, "whatever the user said")
}

func TestTemplates(t *testing.T) {
	var l coldstart.Learner
	p50 := func(template string) float64 {
		return l.Quantiles(llama, template, said).P50.Round(time.Millisecond).Seconds()
	}
	l.Observe(llama, pods("a", 60, 60, 60), epoch)
	require.InDelta(t, 60, p50("b"), 0, "a new template begins with the last one's")
	l.Observe(llama, pods("b", 300, 300), epoch)
	require.InDelta(t, 60, p50("b"), 0, "until it has enough of its own")
	l.Observe(llama, pods("b", 300, 300, 300), epoch)
	require.InDelta(t, 300, p50("b"), 0)
	require.InDelta(t, 60, p50("a"), 0, "going back finds what the old one took")
	require.InDelta(t, 300, p50(""), 0, "with no pod: the one started last")

	l.Observe(llama, []coldstart.Pod{pod("again", "a", 60)}, epoch)
	require.InDelta(t, 60, p50(""), 0, "having gone back, that is the first one again")
	require.InDelta(t, 60, p50("c"), 0, "and the next new one begins with it")
	for _, template := range []string{"c", "d"} {
		l.Observe(llama, pods(template, 10, 10, 10), epoch)
	}
	require.InDelta(t, 60, p50("a"), 0, "of four, the three started last are kept")
	require.InDelta(t, 10, p50("b"), 0, "the other is forgotten, and begins like a new one")
}

// Pods come in the order of their names; what counts as the latest is when they
// got Ready.
func TestLatestByReadiness(t *testing.T) {
	var l coldstart.Learner
	l.Observe(llama, append(pods("z", 30, 31, 32), pods("a", 20, 21, 22)...), epoch)
	require.InDelta(t, 31, l.Quantiles(llama, "", said).P50.Seconds(), 1e-6)
}

func TestCountedOnce(t *testing.T) {
	l, got := counting()
	now := epoch
	for range 100 {
		now = now.Add(time.Second)
		l.Observe(llama, pods("a", 60, 70), now)
	}
	require.Len(t, *got, 2, "looked at a hundred times")

	lost := pods("a", 60, 70)
	lost[0].Ready = time.Time{}
	l.Observe(llama, lost, now)
	lost[0].Ready = now.Add(time.Hour)
	l.Observe(llama, lost, now)
	require.Len(t, *got, 2, "readiness lost and regained")

	reborn := pods("a", 60, 70)
	reborn[1].Created, reborn[1].Ready = epoch.Add(time.Hour), epoch.Add(time.Hour+50*time.Second)
	l.Observe(llama, reborn, now)
	require.Len(t, *got, 3, "a StatefulSet's pod comes back under its name: that is a new start")
	require.Equal(t, 50*time.Second, (*got)[2].Total())
}

// A restart, with the Store in between.
func TestCountedOnceAcrossRestart(t *testing.T) {
	first, _ := counting()
	store := &memory{}
	before := pods("a", 60, 70, 80)
	first.Observe(llama, before, epoch.Add(5*time.Minute))
	store.keep(t, first)

	second, got := counting()
	(&coldstart.Keeper{Learner: second, Store: store}).Restore(t.Context())
	require.Equal(t, first.Quantiles(llama, "a", said), second.Quantiles(llama, "a", said))
	before[0].Ready = epoch.Add(20 * time.Minute) // lost and regained while nobody looked
	late := pod("late", "a", 240)                 // got Ready before the last write, but was not seen then
	second.Observe(llama, append(before, late), epoch.Add(time.Hour))
	require.Equal(t, []coldstart.Start{{Load: 240}}, *got, "what was counted is not counted again, what was not is")
}

// An edited trigger is a new key: what was learned goes with the ScaledObject,
// and its pods have not started twice, not even those that were not Ready for a
// moment long after their start.
func TestAnotherTrigger(t *testing.T) {
	l, got := counting()
	l.Observe(llama, pods("a", 60, 60, 60), epoch)
	edited := llama
	edited.Trigger = "t2"
	learned := l.Quantiles(llama, "a", said)
	require.Equal(t, learned, l.Quantiles(edited, "a", said), "nothing of its own yet")
	const hours = 6 * 3600
	regained := pods("a", hours, hours+1, hours+2)
	for range 2 {
		l.Observe(edited, regained, epoch.Add(7*time.Hour))
		require.Equal(t, learned, l.Quantiles(edited, "a", said))
	}
	require.Len(t, *got, 3, "counted by the other trigger")
	store := &memory{}
	store.keep(t, l)
	require.Equal(t, store.entries[llama].Templates, store.entries[edited].Templates, "it has them, should the other be forgotten")
	require.Equal(t, store.entries[llama].Counted, store.entries[edited].Counted)

	all := regained
	for i := range 5 {
		all = append(all, pod(fmt.Sprint("new-", i), "a", 90))
	}
	l.Observe(edited, all, epoch)
	require.InDelta(t, 90, l.Quantiles(edited, "a", said).P50.Seconds(), 1e-6, "and goes on from there")
	require.InDelta(t, 60, l.Quantiles(llama, "a", said).P50.Seconds(), 1e-6)
	l.Observe(llama, all, epoch)
	require.Len(t, *got, 8, "edited back")
	require.Equal(t, l.Quantiles(edited, "a", said), l.Quantiles(llama, "a", said))
}

// What was known before the edit does not come back for a pod that was out of
// sight for a moment.
func TestOutOfSightAfterAnEdit(t *testing.T) {
	var l coldstart.Learner
	var took []float64
	for range coldstart.Kept {
		took = append(took, 60)
	}
	old := pods("a", took...)
	l.Observe(llama, old, epoch)
	edited := llama
	edited.Trigger = "t2"
	l.Observe(edited, old, epoch.Add(time.Minute))
	all := slices.Clone(old[:1])
	for i := range coldstart.Kept {
		all = append(all, pod(fmt.Sprint("new-", i), "a", 90))
	}
	l.Observe(edited, all, epoch.Add(time.Hour))
	l.Observe(edited, nil, epoch.Add(2*time.Hour))
	l.Observe(edited, all[:1], epoch.Add(3*time.Hour))
	require.InDelta(t, 90, l.Quantiles(edited, "a", said).P50.Seconds(), 1e-6)
}

// A pod that another trigger has seen start is measured by the one that is asked
// about when it is Ready, however late that is.
func TestEditedDuringAStart(t *testing.T) {
	l, got := counting()
	starting := []coldstart.Pod{{Name: "a-0", Template: "a", Created: epoch}}
	l.Observe(llama, starting, epoch.Add(time.Second))
	edited := llama
	edited.Trigger = "t2"
	l.Observe(edited, starting, epoch.Add(time.Hour))
	l.Quantiles(edited, "a", said)
	l.Observe(edited, pods("a", 2*3600), epoch.Add(2*time.Hour))
	require.Equal(t, []coldstart.Start{{Load: 2 * 3600}}, *got)
}

// Of a pod that is met long after its creation nobody knows whether it has been
// Ready before.
func TestFirstSight(t *testing.T) {
	const hour = 3600
	cases := map[string]struct {
		said   time.Duration
		usual  float64 // seconds, of three pods of another template that were watched; 0 = none
		met    float64 // seconds old when first seen
		lost   bool    // it was Ready before that, as the cluster says
		ready  float64 // seconds old when Ready
		starts int
		reason string
	}{
		"HoursLate":       {2 * time.Minute, 0, 8 * hour, false, 6 * hour, 0, "a fleet that ran before we came, and was not Ready for a moment"},
		"Plausible":       {2 * time.Minute, 0, 8 * hour, false, 300, 3, "the same, and nothing happened to it"},
		"JustPlausible":   {2 * time.Minute, 0, 8 * hour, false, 1200, 3, "ten times what is configured"},
		"Watched":         {2 * time.Minute, 0, 5, false, 6 * hour, 3, "a long start that we have seen all of"},
		"SlowAsSaid":      {time.Hour, 0, 8 * hour, false, 6 * hour, 3, "who says an hour may need six"},
		"SlowAsKnown":     {2 * time.Minute, hour, 8 * hour, false, 6 * hour, 3, "so may what took an hour before"},
		"FasterThanKnown": {2 * time.Minute, 5, 8 * hour, false, 600, 3, "what is configured counts as well"},
		"SaidInSeconds":   {5 * time.Second, 0, 8 * hour, false, 600, 3, "a node may have had to be made"},
		"NotReadyWhenMet": {2 * time.Minute, 0, 6 * hour, false, 6*hour + 60, 0, "it may have been, before"},
		"StartingWhenMet": {2 * time.Minute, 0, 1100, false, 1300, 3, "the scaler was restarted meanwhile"},
		"LostWhenMet":     {2 * time.Minute, 0, 1100, true, 1300, 0, "what becomes Ready again was started long before"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			l, got := counting()
			look := func(age float64, all []coldstart.Pod) {
				for i := range all {
					if all[i].Ready.Sub(epoch).Seconds() > age {
						all[i].Ready, all[i].Lost = time.Time{}, tc.lost
					}
				}
				l.Observe(llama, all, epoch.Add(time.Duration(age)*time.Second))
				l.Quantiles(llama, "a", tc.said)
			}
			if tc.usual > 0 {
				watch(l, pods("usual", tc.usual, tc.usual, tc.usual))
				*got = nil
			}
			for age := tc.met; age < max(tc.met, tc.ready)+100; age += 30 {
				look(age, pods("a", tc.ready, tc.ready, tc.ready))
			}
			require.Len(t, *got, tc.starts, tc.reason)
			if tc.starts == 0 {
				require.Equal(t, tc.said, l.Quantiles(llama, "a", tc.said).P50, "what was said stands")
				return
			}
			require.InDelta(t, tc.ready, l.Quantiles(llama, "a", tc.said).P50.Seconds(), 1, tc.reason)
		})
	}
}

func TestBoundedMemory(t *testing.T) {
	l, _ := counting()
	store := &memory{}
	for template := range 10 {
		for i := range 100 {
			p := pod(fmt.Sprintf("p-%d-%d", template, i), fmt.Sprint(template), float64(i+1))
			l.Observe(llama, []coldstart.Pod{p}, epoch)
		}
	}
	store.keep(t, l)
	e := store.entries[llama]
	require.Len(t, e.Templates, 3)
	for i, template := range e.Templates {
		require.Equal(t, fmt.Sprint(7+i), template.Hash, "the last templates")
		require.Len(t, template.Starts, coldstart.Kept)
		require.InDelta(t, 100, template.Starts[coldstart.Kept-1].Load, 0, "the last starts")
	}
	require.Equal(t, []string{fmt.Sprintf("p-9-99@%d", epoch.Unix())}, e.Counted, "pods that are gone are forgotten")
}

func TestStateIsKept(t *testing.T) {
	var l coldstart.Learner
	require.Nil(t, l.Kept(llama))
	l.Keep(llama, json.RawMessage(`{"a":1}`), epoch)
	require.JSONEq(t, `{"a":1}`, string(l.Kept(llama)))
}

// A Store that could be reached only after the scaler had begun: nothing that
// was learned before is lost, nor what was learned since.
func TestLateRestoreKeepsNewerKnowledge(t *testing.T) {
	old, _ := counting()
	store := &memory{}
	old.Observe(llama, pods("a", 10, 20, 30), epoch)
	old.Keep(llama, json.RawMessage(`"old"`), epoch)
	mistral := coldstart.Key{Namespace: "ai", Name: "mistral"}
	old.Observe(mistral, pods("m", 5, 5, 5), epoch)
	store.keep(t, old)

	l, _ := counting()
	l.Observe(llama, append(pods("a", 10, 20, 30)[2:], pod("new", "a", 40), pod("b-0", "b", 50)), epoch)
	l.Keep(llama, json.RawMessage(`"new"`), epoch)
	for range 2 { // the second time changes nothing
		l.Restore(store.entries)
	}
	require.JSONEq(t, `"new"`, string(l.Kept(llama)))
	require.NotEqual(t, said, l.Quantiles(mistral, "", said).P50, "keys not seen since")
	after := &memory{}
	after.keep(t, l)
	want := []coldstart.Template{
		{Hash: "a", Starts: []coldstart.Start{{Load: 10}, {Load: 20}, {Load: 30}, {Load: 40}}},
		{Hash: "b", Starts: []coldstart.Start{{Load: 50}}},
	}
	require.Empty(t, cmp.Diff(want, after.entries[llama].Templates), "the pod that both have seen counts once")
}

// A pod that is not Ready for a moment while the Store cannot be reached has been
// counted all the same.
func TestLateRestoreKnowsWhatWasCounted(t *testing.T) {
	old, _ := counting()
	store := &memory{}
	old.Observe(llama, pods("a", 60), epoch)
	store.keep(t, old)
	l, got := counting()
	lost := pods("a", 60)
	lost[0].Ready = time.Time{}
	l.Observe(llama, lost, epoch.Add(10*time.Minute))
	l.Restore(store.entries)
	lost[0].Ready = epoch.Add(15 * time.Minute)
	l.Observe(llama, lost, epoch.Add(15*time.Minute))
	require.Empty(t, *got)
}
