package scaler

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/pilotlight-dev/pilotlight/internal/workload"
	"github.com/pilotlight-dev/pilotlight/scaler/engine"
	"github.com/pilotlight-dev/pilotlight/scaler/policy"
	"github.com/pilotlight-dev/pilotlight/warmup/coldstart"
)

// sample reads every Ready pod at the same time and puts what came back
// together with the demand. A pod that cannot be read keeps its last load,
// marked unknown.
func (t *target) sample(ctx context.Context, w workload.Workload) policy.Sample {
	in := policy.Sample{
		Replicas:  w.Replicas,
		Pods:      make([]policy.Pod, len(w.Pods)),
		Demand:    policy.Demand{Known: true},
		ColdStart: policy.ColdStart(t.learn(w)),
	}
	readings := make([]engine.Reading, len(w.Pods))
	var group errgroup.Group
	group.SetLimit(t.opts.Scrapes)
	for i, p := range w.Pods {
		in.Pods[i] = policy.Pod{Created: p.Created, LostAt: p.LostAt, Terminating: p.Terminating, Failing: p.Failure.Failing()}
		if !p.Ready() {
			continue
		}
		in.Pods[i].ReadyAt = p.ReadyAt
		group.Go(func() error {
			in.Pods[i].Load, readings[i] = t.read(ctx, p)
			return nil
		})
	}
	_ = group.Wait()   // the functions above return no error
	var read time.Time // nothing was read of a target without Ready pods
	if slices.ContainsFunc(w.Pods, workload.Pod.Ready) {
		read = time.Now()
	}
	t.remember(w, in)
	if unreadable(in.Pods) {
		in.Asked = t.asked(ctx, in.Replicas, t.state.LastReplicas)
	}
	t.meter.count(w, in, readings)
	in.Traffic = t.meter.total
	if t.demands != nil {
		in.Demand = t.demands.Since(ctx, t.key.Ref, read)
		in.Traffic = t.traffic(in.Traffic)
	}
	return in
}

// askedFor is how long what a scale target asks for is believed, and askedWithin
// how long reading it may take.
const (
	askedFor    = 5 * time.Second
	askedWithin = time.Second
)

// asked finds out how many replicas the scale target asks for. That matters where
// the replicas are to stay as they are, and there are more or fewer pods than were
// wanted last.
func (t *target) asked(ctx context.Context, pods, wanted int) policy.Count {
	asker, ok := t.opts.Workloads.(Asker)
	if !ok || pods == wanted {
		return policy.Count{}
	}
	if time.Since(t.askedAt) < askedFor {
		return t.lastAsked
	}
	ctx, cancel := context.WithTimeout(ctx, askedWithin)
	defer cancel()
	t.lastAsked, t.askedAt = policy.Count{}, time.Now()
	if n, err := asker.Asked(ctx, t.key.Ref); err == nil {
		t.lastAsked = policy.Count{Known: true, Replicas: n}
	} else {
		t.log.Debug("what the scale target asks for cannot be read", "error", err)
	}
	return t.lastAsked
}

// unreadable reports whether there are Ready pods and none can be read.
func unreadable(pods []policy.Pod) bool {
	ready := false
	for _, p := range pods {
		if !p.Ready() {
			continue
		}
		if p.Load.Known {
			return false
		}
		ready = true
	}
	return ready
}

// traffic is what is counted outside, with what only the engines count: tokens,
// and completions where the source sees none. Activators count from the first
// request on, which they also hold; a source from its first answer on, since
// that request would be lost if counting began with it.
func (t *target) traffic(engines policy.Traffic) policy.Traffic {
	seen := t.demands.Traffic(t.key.Ref)
	if !seen.Known || t.source == nil && seen.Arrivals == 0 {
		return engines
	}
	seen.TokensKnown, seen.Tokens = engines.TokensKnown, engines.Tokens
	if t.source != nil {
		seen.Completions, seen.ServiceSeconds = engines.Completions, engines.ServiceSeconds
	}
	return seen
}

