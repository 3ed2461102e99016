// Package policy is not pure.
package policy

import (
	_ "math"
	_ "math/rand"
	_ "os"
)
