// Package agent keeps a root at the version that a pointer names, for as long
// as a pod lives.
//
// The agent runs beside the engine (a native sidecar), or alone as the one
// writer of a shared volume, or beside the engines that read such a volume. It
// does four things, each in a goroutine of its own:
//
//   - [Agent.Run]'s loop asks the pointer every Poll (with jitter), after a
//     nudge and after SIGHUP. An unchanged pointer ends there, for the price of
//     that one question. One that moved starts a pull (list, download, verify,
//     publish), and one that moves again meanwhile, back for instance, ends the
//     pull and starts another. When the pointer or the store fails, everything
//     published stays as it is, and the agent asks on, less and less often.
//     Without a Puller (a read-only pod) the loop watches what the writer
//     publishes.
//   - The engine's health is probed, to know which version it serves: an engine
//     starts when its port refuses connections, and has started at the first
//     200 after that.
//   - The pod's reader file is renewed, so that no collector on any node takes
//     the version away that the pod's link names; and versions that nothing
//     retains are removed.
//   - A change is acted on (OnChange): a program is run, a web hook called, or
//     the agent ends with [ErrRestart] so that the pod's containers start anew.
//     The pod's link does not move before that: an engine loads one version.
//
// An [Observer] is told of publications and of the engine's starts, so that it
// can warm what an engine is about to read, and the engine itself.
//
// [Agent.Handler] tells others: /readyz, /status, POST /nudge.
//
// agent.go holds options and life, loop.go and watch.go follow the writer's or
// the reader's way, engine.go and change.go are the engine's state and the
// actions, status.go, http.go and metrics.go say what is known.
package agent
