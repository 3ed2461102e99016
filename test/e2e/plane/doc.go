// Package plane runs a Kubernetes control plane with KEDA on loopback, without
// containers: etcd, kube-apiserver, kube-controller-manager, KEDA's operator and
// its metrics adapter, as processes of this machine, in a folder of their own.
//
// It is what the end-to-end tests run against: everything that decides about
// replicas is the real thing, at the versions that test/e2e/tools pins. There is
// no kubelet and no scheduler; package node plays a node.
//
// Start brings everything up and Close ends it. The binaries come from a folder
// (make e2e-tools); nothing needs root, a container engine or a network.
//
// # How it hangs together
//
//   - The API server trusts a CA made for the run. Admin is a token in
//     system:masters; other users get tokens of their own (User) and RBAC decides.
//   - The aggregated API of external metrics goes to KEDA's adapter by a Service
//     of type ExternalName that names localhost: there is no kube-proxy, and
//     EndpointSlices refuse loopback addresses.
//   - KEDA's operator makes the certificates that it and its adapter share in a
//     secret, and exits once; the secret's files are then put where both look.
package plane
