// Package prime makes a model warm before it is called ready: its files are in
// the page cache before the engine reads them, and the engine has compiled what
// it compiles on its first requests before a user's request meets it.
//
// Three parts, which an agent beside the engine runs:
//
//	Cache   reads a folder into the page cache, as far as memory allows
//	Engine  waits for the engine's health and sends it a few requests
//	Keeper  does both when it is told that something happened (a version was
//	        published, an engine went down or started), and answers a readiness
//	        probe: 200 once the engine that runs now was warmed up
//
// Warming is help, never a condition: what fails is reported and the gate opens
// all the same, since a cold engine that serves is better than a warm one that
// nobody may use. Only an engine that is never healthy keeps the gate shut.
// Nothing is done twice for nothing: a version whose files were just written
// through the page cache is warm, and so is one that was warmed a moment ago.
//
// # The page cache and its guard
//
// vLLM maps its weights and reads them page by page, which a network file
// system answers slowly; a few readers that go through the files in large steps
// are several times as fast, and what they have read the engine finds in
// memory. Files go in the order of their names, in which engines load them.
//
// A page that does not fit pushes out another. [Budget] therefore bounds the
// work by the smaller of what the machine has available and what the container's
// memory cgroup has left, less a reserve, and the guard looks again while
// reading. Pages are charged to the cgroup that reads them first: the container
// that runs Cache needs a memory limit above the size of the model, or none.
// With a tighter one it warms what fits and says so.
//
// # Warm-up requests
//
// After its start vLLM still compiles some kernels on first use. Three kinds of
// requests reach them: a short one, a long one (near the largest batch of
// prompt tokens), and a burst; all with temperature 1, because greedy requests
// leave the sampler uncompiled, and at least two tokens, because the first is
// made by another path. Every prompt is unique, so that none is answered from
// the prefix cache.
//
// # Compile caches
//
// The larger part of a start after the weights are there is compilation, and
// vLLM keeps its results below VLLM_CACHE_ROOT. Two things let the next start
// find them:
//
//   - VLLM_CACHE_ROOT on the models' volume (/models/.cache/vllm, say), which
//     outlives the pod; on a volume that many pods share, one folder for each
//     kind of GPU.
//   - A constant model path. The path is part of the cache's key, so serve from
//     /models/current or the pod's own link, never from the folder of a version.
package prime
