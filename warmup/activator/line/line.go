// Package line is the queue in front of a model: first come, first served,
// with priorities that cannot starve anybody.
//
// A request of a higher class goes ahead as if it had come [Step] earlier for
// each class above another's. So a request is overtaken only by those that
// come within Step times the difference of classes after it: with the classes
// low (-1), normal (0) and high (1) and 30 s a step, a low request that came
// at 12:00:00 goes before a high one that comes at 12:01:01, however many high
// ones there are. Within a class the order is that of arrival.
package line

import (
	"container/heap"
	"time"
)

// Step is how much waiting one class is worth.
const Step = 30 * time.Second

// Lowest and Highest bound the classes.
const (
	Lowest  = -10
	Highest = 10
)

// Line is a queue of values. The zero value is empty and ready. It is not safe
// for concurrent use.
type Line[T any] struct {
	items items[T]
	seq   uint64
}

// Item is one value in line.
type Item[T any] struct {
	Value T

	turn  time.Time // when it would have come in the middle class
	seq   uint64
	index int // -1: not in line
}

// Push puts a value in line that came at the given moment. Classes beyond the
// bounds count as the bound.
func (l *Line[T]) Push(v T, came time.Time, class int) *Item[T] {
	class = min(max(class, Lowest), Highest)
	l.seq++
	it := &Item[T]{Value: v, turn: came.Add(-time.Duration(class) * Step), seq: l.seq}
	heap.Push(&l.items, it)
	return it
}

// Return puts an item that was popped back where it had been.
func (l *Line[T]) Return(it *Item[T]) {
	if it.index < 0 {
		heap.Push(&l.items, it)
	}
}

// Pop takes the next one out; nil when there is none.
func (l *Line[T]) Pop() *Item[T] {
	if len(l.items) == 0 {
		return nil
	}
	it, _ := heap.Pop(&l.items).(*Item[T])
	return it
}

// Peek returns the next one and leaves it in line; nil when there is none.
func (l *Line[T]) Peek() *Item[T] {
	if len(l.items) == 0 {
		return nil
	}
	return l.items[0]
}

// Remove takes an item out wherever it stands; false when it is not in line.
func (l *Line[T]) Remove(it *Item[T]) bool {
	if it.index < 0 {
		return false
	}
	heap.Remove(&l.items, it.index)
	return true
}

// Len is how many are in line.
func (l *Line[T]) Len() int { return len(l.items) }

// Each calls f with every value, in no particular order.
func (l *Line[T]) Each(f func(T)) {
	for _, it := range l.items {
		f(it.Value)
	}
}

type items[T any] []*Item[T]

func (h items[T]) Len() int { return len(h) }

func (h items[T]) Less(i, j int) bool {
	if c := h[i].turn.Compare(h[j].turn); c != 0 {
		return c < 0
	}
	return h[i].seq < h[j].seq
}

func (h items[T]) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *items[T]) Push(x any) {
	it, ok := x.(*Item[T])
	if !ok {
		return
	}
	it.index = len(*h)
	*h = append(*h, it)
}

func (h *items[T]) Pop() any {
	last := len(*h) - 1
	it := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	it.index = -1
	return it
}
