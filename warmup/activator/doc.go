// Package activator is the proxy in front of the engines. It holds requests
// while nothing can serve them, counts them as demand for the scaler, and
// sends them on when a pod is Ready.
//
// A request takes this way (docs/reference/activator.md tells it from outside):
//
//   - handle.go asks route.go what the address means: an inference route, a
//     list of models, a probe, or something that is not served. Nothing is read
//     of a request that is not served or brings no valid key.
//   - body.go takes the body in, within bounds of size, speed and memory; the
//     model it names (package openai) leads to a pool, one for each
//     ScaledObject.
//   - pool.go is the line in front of a target (package line) and the places
//     behind it: never more than targetRequests on one Ready pod, the least
//     busy first, or the one that knows the conversation (package affinity).
//     Who finds no place waits in wait.go, in memory, within bounds.
//   - With a place the request goes through a ReverseProxy whose transport,
//     places.go, dials the pod and starts over with another one when the dial
//     is refused, and stream.go does the same when an engine answers that it
//     goes down, as long as the client has seen nothing. Afterwards nothing is
//     ever sent twice.
//   - writer.go bounds each write to the client, not the answer: a stream may
//     last as long as it likes, a client that stops reading may not.
//   - finish.go says how it ended, in one log line and one count.
//
// Who leaves calls Leave, Drain and, in the end, Cut (activator.go). Tidy has a
// flood's memory given back.
//
// A Reporter tells the scaler the counts (report.go).
package activator
