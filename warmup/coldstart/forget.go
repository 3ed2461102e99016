package coldstart

import (
	"cmp"
	"iter"
	"maps"
	"slices"
)

const (
	// keysKept bounds a Learner's memory. A trigger that is edited is a new key,
	// so keys outnumber the targets that a scaler serves (10,000). A key with
	// three pods takes some 3 KiB, one that knows all there is to know 17 KiB.
	keysKept = 20_000

	// keysOfOne bounds the keys of one ScaledObject, twice the triggers of it
	// that a scaler serves: whoever edits it every minute takes nobody's room.
	keysOfOne = 32

	// keysAtOnce is how many keys go when there are too many: to find the oldest
	// of all takes a while, during which nobody else is served.
	keysAtOnce = keysKept / 20
)

// known returns the entry of k, making room for a new one.
func (l *Learner) known(k Key) *known {
	if l.entries == nil {
		l.entries, l.objects = map[Key]*known{}, map[object][]Key{}
	}
	if l.entries[k] == nil {
		switch triggers := l.objects[k.object()]; {
		case len(triggers) >= keysOfOne:
			l.forget(1, slices.Values(triggers))
		case len(l.entries) >= keysKept:
			l.forget(keysAtOnce, maps.Keys(l.entries))
		}
		l.entries[k] = &known{pods: map[string]bool{}}
		l.objects[k.object()] = append(l.objects[k.object()], k)
	}
	return l.entries[k]
}

// forget forgets up to n of keys, those that were not asked about for longest.
// Those that are not written yet go only if all are like that.
func (l *Learner) forget(n int, keys iter.Seq[Key]) {
	type candidate struct {
		key   Key
		dirty bool
		used  int64
	}
	var all []candidate
	for k := range keys {
		e := l.entries[k]
		all = append(all, candidate{k, e.dirty, max(e.looked.Load(), e.Updated.Unix())})
	}
	slices.SortFunc(all, func(a, b candidate) int {
		switch {
		case a.dirty == b.dirty:
			return cmp.Compare(a.used, b.used)
		case a.dirty:
			return 1
		}
		return -1
	})
	for _, c := range all[:n] {
		if c.dirty == all[0].dirty {
			l.drop(c.key)
		}
	}
}

func (l *Learner) drop(k Key) {
	delete(l.entries, k)
	o := k.object()
	l.objects[o] = slices.DeleteFunc(l.objects[o], func(other Key) bool { return other == k })
	if len(l.objects[o]) == 0 {
		delete(l.objects, o)
	}
}
