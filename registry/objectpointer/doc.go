// Package objectpointer keeps a model pointer as one small object in the store
// that holds the models: a pointer without a registry server, and with a true
// compare-and-set, which MLflow's aliases lack.
//
// A reference pointer+s3://bucket/key names the object. It holds JSON:
//
//	{"v": 1,
//	 "ref": "pointer+s3://models/llama/live",
//	 "version": "2026-03-01",
//	 "location": "s3://models/llama/2026-03-01",
//	 "digest": "<SHA-256 of the version's manifest, lower-case hex>",
//	 "at": "2026-03-02T09:00:00Z", "by": "ann@laptop",
//	 "history": [<registry.Entry>, ...]}
//
// "ref" says where it was written and may be missing. The history is newest
// first, holds at most 100 moves, and begins with the move that led here.
// Everything that a move changes lies in this one object, so a move is one PUT
// with If-Match: it happens as a whole with its record, or not at all, and no
// entry is ever pending. Who loses a race is told ([registry.ErrConflict]; stores
// say 412, or 409 while two writes are under way).
//
// A PUT whose answer got lost is not sent again: the object is read, and the
// random id of our entry in its history tells whether it was ours.
//
// Some S3 servers ignore If-Match and answer 200. [Client.Move] notices when a
// write of ours has vanished without a trace, and says so
// ([ErrNoConditions]); Options.RequireConditions asks the store beforehand and
// refuses.
//
// Who follows a pointer asks with If-None-Match ([Client.Resolve]): an unchanged
// one is an answer without a body.
//
// What is read is bounded (256 KiB) and checked. An object that is no pointer is
// [registry.ErrBroken], one of a later format [registry.ErrUnsupported]: neither
// is ever overwritten.
package objectpointer
