// Package repo holds the tests of the repository itself: that packages import
// what they may, that files say and hold what they should, and that the build
// files name only what exists. Each check is a function from a file system (or
// a list of packages) to a list of problems, so that it is tried on a small
// bad example beside the real tree.
package repo