// learn takes in how long the pods took to get ready, and answers for the next
// one, which will be of the youngest pod's template.
func (t *target) learn(w workload.Workload) coldstart.Quantiles {
	pods := make([]coldstart.Pod, len(w.Pods))
	template, youngest := "", time.Time{}
	for i, p := range w.Pods {
		pods[i] = coldstart.Pod{
			Name: p.Name, Template: p.Template, Created: p.Created, Scheduled: p.Scheduled, Initialised: p.Initialised, Ready: p.ReadyAt, Lost: !p.LostAt.IsZero(),
		}
		if !p.Created.Before(youngest) {
			template, youngest = p.Template, p.Created
		}
	}
	k := t.key.memory()
	t.opts.Memory.Observe(k, pods, time.Now())
	return t.opts.Memory.Quantiles(k, template, t.trigger.ColdStart)
}

// read scrapes one pod. An unknown load carries no numbers yet; remember adds
// the last known ones.
func (t *target) read(ctx context.Context, p workload.Pod) (policy.Load, engine.Reading) {
	r, err := t.opts.Engines.Scrape(ctx, engine.Target{URL: t.metricsURL(p), Kind: engine.Kind(t.trigger.Engine), Model: t.trigger.ModelName})
	why := engine.Reason(err)
	if err == nil {
		if err = t.doubt(p.Name, r.Running+r.Waiting); err != nil {
			why = "jump"
		}
	}
	t.complain(p.Name, why, err)
	if err != nil {
		t.metrics.unread(t.key, why)
		return policy.Load{}, r
	}
	return policy.Load{Known: true, Running: r.Running, Waiting: r.Waiting}, r
}

// jump is a rise from one look to the next that is looked at twice before it is
// believed, in requests and in targets; the larger counts. A gauge that is wrong
// for a moment would otherwise order every replica there may be, and they would
// stay for their holds. A true flood waits one look more.
const (
	jump        = 1000
	jumpTargets = 50
)

// doubt refuses a load that has jumped since the last that was believed, unless
// the look before saw at least half as much.
//
//	target 8, last 5: 900 is believed; 5,000 is doubted, and the next 4,800
//	believed
func (t *target) doubt(pod string, load float64) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	last, before := t.believed[pod], t.doubted[pod]
	if load-last > max(jump, jumpTargets*t.trigger.TargetRequests) && before < load/2 {
		t.doubted[pod] = load
		return fmt.Errorf("running + waiting rose from %.4g to %.4g since the last look: believed if the next agrees", last, load)
	}
	delete(t.doubted, pod)
	t.believed[pod] = load
	return nil
}

// complain logs why a pod cannot be read when that changes, and keeps it for
// whoever asks.
func (t *target) complain(pod, why string, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	t.mu.Lock()
	before := t.problems[pod]
	if text == "" {
		delete(t.problems, pod)
	} else {
		t.problems[pod] = text
	}
	t.mu.Unlock()
	switch text {
	case before:
	case "":
		t.log.Info("pod can be read again", "pod", pod)
	default:
		t.log.Warn("pod cannot be read", "pod", pod, "reason", why, "error", text)
	}
}

// complaint is the first pod's, by name, with what is wrong with it.
func (t *target) complaint() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, pod := range slices.Sorted(maps.Keys(t.problems)) {
		return pod + ": " + t.problems[pod]
	}
	return "no reading"
}

// remember keeps the loads that are known and completes those that are not.
// Pods that are gone are forgotten.
func (t *target) remember(w workload.Workload, in policy.Sample) {
	loads := make(map[string]policy.Load, len(w.Pods))
	for i, p := range w.Pods {
		load := in.Pods[i].Load
		if !load.Known {
			load = t.loads[p.Name]
			load.Known = false
			in.Pods[i].Load = load
		}
		loads[p.Name] = load
	}
	t.loads = loads
	t.mu.Lock()
	defer t.mu.Unlock()
	maps.DeleteFunc(t.problems, func(pod, _ string) bool { _, there := loads[pod]; return !there })
	for _, m := range []map[string]float64{t.believed, t.doubted} {
		maps.DeleteFunc(m, func(pod string, _ float64) bool { _, there := loads[pod]; return !there })
	}
}

func (t *target) metricsURL(p workload.Pod) string {
	port := t.trigger.MetricsPort
	if p.Port != 0 {
		port = p.Port
	}
	return t.trigger.MetricsScheme + "://" + net.JoinHostPort(p.Host, strconv.Itoa(port)) + t.trigger.MetricsPath
}
