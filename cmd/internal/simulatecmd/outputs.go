package simulatecmd

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/pilotlight-dev/pilotlight/cmd/internal/cli"
)

// An output is a file that is opened before a run, so that a run is not lost
// to a folder that does not exist, and written after it. A nil output was not
// asked for.
type output struct {
	file  *os.File
	fresh bool // it was not there before
}

// openOutput leaves what the file holds until it is written.
func openOutput(flag, path string) (*output, error) {
	if path == "" {
		return nil, nil
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644) //nolint:gosec // the user names the file, to look at and to pass on
	fresh := err == nil
	if errors.Is(err, fs.ErrExist) {
		file, err = os.OpenFile(path, os.O_WRONLY, 0) //nolint:gosec // the user names the file
	}
	if err != nil {
		return nil, cli.Usage("%s: %w", flag, err)
	}
	return &output{file, fresh}, nil
}

func (o *output) write(body []byte) error {
	info, err := o.file.Stat()
	if err == nil && info.Mode().IsRegular() {
		err = o.file.Truncate(0)
	}
	if err == nil {
		_, err = o.file.Write(body)
	}
	if err == nil {
		err = o.file.Close()
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", o.file.Name(), err)
	}
	o.file = nil
	return nil
}

// discard ends an output that was not written, and takes away the empty file.
func (o *output) discard() {
	if o == nil || o.file == nil {
		return
	}
	_ = o.file.Close() // nothing of worth was written
	if o.fresh {
		_ = os.Remove(o.file.Name()) // an empty file at worst
	}
}
