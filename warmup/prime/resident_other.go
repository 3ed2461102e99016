//go:build !linux

package prime

import (
	"errors"
	"os"
)

// resident cannot be told here.
func resident(*os.File, int64) (int64, error) {
	return 0, errors.ErrUnsupported
}

func readAhead(*os.File) {}
