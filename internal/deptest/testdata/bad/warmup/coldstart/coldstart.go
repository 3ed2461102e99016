// Package coldstart imports testing.
package coldstart

import _ "testing"
