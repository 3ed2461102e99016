// Package policy decides how many replicas of a model should run. It is pure:
// no I/O, no clock, no logging. Everything it knows arrives as values and
// everything it decides leaves as one struct that explains itself.
//
//	Decide(Config, State, Sample, now) (Decision, State)
//
// Calling Decide twice with the same arguments gives the same answer, and
// neither argument is changed. The zero State means "no history".
//
// # The question
//
// A replica costs g dollars a second whether it works or not, and takes
// minutes to start. A waiting request costs c dollars a second. Decide keeps
// the sum of the two small, without ever taking what it cannot see for
// nothing. Only the ratio c/g matters.
//
// Words used throughout: S is the residence of a request, from dispatch to its
// last token; A the offered concurrency, arrivals x S, which is how many
// requests would be in flight if none had to wait; P50 and P95 the learned time
// from a pod's creation to Ready; target the requests that one replica should
// carry; N the replicas wanted last.
//
// # The law
//
// Each rule is a function with its formula and worked numbers above it, in
// rules.go on the way up, levels.go on the way down, and unknown.go where
// something cannot be seen.
//
//  1. Unknown is not zero. A pod that cannot be read, or has ceased to be Ready a
//     while ago, counts as busy and nothing shrinks on its account; when none can be read the last answer stands for
//     StaleAfter, and then the replicas are frozen as they are; there is no
//     answer only where those are not known either. A silent demand source
//     never shrinks anything, and at zero it means inactive.
//  2. Load is what runs and waits in Ready pods and what is held outside. A
//     request that was sent on counts once, as the larger of the two views while
//     the engine's gauges may be late. Later an open connection is some load.
//  3. Offered concurrency A, from arrivals and S, is the steady part of the
//     load. What piles up while pods load is not: it would be ordered twice.
//  4. The backlog is that pile, now or as it will be when a pod ordered now is
//     Ready, starting pods counted on. It is worked off within the time that
//     costs least.
//  5. Look-ahead: A is projected by its slope over half a start.
//  6. Expiring credit: a starting pod is counted on until it takes half as long
//     again as nineteen of twenty do, or is seen to fail. Then another is
//     ordered beside it.
//  7. Priced holds: for each level k a virtual queue tells what waiting a k-th
//     replica would have spared. The more, the longer it stays. Level 1 is the
//     keep-alive. One step down at a time, never within P50 of a step up, and
//     only where 0.4 of the remaining target suffices.
//  8. Zero comes after one: KEDA would go from N to zero in one step.
//  9. Lease: while the first pod of a start loads, and until its first request
//     is old enough to be seen, one replica is wanted although the client may
//     have gone. A start that passes its deadline has failed: zero, for a
//     back-off that doubles. A pod that ceases to be Ready begins anew, and has as
//     long.
//  10. A young scaler is careful: without a history it does not shrink what it
//     finds until its windows have filled.
//  11. The HPA's tolerance swallows small steps at ten replicas and more; the
//     value is then put just outside of it.
//  12. Engines that make no token for five minutes under load are stalled, and
//     more of them would not help.
//
// # A worked example
//
// Target 16, P50 90 s, S 6.5 s, $2 per GPU-hour and $0.001 per request-second
// (c/g 1.8). Nothing runs; 8 requests come within a second and are held. A is
// 8/22 s x 6.5 s = 2.4, the look-ahead makes that 5.0. By the time a pod is
// Ready the pile will be 8 + 2.4/6.5 x 90 = 41. Working it off in 5.5 s takes
// 41 x 6.5/5.5 = 48 places: (5.0 + 48)/16, so 4 replicas. While they load the answer does not move, for they are counted on. Each of
// the 8 has then waited some 90 s, so the first replica's hold grows to its
// limit, an hour; the higher levels' virtual queues were worked off by fewer
// pods, so they are released one after the other, the highest first.
package policy
