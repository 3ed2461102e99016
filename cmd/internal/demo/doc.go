// Package demo shows Pilotlight's whole job on one machine, without a cluster.
//
// It starts an S3 server, an MLflow registry and a model of KEDA with its HPA
// in its own process, and the real scaler, activator and fetcher as child
// processes (parts.go), each running the code of its binary. A node (node.go)
// plays Deployment and kubelet: it runs a fetcher and then a simulated engine
// for every replica that is asked for, and writes what it runs to the targets
// file that scaler and activator read. A script (script.go) plays a user and
// checks every step; a recorder keeps the timeline for the live view and for
// the picture at the end.
//
// Clocks run faster than in a cluster: see pace.
package demo

import "time"

// pace holds every interval that the demo shortens, beside what a cluster
// would have.
var pace = struct {
	poll, cooldown, hpaSync, keepAlive, window, gaugeLag, coldStart, load time.Duration
}{
	poll:      2 * time.Second,         // KEDA pollingInterval: 10 s by the chart
	cooldown:  time.Second,             // KEDA cooldownPeriod: 30 s by the chart
	hpaSync:   time.Second,             // 15 s by the controller's default
	keepAlive: 4 * time.Second,         // minutes, priced
	window:    3 * time.Second,         // minutes, priced
	gaugeLag:  3 * time.Second,         // 30 s for vLLM
	coldStart: 3 * time.Second,         // minutes
	load:      1500 * time.Millisecond, // what the simulated engine takes to load
}
