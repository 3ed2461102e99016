// Package registry says which model is meant and where its files are.
//
// Three types carry everything, and none of them does I/O:
//
//   - [Ref] is what a user writes: a pointer that moves (models:/llama@champion),
//     a fixed version (models:/llama/7), or a place in a store (s3://bucket/x).
//     [ParseRef] reads it, String writes it back.
//   - [Location] is a place in an object store, a bucket and a prefix, or a folder
//     behind a tracking server's artifact proxy.
//   - [Resolution] is the answer to "what does this Ref mean right now".
//
// A pointer that moves has a [Position], a history of [Entry] values and is moved
// by a [Change]. Two backends keep pointers, with the same methods (Read, Move,
// Versions, Resolve): registry/mlflow, where a pointer is an alias of MLflow's
// registry, and registry/objectpointer, where it is an object in the store. They
// pass one suite, test/conformance/registry. What a history says is computed
// here: [Settle], [Merge] and [Previous].
//
// Errors of every backend are told apart by the sentinels below, so that one
// switch maps them to exit codes.
//
// Trust: a registry's answer is data of somebody else. It may send us only to
// stores this package can name (s3, and r2 under Cloudflare's own domain) or back
// to the server that is configured, and callers check it with [Location.Within]
// against the places they allow.
package registry

import "errors"

// What can be wrong with a pointer or its registry. Resolvers wrap these;
// callers branch with errors.Is.
var (
	// ErrNotFound: the model, version or alias does not exist.
	ErrNotFound = errors.New("not found in the registry")
	// ErrBroken: the pointer exists, but leads nowhere usable (a deleted or
	// failed version, a loop, a malformed location, a place not allowed).
	ErrBroken = errors.New("the registry pointer is broken")
	// ErrPending: the version is still being registered; asking later helps.
	ErrPending = errors.New("the version is not ready yet")
	// ErrUnreachable: the registry did not answer, or not as a registry.
	ErrUnreachable = errors.New("the registry is unreachable")
	// ErrDenied: the registry refused our credentials or our request.
	ErrDenied = errors.New("the registry refused access")
	// ErrUnsupported: the reference or location is of a kind that cannot be read.
	ErrUnsupported = errors.New("unsupported by Pilotlight")
	// ErrSyntax: the text is not a reference at all.
	ErrSyntax = errors.New("not a model reference")
)

// Resolution is what a Ref meant at the moment it was asked.
type Resolution struct {
	Ref Ref
	// Name and Version identify the registered version; both are empty for a
	// fixed place in a store, and Version is for a logged model.
	Name, Version string
	// Location holds the version's files.
	Location Location
	// Digest is the whole SHA-256 of the version's manifest in lower-case hex,
	// where the pointer records it (see Position), else empty.
	Digest string
}

// Fixed returns the resolution of a Ref that names a place itself (s3://,
// r2://) and needs no registry; ok is false for all other kinds.
func Fixed(ref Ref) (res Resolution, ok bool) {
	if ref.Kind != KindObject {
		return Resolution{}, false
	}
	return Resolution{Ref: ref, Location: ref.Location}, true
}
