// Package webhook hears from MLflow that a model alias has been moved, and
// nudges every agent that follows it, so that a new version is on its way in a
// second instead of at the agents' next poll.
//
// Two halves. A [Handler] checks a delivery: it must be signed with the secret
// that MLflow's webhook was given, be at most five minutes old and not seen
// before. A [Nudger] then finds the pods whose agents follow the reference and
// posts to their /nudge.
//
// A delivery is never believed: it says only that there may be news, and the
// agents ask the registry themselves. A forged one could at most make them ask,
// which they do no oftener than every five seconds.
//
// # What MLflow sends (3.3 and later)
//
//	POST /webhook
//	X-MLflow-Delivery-Id: <uuid>
//	X-MLflow-Timestamp: <Unix seconds>
//	X-MLflow-Signature: v1,base64(HMAC-SHA256(secret, "<delivery id>.<timestamp>.<body>"))
//	{"entity":"model_version_alias","action":"created","timestamp":"...",
//	 "data":{"name":"llama","alias":"champion","version":"3"}}
//
// `created` is also what a move sends; `deleted` nudges too, so that agents
// report the broken pointer soon. Any other event is accepted and ignored.
// MLflow repeats a delivery on 429 and 5xx only, so those are answered only
// where repeating helps.
package webhook
