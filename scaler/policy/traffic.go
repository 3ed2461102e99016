package policy

import "time"

// Traffic counts requests since some beginning that does not matter: only the
// differences between two samples do. A total that falls (a restarted
// activator or engine) counts as no change.
type Traffic struct {
	Known          bool    `json:"known"`          // whether the next three are counted at all
	Arrivals       float64 `json:"arrivals"`       // requests that came
	Completions    float64 `json:"completions"`    // requests that ended
	ServiceSeconds float64 `json:"serviceSeconds"` // from dispatch to done, over those that ended
	TokensKnown    bool    `json:"tokensKnown"`    // whether tokens are counted
	Tokens         float64 `json:"tokens"`         // tokens processed; does not move while an engine hangs
}

const (
	arrivalSlots = 64 // one second each: the longest window is a minute
	servedSlots  = 16
	servedWidth  = 8 * time.Second // 16 x 8 s: completions of the last two minutes

	// DefaultResidence is S until a completion was seen: some 250 tokens at
	// 25 ms. A wrong one costs a little on the very first start only; having
	// none costs 43 %.
	DefaultResidence = 6500 * time.Millisecond
)

// Rates remembers recent arrivals and completions in rings of buckets that are
// numbered from the epoch.
type Rates struct {
	Last      Traffic               `json:"last"`
	Since     int64                 `json:"since"` // Unix seconds; arrivals before this were not counted
	Arrived   [arrivalSlots]float64 `json:"-"`     // by second; of no use to a later process
	ArrivedIn [arrivalSlots]int64   `json:"-"`
	Served    [servedSlots]served   `json:"served"`
	Residence float64               `json:"residence"` // S, seconds; 0 = not seen yet
}

type served struct {
	Bucket  int64   `json:"bucket"`
	Count   float64 `json:"count"`
	Seconds float64 `json:"seconds"`
}

// with returns r with the traffic since the last sample, and the arrivals in it.
func (r Rates) with(t Traffic, now time.Time) (Rates, float64) {
	if !t.Known || !r.Last.Known {
		r.Last, r.Since = t, now.Unix()
		return r, 0
	}
	arrivals := max(t.Arrivals-r.Last.Arrivals, 0)
	count, seconds := t.Completions-r.Last.Completions, t.ServiceSeconds-r.Last.ServiceSeconds
	r.Last = t
	second := now.Unix()
	i := second % arrivalSlots
	if r.ArrivedIn[i] != second {
		r.ArrivedIn[i], r.Arrived[i] = second, 0
	}
	r.Arrived[i] += arrivals
	if count > 0 && seconds >= 0 {
		r.serve(now, count, seconds)
	}
	return r, arrivals
}

func (r *Rates) serve(now time.Time, count, seconds float64) {
	b := now.Unix() / int64(servedWidth/time.Second)
	s := &r.Served[b%servedSlots]
	if s.Bucket != b {
		*s = served{Bucket: b}
	}
	s.Count += count
	s.Seconds += seconds
	var n, total float64
	for _, s := range r.Served {
		if s.Bucket > b-servedSlots {
			n += s.Count
			total += s.Seconds
		}
	}
	r.Residence = max(total/n, 1e-3)
}

// perSecond is the mean arrival rate over the span of seconds that ended ago
// seconds before now.
func (r *Rates) perSecond(now time.Time, span, ago int64) float64 {
	last := now.Unix() - ago
	sum := 0.0
	for i := range r.Arrived {
		if b := r.ArrivedIn[i]; b > last-span && b <= last {
			sum += r.Arrived[i]
		}
	}
	return sum / float64(span)
}

// residence is S in seconds: of the last two minutes, of the last that was
// seen, or the prior.
func (r *Rates) residence() float64 {
	if r.Residence == 0 {
		return DefaultResidence.Seconds()
	}
	return r.Residence
}
