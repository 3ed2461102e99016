package simulate

import (
	"math"
	"time"
)

// never is later than everything.
const never = time.Duration(math.MaxInt64)

// A pod is one replica and the engine in it.
//
// A request that has a slot waits for its prefill (one at a time, in order),
// which takes input/Prefill seconds and makes the first token, and then decodes
// output-1 more in the batch. With b requests decoding, each gets a token every
//
//	step(b) = DecodeAlone + (DecodeFull - DecodeAlone) x (b-1)/(Slots-1)
//
// All of a batch advance alike, so one number, the virtual token time, says how
// far everybody is: it moves by 1/step(b) a second, and a request that joins at
// v is done when it reaches v + output - 1. Only a change of b has to be
// computed, however many tokens lie between two.
type pod struct {
	id          int // of the run's pods, from 1
	created     time.Duration
	readyAt     time.Duration // when it gets or got Ready, or never
	failsAt     time.Duration // when its failing is seen, or never
	ready       bool
	terminating bool

	queue   fifo // without a slot
	waiting int  // of queue, less those that have left
	used    int  // slots in use
	kv      int  // tokens reserved by them

	prefills   fifo // with a slot, the first one being prefilled
	prefillEnd time.Duration
	batch      batch
	tokens     float64 // virtual token time at tokensAt
	tokensAt   time.Duration
	made       float64 // tokens processed up to then

	next time.Duration // its next event, or never

	dispatchedAt time.Duration // first dispatch, or never
	gaugesRead   bool
	gaugesAt     time.Duration // when running and queued were last taken
	running      int
	queued       int
}

func (p *pod) inFlight() int { return p.waiting + p.used }

// step is the time for a token of each with b requests in the batch, ns.
func (e Engine) step(b int) float64 {
	if e.Slots == 1 {
		return float64(e.DecodeAlone)
	}
	return float64(e.DecodeAlone) + float64(e.DecodeFull-e.DecodeAlone)*float64(b-1)/float64(e.Slots-1)
}

// advance moves the batch on to now.
func (p *pod) advance(e Engine, now time.Duration) {
	if b := len(p.batch); b > 0 && now > p.tokensAt {
		progress := float64(now-p.tokensAt) / e.step(b)
		p.tokens += progress
		p.made += progress * float64(b)
	}
	p.tokensAt = now
}

// tokensMade is what advance would make of p.made.
func (p *pod) tokensMade(e Engine, now time.Duration) float64 {
	if b := len(p.batch); b > 0 {
		return p.made + float64(now-p.tokensAt)/e.step(b)*float64(b)
	}
	return p.made
}

// schedule sets the time of the pod's next event.
func (p *pod) schedule(e Engine) {
	p.next = never
	if !p.ready {
		p.next = p.readyAt
		return
	}
	if !p.prefills.empty() {
		p.next = p.prefillEnd
	}
	if b := len(p.batch); b > 0 {
		left := max(p.batch[0].until-p.tokens, 0) * e.step(b)
		p.next = min(p.next, p.tokensAt+time.Duration(math.Ceil(left)))
	}
}

// almost is how far, in tokens, a request may be from its end to count as done:
// a thousandth of a microsecond of decoding, which is what rounding event times
// to nanoseconds makes.
const almost = 1e-6

// event does what is due in p at r.now.
func (r *run) event(p *pod) {
	if !p.ready {
		p.ready, p.tokensAt = true, r.now
		p.schedule(r.s.Engine)
		return
	}
	p.advance(r.s.Engine, r.now)
	for len(p.batch) > 0 && p.batch[0].until <= p.tokens+almost {
		r.finish(p, p.batch.pop().id)
	}
	if len(p.batch) == 0 {
		p.tokens = 0
	}
	if !p.prefills.empty() && p.prefillEnd <= r.now {
		r.prefilled(p, p.prefills.pop())
		r.prefillNext(p)
	}
	r.admit(p)
	p.schedule(r.s.Engine)
}

// enter puts a request that the activator sends into p.
func (r *run) enter(p *pod, id int32) {
	p.advance(r.s.Engine, r.now)
	p.queue.push(id)
	p.waiting++
	if p.dispatchedAt == never {
		p.dispatchedAt = r.now
	}
	r.admit(p)
	p.schedule(r.s.Engine)
}

// admit gives free slots to the pod's queue. A request that is alone gets one
// whatever the KV limit.
func (r *run) admit(p *pod) {
	e := r.s.Engine
	for !p.queue.empty() && p.used < e.Slots {
		id := p.queue.peek()
		if r.requests[id].state == lost {
			p.queue.pop()
			continue
		}
		need := r.kvNeed(id)
		if e.KVTokens > 0 && p.used > 0 && p.kv+need > e.KVTokens {
			return
		}
		p.queue.pop()
		p.waiting--
		p.used++
		p.kv += need
		idle := p.prefills.empty()
		p.prefills.push(id)
		r.requests[id].state = slotted
		if idle {
			r.prefillNext(p)
		}
	}
}

func (r *run) kvNeed(id int32) int {
	q := r.s.Requests[id]
	return q.Input + q.Output
}

// prefillNext begins the next prefill, if there is one whose client is there.
func (r *run) prefillNext(p *pod) {
	for !p.prefills.empty() {
		id := p.prefills.peek()
		if r.requests[id].state != lost {
			r.began(id)
			took := float64(r.s.Requests[id].Input) / r.s.Engine.Prefill * float64(time.Second)
			p.prefillEnd = r.now + time.Duration(math.Round(took))
			return
		}
		p.prefills.pop()
		r.leave(p, id)
	}
}

// prefilled moves a request from prefill to the batch.
func (r *run) prefilled(p *pod, id int32) {
	p.made += float64(r.s.Requests[id].Input)
	if r.requests[id].state == lost {
		r.leave(p, id)
		return
	}
	r.firstToken(id)
	if more := r.s.Requests[id].Output - 1; more > 0 {
		p.batch.push(decoding{p.tokens + float64(more), id})
		return
	}
	r.finish(p, id)
}

// finish ends a request that got all it wanted.
func (r *run) finish(p *pod, id int32) {
	q := &r.requests[id]
	q.state = done
	r.result.Completed++
	r.ended(int(id))
	r.service += r.now - q.dispatched
	r.leave(p, id)
}

// leave frees a slot.
func (r *run) leave(p *pod, id int32) {
	p.used--
	p.kv -= r.kvNeed(id)
	r.inFlight--
	r.freed = true
}

// drop ends a request whose client has gone in the middle of its answer.
func (r *run) drop(p *pod, id int32) {
	p.advance(r.s.Engine, r.now)
	p.batch.remove(id)
	r.finish(p, id)
	if len(p.batch) == 0 {
		p.tokens = 0
	}
	r.admit(p)
	p.schedule(r.s.Engine)
	if p.terminating && p.inFlight() == 0 {
		r.remove(p)
	}
	r.release()
}
