// Package tool may not be imported from outside of cmd.
package tool
