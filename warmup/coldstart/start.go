package coldstart

import (
	"strconv"
	"time"
)

// Longest is the longest way to Ready that counts as a start. A pod that seems
// to have taken longer was Ready before, and has regained readiness while
// nobody looked.
const Longest = 24 * time.Hour

// Pod is what a Learner needs to see of a pod. Zero times have not come yet.
type Pod struct {
	Name, Template                         string
	Created, Scheduled, Initialised, Ready time.Time
	Lost                                   bool // it was Ready before, and is not
}

// id tells a pod from one of the same name before it.
func (p Pod) id() string { return p.Name + "@" + strconv.FormatInt(p.Created.Unix(), 10) }

// ready reports whether the pod has a way to Ready behind it.
func (p Pod) ready() bool {
	return !p.Created.IsZero() && !p.Ready.IsZero() && !p.Ready.Before(p.Created)
}

// took is how long the pod has been on its way to Ready, or was.
func (p Pod) took(now time.Time) time.Duration {
	if p.Ready.IsZero() {
		return now.Sub(p.Created)
	}
	return p.Ready.Sub(p.Created)
}

// A Start is one pod's way to Ready, in seconds.
type Start struct {
	Schedule float64 `json:"schedule"` // created -> scheduled
	Fetch    float64 `json:"fetch"`    // scheduled -> init containers done
	Load     float64 `json:"load"`     // init containers done -> Ready
}

// Total is the time from created to Ready.
func (s Start) Total() time.Duration { return seconds(s.Schedule + s.Fetch + s.Load) }

// possible reports whether every slice is a number from 0 to Longest.
func (s Start) possible() bool {
	for _, v := range []float64{s.Schedule, s.Fetch, s.Load} {
		if !(v >= 0 && v <= Longest.Seconds()) {
			return false
		}
	}
	return true
}

// start cuts a Ready pod's way into slices. A time that is missing or out of
// order makes its slice empty, never negative; the sum is right all the same.
func (p Pod) start() Start {
	scheduled := within(p.Scheduled, p.Created, p.Ready)
	initialised := within(p.Initialised, scheduled, p.Ready)
	return Start{
		Schedule: scheduled.Sub(p.Created).Seconds(),
		Fetch:    initialised.Sub(scheduled).Seconds(),
		Load:     p.Ready.Sub(initialised).Seconds(),
	}
}

func within(t, least, most time.Time) time.Time {
	switch {
	case t.Before(least):
		return least
	case t.After(most):
		return most
	}
	return t
}
