package e2e

import (
	"context"
	"time"

	"github.com/pilotlight-dev/pilotlight/test/e2e/replay"
	"github.com/pilotlight-dev/pilotlight/test/e2e/timeline"
)

// recorder records a scenario: what the scaler says twice a second, and what the
// API server says when it changes.
type recorder struct {
	timeline.Timeline
	*watch

	stop context.CancelFunc
	done chan struct{}
}

const (
	recordEvery = 500 * time.Millisecond
	scalerEvery = 500 * time.Millisecond // the scaler's --interval
)

func (s *scenario) record() *recorder {
	ctx, stop := context.WithCancel(context.WithoutCancel(s.t.Context()))
	began := time.Now()
	l := &recorder{Timeline: timeline.Timeline{Name: s.ns, Began: began}, watch: newWatch(began), stop: stop, done: make(chan struct{})}
	stopWatch := l.run(ctx, s.Client, s.Dyn, s.ns)
	go func() {
		defer close(l.done)
		defer stopWatch()
		ticker := time.NewTicker(recordEvery)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			p, decided := s.look()
			l.mu.Lock()
			if !decided.IsZero() {
				l.looks = append(l.looks, decided.Sub(l.Began).Seconds())
			}
			p.Seconds = time.Since(l.Began).Seconds()
			l.see(&p)
			l.Points = append(l.Points, p)
			l.mu.Unlock()
		}
	}()
	return l
}

// look is what the scaler says, and when it decided that.
func (s *scenario) look() (p timeline.Point, decided time.Time) {
	if d := s.decision(); d != nil {
		decided = d.DecidedAt
		p.Wanted, p.Reason = d.Replicas, d.Reason
		p.Arrivals = d.Terms.Arrivals
		p.Load, p.Held, p.Waiting = d.Terms.Load, d.Terms.Held, d.Terms.Held+d.Terms.Waiting
	}
	return p, decided
}

// mark notes what the scenario does.
func (s *scenario) mark(text string) {
	s.t.Log(text)
	s.line.mu.Lock()
	defer s.line.mu.Unlock()
	s.line.Marks = append(s.line.Marks, timeline.Mark{Seconds: time.Since(s.line.Began).Seconds(), Text: text})
}

// most is the largest number of replicas there was so far.
func (l *recorder) most() int32 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Most()
}

// wanted is the largest decision within a while of the first above zero, and the
// largest of all so far.
func (l *recorder) wanted(while time.Duration) (first, most int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	began := -1.0
	for _, p := range l.Points {
		if p.Wanted == nil || *p.Wanted == 0 {
			continue
		}
		if began < 0 {
			began = p.Seconds
		}
		if p.Seconds-began <= while.Seconds() {
			first = max(first, *p.Wanted)
		}
		most = max(most, *p.Wanted)
	}
	return first, most
}

// keep ends the recording, replays it, and keeps both.
func (l *recorder) keep(s *scenario) {
	l.stop()
	<-l.done
	l.Failed = s.t.Failed()
	l.Ended = time.Since(l.Began).Seconds()
	l.Moves, l.Trace = l.moves, l.trace(l.Ended)
	l.Trace.HPASync, l.Trace.Interval = s.HPASync.Seconds(), scalerEvery.Seconds()
	if s.activator != nil {
		requests, err := requests(s.activator.Log, l.Began)
		if err != nil {
			s.t.Errorf("reading the activator's log: %v", err)
		}
		l.Trace.Requests = requests
	}
	l.again(s)
	if s.out == "" {
		return
	}
	if err := l.Save(s.out); err != nil {
		s.t.Errorf("keeping the timeline: %v", err)
	}
}

// again lets the simulator play the same, and says how far it is from what was
// seen.
func (l *recorder) again(s *scenario) {
	how, known := replays[s.t.Name()]
	switch {
	case !known:
		l.Apart = "nobody has said yet whether its load explains what happens"
	case how.apart != "":
		l.Apart = how.apart
	case l.Failed:
		l.Apart = "the scenario has failed"
	default:
		r, err := replay.Run(context.WithoutCancel(s.t.Context()), &l.Timeline)
		if err != nil {
			s.t.Error(err)
			l.Apart = err.Error()
			return
		}
		l.Replay = r
		s.t.Log("replay: " + r.Says)
		if how.same && !r.Same {
			s.t.Error("the simulator does not take the steps that were seen")
		}
		return
	}
	s.t.Log("not replayed: " + l.Apart)
}
