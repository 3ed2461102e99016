// Package rollout restarts the engines of a model through whatever runs them.
//
// [Find] looks for the Deployments, StatefulSets and LeaderWorkerSets whose pod
// template carries the annotation pilotlight.dev/ref; templates are looked at,
// not pods, so that a workload at zero replicas is found too. [Restart] sets the
// annotation pilotlight.dev/model-version in those templates with a merge patch
// that names nothing else: the workload's own strategy then paces the restarts,
// the fetcher in each new pod brings exactly that version, and a scale-out in
// between cannot mix versions. Replica counts are never touched.
//
// A ScaledObject that somebody has paused is found and reported ([Workload].Paused),
// and left as it is.
//
// Rights needed: list and patch on deployments, statefulsets and, where they
// are installed, leaderworkersets; list on scaledobjects for the report.
package rollout
