package simulatecmd

import (
	"bytes"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pilotlight-dev/pilotlight/internal/scaledobject"
	"github.com/pilotlight-dev/pilotlight/internal/trigger"
	"github.com/pilotlight-dev/pilotlight/scaler/policy"
	"github.com/pilotlight-dev/pilotlight/scaler/simulate"
	"github.com/pilotlight-dev/pilotlight/scaler/simulate/contender"
	"github.com/pilotlight-dev/pilotlight/scaler/simulate/trace"
)

// A world is what the flags and files describe.
type world struct {
	Options
	object   scaledobject.ScaledObject
	scenario simulate.Scenario
	through  *simulate.Through
	prices   simulate.Prices
}

// samples is how many moments a timeline has, about.
const samples = 1500

// open reads what the flags name. The world is fit for use if there are no
// faults.
func (o Options) open(f *faults) *world {
	w := &world{Options: o}
	o.check(f)
	w.readObject(f)
	so := w.object
	body, err := readFile("--trace", o.trace)
	f.add(err)
	engine := parseEngine(o.engine, f)
	starts := parseStarts(o.coldStart, so.Trigger.ColdStart, f)
	starts.Stuck, starts.Failing = o.stuck, o.failing
	if len(*f) > 0 {
		return w
	}
	requests, err := trace.Read(bytes.NewReader(body), trace.Options{Name: o.trace, Seed: o.seed, Rate: o.rate, From: o.from, For: o.length})
	if err != nil {
		f.check(false, "%s: %v", traceFlag(err), err)
		return w
	}
	span := requests[len(requests)-1].At + simulate.DefaultTail
	w.scenario = simulate.Scenario{
		Name: filepath.Base(o.trace), Requests: requests, Engine: engine, Starts: starts,
		Gauges:      simulate.Gauges{Cold: o.gaugeLag},
		MinReplicas: so.MinReplicas, MaxReplicas: so.MaxReplicas, TargetRequests: so.Trigger.TargetRequests,
		Warm: o.warm, Unbounded: o.unbounded, Patience: o.patience, SLO: o.slo, Seed: o.seed,
		SampleEvery: max(span/samples, time.Second).Round(time.Second),
	}
	return w
}

// readObject reads the ScaledObject, and is about the flags that mean something
// only with it. Without one the world's stays empty.
func (w *world) readObject(f *faults) {
	body, err := readFile("--scaledobject", w.scaledObject)
	if err != nil {
		f.add(err)
		return
	}
	so, err := scaledobject.Parse(w.scaledObject, body)
	if err != nil {
		f.add(fmt.Errorf("--scaledobject: %w", err))
		return
	}
	f.check(w.warm <= so.MaxReplicas, "--warm %d: must be at most maxReplicaCount, %d", w.warm, so.MaxReplicas)
	w.object, w.through = so, contender.Through(so)
	w.prices = simulate.Prices{GPUHour: so.Trigger.GPUPrice * 3600, WaitSeconds: so.Trigger.WaitPrice}
}

// ours is the controller of the ScaledObject with the given trigger.
func (w *world) ours(t trigger.Trigger) simulate.Controller {
	return contender.Ours{
		Config: contender.Config(t, w.object.MinReplicas, w.object.MaxReplicas, w.through), Through: w.through,
		ColdStart: policy.ColdStart{P50: w.scenario.Starts.P50, P95: w.scenario.Starts.P95},
	}.Controller()
}

// candidates are controllers of which the cheapest stands for the name.
type candidates struct {
	name  string
	tries []simulate.Controller
}

// peers are the policies to compare with, by the name of the flag.
var peers = []struct {
	name string
	make func(target float64) simulate.Controller
}{
	{"tutorial", func(float64) simulate.Controller { return contender.Tutorial(contender.DefaultWindow) }},
	{"running+waiting", func(t float64) simulate.Controller { return contender.RunningWaiting(t, contender.DefaultWindow) }},
	{"http-add-on", func(t float64) simulate.Controller { return contender.HTTPAddOn(t, contender.DefaultWindow) }},
	{"knative", func(t float64) simulate.Controller { return contender.DefaultKnative(t).Controller() }},
	{"kubeai", func(t float64) simulate.Controller { return contender.DefaultKubeAI(t).Controller() }},
	{"llm-d", func(t float64) simulate.Controller { return contender.DefaultLLMD(t).Controller() }},
	{"wva", func(t float64) simulate.Controller { return contender.DefaultWVA(t).Controller() }},
	{"freeze", func(t float64) simulate.Controller { return contender.Freeze(t, contender.DefaultWindow) }},
}

const clairvoyant = "clairvoyant"

func names() []string {
	out := make([]string, 0, len(peers)+1)
	for _, p := range peers {
		out = append(out, p.name)
	}
	return append(out, clairvoyant)
}

// controllers are ours and the chosen peers, whose names were checked.
func (w *world) controllers(compare []string) []candidates {
	out := []candidates{{"pilotlight", []simulate.Controller{w.ours(w.object.Trigger)}}}
	if slices.Equal(compare, []string{"all"}) {
		compare = append(names(), fmt.Sprintf("fixed-%d", min(w.object.MaxReplicas, 4)))
	}
	if slices.Equal(compare, []string{"none"}) {
		compare = nil
	}
	for _, name := range compare {
		out = append(out, candidates{name, w.peer(name)})
	}
	return out
}

func (w *world) peer(name string) []simulate.Controller {
	if name == clairvoyant {
		tries := make([]simulate.Controller, contender.Schedules)
		for i := range tries {
			tries[i] = contender.Clairvoyant(w.scenario, i)
		}
		return tries
	}
	for _, p := range peers {
		if p.name == name {
			return []simulate.Controller{p.make(w.object.Trigger.TargetRequests)}
		}
	}
	count, _ := strconv.Atoi(strings.TrimPrefix(name, "fixed-")) // checked
	return []simulate.Controller{contender.Fixed(count)}
}
