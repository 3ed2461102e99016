// Package helper may import testing.
package helper

import _ "testing"
