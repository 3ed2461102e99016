// Package simulate is the loop that a policy lives in, with everything but the
// policy made of virtual time: clients, the activator, engine pods, KEDA and
// the Horizontal Pod Autoscaler.
//
//	Run(ctx, Scenario, Controller) (Result, error)
//
// A Scenario is what happens to a target: the requests of a trace, what an
// engine can do, how long pods take to start and which of them never do. A
// Controller is a policy and the way its answers reach the replicas. The Result
// says what it cost: waits, GPU-seconds, starts, flaps, and a timeline.
//
// # The model
//
// A discrete-event simulation: time jumps from one event to the next. Requests
// come to the activator, which holds them and lets them go to the Ready pod
// with the fewest in flight, up to targetRequests each (or at once, into the
// pods' own queues, where a Scenario says so). A pod has slots; a request that
// has one is prefilled, one at a time at a fixed speed, which makes its first
// token, and then decoded together with the others: the more of them, the
// slower each. Decoding is processor sharing, computed exactly in virtual token
// time (pod.go). A pod costs from its creation to its end, also while it
// starts; a pod that is scaled in finishes what it has.
//
// The start of the n-th pod takes a time drawn from a lognormal distribution
// with the given P50 and P95. It depends on the seed and n alone, so that all
// policies meet the same starts.
//
// KEDA's scale loop and the HPA (keda.go, hpa.go) are pure functions of values
// that serve the demo as well, which drives them with a real clock and the real
// scaler behind a gRPC socket. They follow KEDA 2.21 and Kubernetes'
// autoscaling/v2 controller; each names what it follows.
//
// # What it leaves out
//
// Prefix caches, prefill that slows decoding down (chunked prefill), pods that
// fail after they were Ready, networks, and outages of KEDA and the HPA
// themselves. GPUs are always to be had, after the delay of a node where one
// is configured. What a client that has left had begun is prefilled to its end
// and then dropped.
//
// # Recordings
//
// What has really happened can take the place of what is drawn or assumed: how
// long each start took and which pods were taken away (Starts), when clients left
// (Leave), when KEDA, the HPA and the policy looked first (Through, Controller),
// and how late the activator's counts were. All of it is off unless asked for.
// Package test/e2e/replay holds scenarios on a real control plane beside their
// simulations this way.
//
// # Repeatable
//
// A run depends on its arguments alone: the same seed gives the same result to
// the last bit. Nothing reads a clock.
package simulate
