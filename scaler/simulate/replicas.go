package simulate

import "slices"

// begin puts the replicas up that there are at the beginning.
func (r *run) begin(c Controller) {
	if !r.s.Cold {
		r.warm(max(r.s.Warm, min(c.Warm, r.s.MaxReplicas), r.s.MinReplicas))
		return
	}
	for range r.s.Starting {
		r.create()
	}
	r.replicas, r.result.PeakReplicas = r.s.Starting, r.s.Starting
}

// warm puts n replicas up before the beginning.
func (r *run) warm(n int) {
	for range n {
		p := r.create()
		if p.readyAt != never {
			p.ready, p.readyAt = true, r.now
			p.next = never
		}
	}
	r.replicas = n
	r.result.PeakReplicas = n
	r.result.Starts = 0
}

// create starts a pod.
func (r *run) create() *pod {
	r.started++
	r.result.Starts++
	p := &pod{id: r.started, created: r.now, readyAt: r.now + r.s.startTime(r.started), failsAt: never, dispatchedAt: never}
	switch {
	case slices.Contains(r.s.Starts.Failing, r.started):
		p.failsAt, p.readyAt = r.now+r.s.Starts.FailsAfter, never
	case slices.Contains(r.s.Starts.Stuck, r.started):
		p.readyAt = never
	}
	p.next = p.readyAt
	r.pods = append(r.pods, p)
	return p
}

// remove ends a pod.
func (r *run) remove(p *pod) {
	r.result.GPUSeconds += (r.now - p.created).Seconds()
	r.past += p.tokensMade(r.s.Engine, r.now)
	i := slices.Index(r.pods, p)
	r.pods = slices.Delete(r.pods, i, i+1)
}

// scale makes the target ask for n replicas.
func (r *run) scale(n int, by, reason string) {
	n = min(max(n, 0), r.s.MaxReplicas)
	if n == r.replicas {
		return
	}
	r.result.Moves = append(r.result.Moves, Move{r.now, r.replicas, n, by, reason})
	for ; r.replicas < n; r.replicas++ {
		r.create()
	}
	for ; r.replicas > n; r.replicas-- {
		r.terminate(r.victim())
	}
	r.result.PeakReplicas = max(r.result.PeakReplicas, n)
}

// victim is the pod that a ReplicaSet takes away first: one that is not Ready
// before one that is, and among equals the youngest. (The controller compares
// the logarithms of ages, so that among pods of a similar age it is anyone's
// turn; who knows whose turn it was says so with Starts.Victims.)
func (r *run) victim() *pod {
	for _, id := range r.s.Starts.Victims {
		for _, p := range r.pods {
			if p.id == id && !p.terminating {
				return p
			}
		}
	}
	var v *pod
	for _, p := range r.pods {
		if !p.terminating && (v == nil || !p.ready || v.ready) {
			v = p
		}
	}
	return v
}

// terminate lets p finish what it has and go.
func (r *run) terminate(p *pod) {
	p.terminating = true
	if !p.ready || p.inFlight() == 0 {
		r.remove(p)
	}
}

// counted is what the activator has counted until now.
func (r *run) counted() View {
	return View{
		Held: r.held, InFlight: r.inFlight,
		Arrivals: float64(r.arrived), Completions: float64(r.result.Completed), ServiceSeconds: r.service.Seconds(),
	}
}

// view adds to what the activator has counted what else can be seen now. Its
// pods are kept in buffer.
func (r *run) view(v View, buffer []PodView) View {
	v.Now, v.Replicas, v.Tokens, v.Pods = r.s.at(r.now), r.replicas, r.past, buffer[:0]
	for _, p := range r.pods {
		r.readGauges(p)
		w := PodView{
			ID: p.id, Created: r.s.stamp(p.created), Terminating: p.terminating, Failing: r.now >= p.failsAt,
			Running: p.running, Waiting: p.queued,
		}
		if p.ready {
			w.ReadyAt = r.s.stamp(p.readyAt)
		}
		v.Tokens += p.tokensMade(r.s.Engine, r.now)
		v.Pods = append(v.Pods, w)
	}
	return v
}

// readGauges takes what p's engine would report now.
func (r *run) readGauges(p *pod) {
	g := r.s.Gauges
	switch {
	case p.dispatchedAt == never || r.now-p.dispatchedAt < g.Cold:
		return
	case p.gaugesRead && r.now-p.gaugesAt < g.Every:
		return
	}
	p.gaugesRead, p.gaugesAt, p.running, p.queued = true, r.now, p.used, p.waiting
}

func (r *run) anyReady() bool {
	_, ready, _ := r.counts()
	return ready > 0
}

// counts are the replicas by state.
func (r *run) counts() (starting, ready, terminating int) {
	for _, p := range r.pods {
		switch {
		case p.terminating:
			terminating++
		case p.ready:
			ready++
		default:
			starting++
		}
	}
	return starting, ready, terminating
}

// finalize closes the books at the end of the run.
func (r *run) finalize() {
	for _, p := range r.pods {
		r.result.GPUSeconds += (r.now - p.created).Seconds()
	}
	for i, q := range r.requests {
		switch q.state {
		case streaming:
			r.result.Streaming++
		case held, queued, slotted:
			r.result.Waiting++
			waited := r.now - r.s.Requests[i].At
			if q.began == 0 {
				r.waited(waited)
			}
			r.ttfts = append(r.ttfts, float32(waited.Seconds()))
			if waited > r.s.SLO {
				r.result.OverSLO++
			}
		}
	}
	r.result.OverSLO += r.result.Lost
	r.result.Duration = r.now
	r.result.ServiceSeconds = r.service.Seconds()
	r.result.Wait = quantiles(r.waits)
	r.result.FirstToken = quantiles(r.ttfts)
	r.result.Flaps, r.result.Regrets = flaps(r.result.Moves, r.s.FlapWithin)
}
