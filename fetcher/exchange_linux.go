package fetcher

import (
	"errors"
	"fmt"
	"os"
	"path"

	"golang.org/x/sys/unix"

	"github.com/pilotlight-dev/pilotlight/fetcher/volume"
)

// exchange swaps two folders below the root in one step (renameat2 with
// RENAME_EXCHANGE: ext4, xfs, btrfs, tmpfs).
func (s *Store) exchange(a, b string) (err error) {
	var dirs [2]*os.File
	for i, name := range []string{a, b} {
		if dirs[i], err = s.root.Open(path.Dir(name)); err != nil {
			return fmt.Errorf("opening the folder of %s: %w", name, err)
		}
		defer func() { err = errors.Join(err, dirs[i].Close()) }()
	}
	err = volume.Repeat(func() error {
		return unix.Renameat2(int(dirs[0].Fd()), path.Base(a), int(dirs[1].Fd()), path.Base(b), unix.RENAME_EXCHANGE)
	})
	if err != nil {
		return fmt.Errorf("exchanging %s and %s: %w", a, b, err)
	}
	return nil
}
