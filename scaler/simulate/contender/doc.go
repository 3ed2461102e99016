// Package contender holds the policies that the simulator compares: ours and
// those of the projects that do the same job, each in a file of its own with
// its source and its default parameters.
//
//	tutorial        what the vLLM tutorials show: waiting > 5 through Prometheus
//	running+waiting the same through the sum of both, which is what the load is
//	http-add-on     KEDA's HTTP add-on: concurrency, pushed
//	knative         Knative's pod autoscaler: stable and panic window
//	kubeai          a ten-minute mean of the requests in flight
//	llm-d           the overshoot guard of llm-d's KEDA guide
//	wva             llm-d's Workload Variant Autoscaler, V2 analyzer
//	freeze          no decision while a pod starts
//	fixed           N replicas, always
//	clairvoyant     a schedule found by looking at the whole trace first
//	pilotlight      ours: package policy
//
// The peers are short re-implementations from reading their source, not the
// programs themselves. Where they count in tokens or need a cluster, the file
// says what stands in for it. All of them get what ours gets: requests are held
// while nothing can serve them, what is held counts as demand, and release to
// pods is bounded. Few of them have all that by themselves, so the comparison
// favours them.
//
// Policies keep their memory in themselves and serve one run; New of a
// simulate.Controller makes a fresh one.
package contender
