// Package registry has types.
package registry
