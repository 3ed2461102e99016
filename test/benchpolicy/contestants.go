package main

import (
	"fmt"
	"time"

	"github.com/pilotlight-dev/pilotlight/scaler/policy"
	"github.com/pilotlight-dev/pilotlight/scaler/simulate"
	"github.com/pilotlight-dev/pilotlight/scaler/simulate/contender"
)

// A class says what a contestant is compared as.
type class uint8

const (
	ours        class = iota
	peer              // at its defaults
	tuned             // a point of a peer's grid, or fixed replicas
	clairvoyant       // a schedule made with the trace in view
)

// A contestant makes a controller for a scenario.
type contestant struct {
	name  string
	class class
	price int // of ours: the index of the price it is told
	make  func(prepared) simulate.Controller
}

// prices are $ per request-second at $2 per GPU-hour; the first one steers the
// headline figures.
var prices = []simulate.Prices{
	{GPUHour: 2, WaitSeconds: 0.001},
	{GPUHour: 2, WaitSeconds: 0.0001},
	{GPUHour: 2, WaitSeconds: 0.01},
}

const (
	middle = iota // indices of prices
	cheap
	dear
)

// config is what the chart gives a target with the prices p.
func config(p simulate.Prices) policy.Config {
	return policy.Config{
		TargetRequests: slots, MaxReplicas: maxReplicas,
		WaitPrice: p.WaitSeconds, GPUPrice: p.GPUHour / 3600,
		KeepAlive: policy.Auto, ScaleDownWindow: policy.Auto, Lookahead: policy.Auto,
		DrainWithin: policy.Auto, StartDeadline: policy.Auto,
		StaleAfter: time.Minute, Cooldown: contender.Recommended().KEDA.CooldownPeriod,
	}
}

func mine() []contestant {
	var all []contestant
	for i, p := range prices {
		all = append(all, contestant{fmt.Sprintf("pilotlight @ %g", p.WaitSeconds), ours, i, func(s prepared) simulate.Controller {
			return contender.Ours{Config: config(p), ColdStart: s.cold}.Controller()
		}})
	}
	return all
}

func is(c class, name string, made simulate.Controller) contestant {
	return contestant{name: name, class: c, make: func(prepared) simulate.Controller { return made }}
}

func peers() []contestant {
	fast := contender.DefaultWVA(slots)
	fast.Up = 0
	var all []contestant
	for _, c := range []simulate.Controller{
		contender.Tutorial(contender.DefaultWindow),
		contender.RunningWaiting(slots, contender.DefaultWindow),
		contender.HTTPAddOn(slots, contender.DefaultWindow),
		contender.DefaultKnative(slots).Controller(),
		contender.DefaultKubeAI(slots).Controller(),
		contender.DefaultLLMD(slots).Controller(),
		contender.DefaultWVA(slots).Controller(),
		fast.Controller(),
		contender.Freeze(slots, contender.DefaultWindow),
	} {
		all = append(all, is(peer, c.Name, c))
	}
	return all
}

// grid is a small search around every peer that is not hopeless, and fixed
// replicas.
func grid() []contestant {
	var all []contestant
	add := func(c simulate.Controller, format string, args ...any) {
		all = append(all, is(tuned, c.Name+" "+fmt.Sprintf(format, args...), c))
	}
	for _, w := range windows(300, 900, 3600) {
		for _, target := range []float64{8, 12, 16} {
			add(contender.HTTPAddOn(target, w), "c%g s%g t%g", w.Cooldown.Seconds(), w.Stabilization.Seconds(), target)
		}
	}
	for _, w := range windows(300, 3600) {
		for _, target := range []float64{12, 16} {
			add(contender.RunningWaiting(target, w), "c%g s%g t%g", w.Cooldown.Seconds(), w.Stabilization.Seconds(), target)
		}
	}
	for _, w := range windows(300, 3600) {
		for _, queue := range []float64{1, 4} {
			l := contender.DefaultLLMD(slots)
			l.Queue, l.Window = queue, w
			add(l.Controller(), "c%g s%g q%g", w.Cooldown.Seconds(), w.Stabilization.Seconds(), queue)
		}
	}
	for _, stable := range []time.Duration{time.Minute, 5 * time.Minute, 15 * time.Minute} {
		for _, use := range []float64{0.5, 0.7} {
			for _, grace := range []time.Duration{30 * time.Second, 30 * time.Minute} {
				k := contender.DefaultKnative(slots)
				k.Stable, k.Utilization, k.Grace = stable, use, grace
				add(k.Controller(), "stable %v use %g grace %v", stable, use, grace)
			}
		}
	}
	for _, window := range []time.Duration{time.Minute, 5 * time.Minute} {
		for _, delay := range []time.Duration{30 * time.Second, 15 * time.Minute} {
			k := contender.DefaultKubeAI(slots)
			k.Window, k.Delay = window, delay
			add(k.Controller(), "window %v delay %v", window, delay)
		}
	}
	for _, loop := range []time.Duration{15 * time.Second, time.Minute} {
		for _, down := range []time.Duration{4 * time.Minute, 15 * time.Minute} {
			w := contender.DefaultWVA(slots)
			w.Up, w.Down, w.Loop = 0, down, loop
			add(w.Controller(), "down %v loop %v", down, loop)
		}
	}
	for n := 1; n <= maxReplicas; n++ {
		all = append(all, is(tuned, fmt.Sprintf("fixed %d", n), contender.Fixed(n)))
	}
	return all
}

// windows are all cooldowns with all stabilisations of 300 s and 900 s.
func windows(cooldowns ...int) []contender.Window {
	var all []contender.Window
	for _, c := range cooldowns {
		for _, s := range []int{300, 900} {
			all = append(all, contender.Window{Cooldown: time.Duration(c) * time.Second, Stabilization: time.Duration(s) * time.Second})
		}
	}
	return all
}

// schedules are the clairvoyant's. They depend on the scenario, so each is
// known by its number.
func schedules() []contestant {
	all := make([]contestant, contender.Schedules)
	for i := range all {
		all[i] = contestant{name: fmt.Sprintf("clairvoyant %d", i+1), class: clairvoyant, make: func(s prepared) simulate.Controller {
			return contender.Clairvoyant(s.Scenario, i)
		}}
	}
	return all
}
