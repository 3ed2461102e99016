// Package transfer moves objects from a store to files: in ranges, over as many
// connections as help, each byte checked, each failure repeated by itself.
//
// [Run] is the whole of it. What a store is ([Source]), where files are ([Sink])
// and what an earlier run left ([Journal]) is the caller's, so the package knows
// neither S3 nor folders.
//
// # Work
//
// An object up to Options.WholeMax is one request. A larger one is asked about
// first (its checksum, its parts) and then read in ranges, cut when a connection
// is free for one: about a second's worth, between RangeMin and RangeMax, and
// never across the end of a stored part. The largest objects come first, and
// ranges become shorter towards the end, so that no connection is left alone with
// a long one.
//
// # How many at once
//
// Ranges of large objects begin at 16 connections. Every quarter second the rate
// is looked at: while more connections bring more bytes they are doubled, else
// taken back. Small objects wait for round trips rather than for bytes and begin
// at the ceiling. A store that says "slow down" (503, 429) halves both. The
// ceiling is Options.Connections, less if the memory budget cannot pay for them:
// a connection costs its buffer and up to 2 MiB that the kernel holds for its
// socket, which a memory cgroup is charged for.
//
// # Proof
//
// Each range's CRC is computed as its buffers are written and kept in the
// journal. When the last range of an object is there, the CRCs are combined and
// compared with what the store says of the whole object, in this order: a sum
// the caller brought, a CRC of the whole, a SHA-256, a composite CRC by its
// parts, an MD5. A mismatch fetches the object again, three times in all. With
// nothing to compare, the size is all that is proven, and the log says so.
//
// # When it goes wrong
//
// A range that breaks goes on where it was, after a wait with jitter, or the
// wait that the store asked for. A connection that brings nothing for
// Options.Stall is given up. Errors are of the classes below and say whether
// another attempt can help; the first that cannot ends the run.
package transfer
