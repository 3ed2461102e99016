package kube

import (
	"cmp"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/pilotlight-dev/pilotlight/internal/workload"
)

// deniedFor is how long a denial is believed after it was last seen. A watch
// that fails is tried again within a minute.
const deniedFor = 2 * time.Minute

// lostAfter is how long pods that were read before pass for those of now, while
// reading them is denied: a role that is being replaced is back within it. It is
// more than a watch that fails waits between two tries.
const lostAfter = 90 * time.Second

// troubles are what went wrong with watches and reads, by what they are of.
type troubles struct {
	log *slog.Logger

	mu   sync.Mutex
	list map[workload.Denial]trouble
}

type trouble struct {
	err    error
	at     time.Time // last seen
	since  time.Time // when it was denied first with nothing read after; zero if it was not
	denied bool
	over   func() bool // reports that it has passed; nil for one that only fades
}

// watch notes that a watch has failed. A missing right is said once, whatever
// follows; what else goes wrong, each time.
func (t *troubles) watch(of workload.Denial, err error, now time.Time, over func() bool) {
	t.note(of, "get, list and watch", err, now, over)
}

func (t *troubles) note(of workload.Denial, verbs string, err error, now time.Time, over func() bool) {
	denied := apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err)
	t.mu.Lock()
	if t.list == nil {
		t.list = map[workload.Denial]trouble{}
	}
	before, known := t.list[of]
	said := known && before.denied && before.stands(now)
	since := time.Time{}
	switch {
	case known && before.stands(now) && !before.since.IsZero():
		since = before.since // whatever else failed in between
	case denied:
		since = now
	}
	t.list[of] = trouble{err, now, since, denied, over}
	t.mu.Unlock()
	switch {
	case !denied:
		t.log.Warn("watching "+of.Resource, "namespace", of.Namespace, "error", err)
	case !said:
		t.log.Warn("a right is missing: grant "+verbs+" on "+of.Resource, "namespace", of.Namespace, "error", err)
	}
}

// clear forgets what went wrong with something that has worked.
func (t *troubles) clear(of workload.Denial) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.list, of)
}

// fresh notes that something has been read now, though watching it may fail.
func (t *troubles) fresh(of workload.Denial) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if one, ok := t.list[of]; ok {
		one.since = time.Time{}
		t.list[of] = one
	}
}

func (t trouble) stands(now time.Time) bool {
	return now.Sub(t.at) < deniedFor && (t.over == nil || !t.over())
}

// of is what went wrong last with something, nil if nothing did or it has passed.
func (t *troubles) of(of workload.Denial, now time.Time) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if one, ok := t.list[of]; ok && one.stands(now) {
		return one.err
	}
	return nil
}

// lost is the denial that has stood for so long that what was read before it is
// no longer true, nil if there is none.
func (t *troubles) lost(of workload.Denial, now time.Time) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if one, ok := t.list[of]; ok && one.denied && !one.since.IsZero() && one.stands(now) && now.Sub(one.since) >= lostAfter {
		return one.err
	}
	return nil
}

// denied lists the rights that are missing.
func (t *troubles) denied(now time.Time) []workload.Denial {
	t.mu.Lock()
	defer t.mu.Unlock()
	maps.DeleteFunc(t.list, func(_ workload.Denial, one trouble) bool { return !one.stands(now) })
	var out []workload.Denial
	for of, one := range t.list {
		if one.denied {
			out = append(out, of)
		}
	}
	slices.SortFunc(out, func(a, b workload.Denial) int {
		return cmp.Or(cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Namespace, b.Namespace))
	})
	return out
}

// Denied lists what the API server does not let this program read at present.
func (s *Source) Denied() []workload.Denial { return s.troubles.denied(time.Now()) }

// Problem says why the ScaledObjects have not been listed yet; "" where that is
// not known, or once they have been.
func (s *Source) Problem() string {
	if s.synced() {
		return ""
	}
	if err := s.troubles.of(s.objectsDenial(), time.Now()); err != nil {
		return err.Error()
	}
	return ""
}

func (s *Source) objectsDenial() workload.Denial {
	return workload.Denial{Resource: "scaledobjects", Namespace: s.opts.Namespace}
}

// forgetLeftOut forgets ScaledObjects that there are no more.
func (s *Source) forgetLeftOut(seen map[workload.Ref]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.leftOut, func(ref workload.Ref, _ string) bool { return !seen[ref] })
}

// leaveOut says that a ScaledObject is left out, when there is something new to
// say: it is asked about every second.
func (s *Source) leaveOut(ref workload.Ref, err error) {
	s.mu.Lock()
	said := s.leftOut[ref]
	if err == nil {
		delete(s.leftOut, ref)
	} else {
		s.leftOut[ref] = err.Error()
	}
	s.mu.Unlock()
	if err != nil && said != err.Error() {
		s.opts.Logger.Warn("left out", "scaledObject", ref, "error", err)
	}
}
