// Package leaf is none.
package leaf

import (
	_ "example.com/bad/cmd/tool"
	_ "example.com/bad/registry"
	_ "example.com/bad/test/helper"
)
