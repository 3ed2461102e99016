// Package agentwatch asks the agents beside the engines which version they
// serve, and waits until all of them serve the same one.
//
// Agents are found in two ways, each a [Source]: [Addresses] asks host:port
// pairs directly, and [Cluster] finds pods by the label that every pod of a
// model carries, [RefHash] of the reference, and asks them through the API
// server's pod proxy, so that no address of a pod has to be reachable from here.
//
// [Judge] is the rule, and pure: a version is served when at least one pod
// counts, and every pod that counts reports an engine that is ready on exactly
// the digest. A pod that is terminating or has ended does not count, nor does
// one that only writes a shared volume ([RoleLabel]). One that cannot be asked
// is unknown, and unknown is never ready.
//
// [Watch] asks again and again until the rule holds, the context ends, or its
// caller has seen enough.
package agentwatch
