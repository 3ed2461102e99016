package simulate

// A fifo is a queue of requests.
type fifo struct {
	items []int32
	head  int
}

func (q *fifo) push(id int32) { q.items = append(q.items, id) }

func (q *fifo) empty() bool { return q.head == len(q.items) }

func (q *fifo) peek() int32 { return q.items[q.head] }

func (q *fifo) pop() int32 {
	id := q.items[q.head]
	q.head++
	if q.head > 1024 && 2*q.head > len(q.items) {
		q.items = q.items[:copy(q.items, q.items[q.head:])]
		q.head = 0
	}
	return id
}

// A decoding is a request in a batch: it is done when the batch's virtual token
// time reaches until.
type decoding struct {
	until float64
	id    int32
}

// A batch is a heap of decodings: the first to be done is on top. Among equals
// the one that came first.
type batch []decoding

func (b batch) less(i, j int) bool {
	return b[i].until < b[j].until || b[i].until == b[j].until && b[i].id < b[j].id
}

func (b *batch) push(d decoding) {
	*b = append(*b, d)
	h := *b
	for i := len(h) - 1; i > 0; {
		parent := (i - 1) / 2
		if !h.less(i, parent) {
			break
		}
		h[i], h[parent] = h[parent], h[i]
		i = parent
	}
}

func (b *batch) pop() decoding {
	h := *b
	top, last := h[0], len(h)-1
	h[0] = h[last]
	h = h[:last]
	for i := 0; ; {
		child := 2*i + 1
		if child >= last {
			break
		}
		if child+1 < last && h.less(child+1, child) {
			child++
		}
		if !h.less(child, i) {
			break
		}
		h[i], h[child] = h[child], h[i]
		i = child
	}
	*b = h
	return top
}

// remove takes a request out of the batch. Clients seldom leave, so the heap is
// simply built again.
func (b *batch) remove(id int32) {
	all := *b
	*b = make(batch, 0, len(all))
	for _, d := range all {
		if d.id != id {
			b.push(d)
		}
	}
}
