// Package fetcher brings one version of a model from an object store to a
// folder, and publishes it so that a reader sees all of it or none.
//
// [Init] is the whole job: resolve the reference once, list the location,
// freeze the list as a [Manifest], name the version by the manifest's digest,
// and unless that version is there already, download, verify and publish it.
//
//	<root>/current -> versions/<digest12>            replaced by rename(2)
//	<root>/versions/<digest12>/                      a read-only tree, whole
//	<root>/versions/<digest12>/.pilotlight/model     -> the folder an engine loads
//	<root>/versions/<digest12>/.pilotlight/tokenizer -> its tokenizer's
//	<root>/versions/<digest12>/.pilotlight/manifest.json   written last
//	<root>/.staging/<digest12>.<unique>/             a download under way
//	<root>/.staging/<digest12>.<unique>.lock         held by its owner
//	<root>/.state.json                               which reference is served, what was published when
//	<root>/.lease                                    held by who downloads now
//	<root>/.readers/<pod>                            which version a pod uses
//
// # One command line for every layout
//
// A version may be a Hugging Face folder, or a tree of MLflow's with the model
// in model/ and the tokenizer in components/tokenizer, and the next version of
// the same model may be laid out the other way. So the published tree stays as
// it was uploaded, the [Layout] found in it goes into the manifest and into two
// links, and an engine is started the same way for all of them:
//
//	vllm serve <root>/current/.pilotlight/model --tokenizer <root>/current/.pilotlight/tokenizer
//
// A constant path also keeps vLLM's compile cache, whose key holds the path.
//
// # The set is the unit
//
// Objects can be overwritten while they are listed and fetched. The manifest
// holds each object's ETag, every GET demands it (If-Match), and an object that
// changed ends the run with ErrIntegrity, unless its bucket keeps versions: then
// the listed one is read to its end. Two listings with the same names,
// sizes and ETags have the same digest and so the same folder, which makes a
// second run, and a roll back to a version still on disk, a matter of one
// listing and one rename.
//
// # A crash at any instant
//
// `current` only ever names a folder that was complete before the link was made.
// On a volume that outlives the pod it was durable too: files are fsynced, all
// at once at the end, then folders deepest first, the staging folder is renamed
// to versions/, that parent is fsynced, and only then is the link replaced. On
// an emptyDir nothing is fsynced; the manifest carries the machine's boot id,
// and after another boot every byte is read before the version is trusted
// (package volume says which volume is which).
//
// What a crash leaves behind is in .staging, where the next run sweeps it, or
// goes on with it: a journal says which ranges are on disk, and each is read and
// compared with its CRC before it is believed.
//
// Whose leftovers are they? Every run holds a flock(2) on a lock file beside
// its staging folder, and the kernel releases it when the process dies, however
// it dies. Process ids would not do: two containers that share the volume have
// different pid namespaces. flock reaches other nodes over NFS, except when it
// is mounted with nolock or local_lock. There another run may take a live folder
// away, and even publish it. A run looks whether it still has its lock before it
// opens a file, before it finishes the folder, and whenever its lease beats;
// without, it leaves everything and begins again.
//
// # Many processes on one root
//
// Pods may share the root, on one node or over NFS. Nothing that must be right
// rests on a lock: staging folders are unique, the target is named by the
// content, the loser of a race discards what it has. The lease (lease.go) only
// keeps eight pods from downloading the same thing eight times; its expiry is
// judged by the observer's own clock, by whether the holder's counter moves.
//
// One root serves one reference (state.go): two would publish over each other.
//
// # What an engine loads, and what stays
//
// `current` moves. An engine opens its files one after the other, so a pod that
// outlives a publication loads through a link of its own, [Frozen], set once.
// [Collector] removes what [Retention] does not keep: never what is current,
// what the pod's own link names, or what a reader holds ([Store.Hold]). Because
// collectors, publishers and readers may meet on one version, each announces
// itself before it looks for the others, and the collector gives way.
//
// A version on disk whose number the pointer names needs one question to the
// registry ([Peeker]) and one listing, which proves that the store still has
// the same content; with Options.Offline not even that.
//
// # Parts
//
// manifest.go, keys.go and plan.go are pure. source.go lists a location and
// objects.go reads its objects; artifacts.go does both for what lies behind a
// tracking server's artifact proxy ([Artifacts]). Package transfer moves them, over
// as many connections as help, and verifies them (package checksum). fetch.go is one
// download: staging.go has its folder, journal.go what is on disk of it, adopt.go
// and reuse.go what need not be downloaded, filters.go what was not chosen.
// proof.go says when a version on disk is believed. store.go owns the root,
// link.go the pod's. init.go puts them together, bring.go is the way to
// a new publication, follow.go that of a pod which only reads. Package agent
// does it all again whenever the pointer moves.
package fetcher
