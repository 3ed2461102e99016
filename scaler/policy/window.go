package policy

import "time"

// slots is the number of buckets of a Window: a peak is forgotten at most one
// sixteenth of the window late.
const slots = 16

// Window remembers the largest need of a span of time in a ring of buckets.
// Buckets are numbered from the epoch, so that a window restored after a
// restart still knows which of its buckets are old.
type Window struct {
	Bucket [slots]int64 `json:"bucket"` // number of the bucket held in each slot
	Max    [slots]int   `json:"max"`    // largest need in that bucket
}

// with returns w with need recorded in bucket b.
func (w Window) with(b int64, need int) Window {
	i := b % slots
	if w.Bucket[i] != b {
		w.Bucket[i], w.Max[i] = b, 0
	}
	w.Max[i] = max(w.Max[i], need)
	return w
}

// peak returns the largest need of the last slots buckets up to b.
func (w Window) peak(b int64) int {
	largest := 0
	for i, n := range w.Bucket {
		if n > b-slots && n <= b {
			largest = max(largest, w.Max[i])
		}
	}
	return largest
}

// bucket numbers the moment now in a window of the given span.
func bucket(now time.Time, span time.Duration) int64 {
	width := max(int64(span)/slots, 1)
	return now.UnixNano() / width
}
