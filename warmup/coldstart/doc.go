// Package coldstart learns how long a model takes from nothing to Ready.
//
// A Start is one pod's way there, in three slices: until it was scheduled (a
// node may have had to be made), until its init containers were done (the
// weights had to be fetched), and until it was Ready (the engine had to load
// them). A Learner (learner.go) keeps the last starts of every target, by pod
// template, because another image or another model takes another time, and
// answers with P50 and P95 (quantiles.go). Until enough starts of a template
// were seen it answers with those of the template before, until then with those
// that another trigger of the same ScaledObject has seen (an edited trigger is
// a new one), and until then with what the user said.
//
// A start that never ended tells nothing about how long starts take, so it is
// not counted; one that took ten times as long as the others is, but moves a
// median and a median deviation little. A cluster says of a pod when it became
// Ready last, which may be hours after its birth because its readiness was lost
// for a moment. So a start counts that was watched, and of pods that ran before
// anybody looked only what is plausible (meet.go); those that another trigger of
// the ScaledObject has counted bring what it has learned with them.
//
// What is learned, and whatever the scaler wants to remember of each target, is
// kept in a Store by a Keeper (keep.go), so that a restart forgets nothing:
// ConfigMaps in a cluster (package configmap), a file without one (package
// filestore). Both keep each Entry as a record with a version (record.go). The
// pods that were counted are part of the Entry, so that no start counts twice,
// whatever was or was not written before a crash.
package coldstart
