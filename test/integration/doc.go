// Package integration runs one conformance suite of the fetcher against several
// S3 servers: the one in memory that all other tests use, and versitygw, an
// independent one. What the fetcher believes of S3 must hold on both, or the
// first is a mirror of our own mistakes.
//
// `make integration` builds versitygw from its module (test/tools/versitygw) and
// hands over its path in PILOTLIGHT_VERSITYGW; without that its half is skipped.
// Everything stays on loopback.
package integration
