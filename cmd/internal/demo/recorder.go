package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/pilotlight-dev/pilotlight/scaler"
)

// A sample is the state of everything at one moment.
type sample struct {
	At       time.Duration `json:"at"` // since the demo began
	Wanted   int           `json:"wanted"`
	Starting int           `json:"starting"`
	Ready    int           `json:"ready"`
	Running  float64       `json:"running"` // requests on engines
	Held     float64       `json:"held"`    // requests at the activator
	Decision int           `json:"decision"`
	Reason   string        `json:"reason"`
}

// An event is something worth a line.
type event struct {
	At   time.Duration `json:"at"`
	Kind string        `json:"kind"` // step, scale or note
	Text string        `json:"text"`
}

// A recorder samples the demo a few times a second and keeps what happened.
type recorder struct {
	began    time.Time
	node     *node
	debugURL string
	onSample func(sample)
	onEvent  func(event)

	mu      sync.Mutex
	samples []sample
	events  []event
	last    scaler.TargetStatus
}

const sampleEvery = 200 * time.Millisecond

// run samples until ctx ends. What cannot be read keeps its last value.
func (r *recorder) run(ctx context.Context) error {
	return every(ctx, sampleEvery, func() {
		status, err := r.status(ctx)
		c := r.node.counts()
		r.mu.Lock()
		if err == nil {
			r.last = status
		}
		s := sample{
			At: time.Since(r.began), Wanted: c.wanted, Starting: c.fetching + c.loading, Ready: c.ready,
			Running: max(r.last.Terms.Running+r.last.Terms.Waiting, r.last.Terms.InFlight), Held: r.last.Terms.Held,
			Reason: r.last.Reason,
		}
		if r.last.Replicas != nil {
			s.Decision = *r.last.Replicas
		}
		r.samples = append(r.samples, s)
		r.mu.Unlock()
		r.onSample(s)
	})
}

// status asks the scaler what it thinks.
func (r *recorder) status(ctx context.Context) (scaler.TargetStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.debugURL, nil)
	if err != nil {
		return scaler.TargetStatus{}, err
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		return scaler.TargetStatus{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	var targets []scaler.TargetStatus
	if err := json.NewDecoder(resp.Body).Decode(&targets); err != nil {
		return scaler.TargetStatus{}, err
	}
	if len(targets) != 1 {
		return scaler.TargetStatus{}, fmt.Errorf("%d targets, want 1", len(targets))
	}
	return targets[0], nil
}

// event records something that happened now.
func (r *recorder) event(kind, format string, args ...any) {
	e := event{At: time.Since(r.began), Kind: kind, Text: fmt.Sprintf(format, args...)}
	r.mu.Lock()
	r.events = append(r.events, e)
	r.mu.Unlock()
	r.onEvent(e)
}

// peak is the largest number of Ready replicas seen since a moment.
func (r *recorder) peak(since time.Duration) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	most := 0
	for _, s := range r.samples {
		if s.At >= since {
			most = max(most, s.Ready)
		}
	}
	return most
}

// held is the number of requests held at the last sample.
func (r *recorder) held() float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last.Terms.Held
}

// timeline returns a copy of everything recorded.
func (r *recorder) timeline() ([]sample, []event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]sample(nil), r.samples...), append([]event(nil), r.events...)
}
