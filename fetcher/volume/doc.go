// Package volume writes large files the way the volume below them wants it.
//
// How long must what was written last? That is the [Durability]:
//
//   - Ephemeral: an emptyDir, a container's own layer, memory. The folder goes
//     with the pod, and what reads it next runs on this node. Writes are plain
//     and leave the pages warm; nothing is fsynced. A crash of the node is found
//     by the boot id that the manifest carries ([BootID]).
//   - Durable: a volume that outlives the pod. Full size is allocated first, the
//     data goes past the page cache (O_DIRECT) where the file system has that,
//     and one batch of fsyncs ends the download. Where it has not, dirty pages
//     are bounded: every [DirtyWindow] of a file is pushed out and waited for.
//
// [Choose] tells which one from the mount. Network file systems are durable and
// always bounded: their dirty pages cannot be charged back to a memory cgroup
// and have had small pods killed, so each window is synced and dropped.
//
// Everything happens below an os.Root, or what stands in for one ([Root]).
package volume

// Align is what offsets, lengths and addresses of direct writes are multiples
// of, in bytes: the largest logical block in use.
const Align = 4096

// DirtyWindow is how much of one file may be dirty in bounded mode, in bytes.
const DirtyWindow = 32 << 20
