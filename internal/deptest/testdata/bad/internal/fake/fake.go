// Package fake is linked into a program.
package fake
