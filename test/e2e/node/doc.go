// Package node plays a Kubernetes node for the end-to-end tests, without
// containers: it watches the pods of one node name and runs their containers as
// processes of this machine.
//
// A container's command is looked up by its base name in a folder of binaries
// (Options.Bin); one without a command runs the binary of its image's base name.
// An image whose name contains "missing" cannot be pulled. Every pod has an
// address of its own on loopback (127.N.x.y, where N belongs to one run on this
// machine), which is its podIP, so that ports do not collide.
//
// There is no file-system isolation. Volumes are folders, and a mount path in a
// command, an argument or an environment variable is replaced by its folder.
// emptyDir, hostPath, persistentVolumeClaim (a folder for each claim), configMap,
// secret and downwardAPI volumes are known.
//
// What is as on a real node: init containers in their order, native sidecars,
// restarts, the first at once and then with a back-off (shorter: 1 s to 10 s),
// startup, readiness and liveness probes by HTTP, termination messages, preStop
// sleeps, the grace period, and the conditions and container states that
// controllers read.
package node
