// Package pointercmd holds the commands of `pilotlight` that read and move
// pointers: resolve, history, promote, rollback, status, doctor and pointer; and
// explain, which asks the scaler why a model has the replicas it has.
//
// A pointer is a reference that moves: an alias in MLflow (models:/llama@champion)
// or an object on the store (pointer+s3://bucket/key). The commands see both as
// one [Backend]. What they add to it is care, in this order:
//
//  1. Read where the pointer stands, and decide where it should go. A rollback
//     without a target goes to what served before, by the recorded moves and by
//     what agents have seen; when nothing is known, or the record and the pods of
//     namespaces tell different things, it lists what there is and decides
//     nothing.
//  2. Prove the target before anything is written: it is ready in the registry,
//     its place is allowed, its files are there and complete (fetcher.Inspect).
//  3. Ask, on a terminal; elsewhere --yes has to be there.
//  4. Read again and move, with the position that was seen as the condition.
//  5. With --restart, pin the workloads' pod templates to the version; with
//     --wait, watch the agents until every engine serves the digest that was
//     proven in step 2.
//
// Every failure before step 4 leaves everything as it was, and every failure
// after it is "moved, not verified" with a code of its own, so that a script
// knows which of the two it has in hand.
//
// deps.go says what the commands need of the world, and is where a test puts
// its own; move.go is the order above; target.go, sight.go, preflight.go, confirm.go,
// restart.go and wait.go are its steps; resolve.go, history.go, status.go,
// doctor.go, pointer.go and explain.go the other commands; output.go prints
// documents as a table, JSON or YAML.
package pointercmd
