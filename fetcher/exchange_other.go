//go:build !linux

package fetcher

import "errors"

// exchange is available on Linux only.
func (s *Store) exchange(_, _ string) error { return errors.ErrUnsupported }
