// Package scaler is a KEDA external scaler for LLM engines.
//
// KEDA asks it over gRPC (server.go) about ScaledObjects. Each one asked about
// becomes a target (target.go) with a loop of its own: once a second it looks
// at the pods, scrapes the Ready ones, adds what the activators hold, and lets
// package policy decide. RPCs only read the latest decision, so that they
// answer at once whatever the engines do.
//
// A target is known by namespace, name and a hash of its metadata, because two
// triggers of one ScaledObject differ by nothing else. A target that nobody
// asks about any more ends by itself, sooner if another trigger of the same
// ScaledObject is asked about: it has been edited. Targets are bounded for each
// ScaledObject and for all (targets.go), as is what metadata may hold (package
// trigger), because tenants write both.
package scaler

import (
	"context"
	"encoding/json"
	"time"

	"github.com/pilotlight-dev/pilotlight/internal/trigger"
	"github.com/pilotlight-dev/pilotlight/internal/workload"
	"github.com/pilotlight-dev/pilotlight/scaler/engine"
	"github.com/pilotlight-dev/pilotlight/scaler/policy"
	"github.com/pilotlight-dev/pilotlight/warmup/coldstart"
)

// Workloads shows what a ScaledObject scales. Errors are those of package
// workload.
type Workloads interface {
	Workload(ctx context.Context, ref workload.Ref, podSelector string) (workload.Workload, error)
}

// Asker is for Workloads that can find out how many replicas a scale target asks
// for, where a workload's Replicas counts its pods.
type Asker interface {
	Asked(ctx context.Context, ref workload.Ref) (int, error)
}

// Engines reads one engine's metrics.
type Engines interface {
	Scrape(ctx context.Context, t engine.Target) (engine.Reading, error)
}

// Memory learns how long starts take, and keeps each target's state across
// restarts.
type Memory interface {
	Observe(k coldstart.Key, pods []coldstart.Pod, now time.Time)
	Quantiles(k coldstart.Key, template string, said time.Duration) coldstart.Quantiles
	Keep(k coldstart.Key, state json.RawMessage, now time.Time)
	Kept(k coldstart.Key) json.RawMessage
}

// Demands shows what waits outside of the pods, as it was seen after a moment
// (zero: no pod is Ready, so that nothing can have been sent on), and counts
// what passes through there. Wake asks for a signal when requests start to wait.
type Demands interface {
	Since(ctx context.Context, ref workload.Ref, moment time.Time) policy.Demand
	Traffic(ref workload.Ref) policy.Traffic
	Wake(ref workload.Ref, c chan<- struct{}) (stop func())
}

// Sources are the demand sources beside the activators. Check says, by key, why
// a trigger cannot use the one that it names; what has passed can be opened.
type Sources interface {
	Check(ref workload.Ref, t trigger.Trigger) []trigger.Fault
	Open(ref workload.Ref, t trigger.Trigger) Source
}

// Source is one target's view of a demand source. Says tells what it cannot
// see, and what is wrong with it while it is unknown.
type Source interface {
	Demands
	Says() (blind, problem string)
}
