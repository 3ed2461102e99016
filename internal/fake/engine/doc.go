// Package engine is a simulated vLLM: real HTTP, no GPU. The demo, the tests
// and the end-to-end runs use it where a real one would need minutes and money.
// It imitates what a scaler, an activator and a fetcher can observe:
//
//   - The start. [Engine.Run] reads every byte of the model folder, takes its
//     time, and only then listens: before that a connection is refused. Like
//     vLLM it lists the folder once and then opens each file by its path, so a
//     link swapped during the load mixes versions; unlike vLLM it notices
//     ([ErrMixedVersions]) and refuses to start.
//   - The work. [Config.Slots] requests run at a time, the rest wait in the
//     order they came. A request costs its prompt divided by
//     PrefillTokensPerSecond, then one DecodeInterval per token.
//   - The answers. Chat and text completions, whole or streamed, in OpenAI's
//     shapes. Each says which weights it came from: in its text ("llama version
//     1 says: ..."), in system_fingerprint ("version=1;digest=0123456789ab")
//     and in the header X-Model-Version.
//   - The metrics. vLLM's names and labels on /metrics; the two load gauges can
//     lag by [Config.GaugeLag], as the real ones do.
//   - The end. When Run's context ends, running requests get ShutdownTimeout to
//     finish while new ones are answered at once with status 200 and
//     finish_reason "abort"; then whatever still runs is aborted too.
//
// A prompt has a token per four characters. A client that goes away frees its
// place at once and, as with vLLM, leaves no trace in request_success_total.
//
// Time is plain package time, so the engine can live in a testing/synctest
// bubble as long as requests reach Handler without sockets.
package engine
