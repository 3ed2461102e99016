// Package moves remembers how model pointers have moved, as the agents beside
// the engines have seen it.
//
// A pointer that is moved by hand, in MLflow's UI for one, leaves no record: the
// registry keeps no history. Agents notice, but they go when the pods do, and a
// model at zero replicas has none. So the scaler asks them while they live (a
// [Watcher]), keeps the last [Kept] moves of each reference (a [Book]), and
// `pilotlight history` and `rollback` read them from where the scaler keeps what
// it remembers ([Read]).
//
// # What is believed
//
// Two things in an agent's /status tell about the pointer:
//
//   - named: what the pointer named when it last answered, and when that was. It
//     is the truth, at a moment. All agents of a reference in a namespace ask the
//     same pointer, so that a few of them are enough.
//   - history: what was published in the pod's root. It lags behind by a
//     download, and its first entry is what the pod began with, which may have
//     been pinned. So it counts only where nobody has listened for a while: when
//     the scaler has just started, or the first pod after zero has. A publication
//     that followed another one is then a move.
//
// Times are moved to the scaler's clock by the Date of the agent's answer, so
// that the clocks of nodes may be wrong. Moments of different agents are good to
// [doubt], and within that nothing moves back.
//
// What is kept is not what the registry has: a move that was made and undone
// between two polls was never seen. It is what an agent heard, in the order of
// time, and the first entry says only where the pointer stood. A namespace's
// pods speak for that namespace alone: another one's may ask another registry.
package moves
