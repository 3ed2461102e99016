package fetcher

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
)

// Limits of the safetensors format and of what is parsed.
const (
	maxHeader = 100 << 20 // bytes; the format's own limit
	maxIndex  = 64 << 20
)

// checkModelFiles proves what can be proved cheaply about a downloaded tree:
// the header of every safetensors file describes exactly the bytes that follow
// it, and every shard that an index names is there. It finds uploads that were
// cut and shards that were forgotten, which no checksum of the store can.
func checkModelFiles(root *os.Root, objects []Object) error {
	have := make(map[string]bool, len(objects))
	for _, o := range objects {
		have[o.Path] = true
	}
	for _, o := range objects {
		var err error
		switch {
		case strings.HasSuffix(o.Path, ".safetensors"):
			err = withFile(root, o.Path, func(f *os.File) error { return checkSafetensors(f, o.Size) })
		case strings.HasSuffix(o.Path, ".safetensors.index.json"):
			err = withFile(root, o.Path, func(f *os.File) error { return checkIndex(f, path.Dir(o.Path), have) })
		}
		if err != nil {
			return fmt.Errorf("checking %s: %w", o.Path, err)
		}
	}
	return nil
}

func withFile(root *os.Root, name string, do func(*os.File) error) error {
	f, err := root.Open(name)
	if err != nil {
		return localError(err)
	}
	err = do(f)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

// checkSafetensors compares a file's header with its size: 8 bytes of header
// length (little endian), the JSON header, then the tensors without a gap, so
// size = 8 + header length + the largest end offset.
func checkSafetensors(r io.ReaderAt, size int64) error {
	var prefix [8]byte
	if _, err := r.ReadAt(prefix[:], 0); err != nil {
		return fmt.Errorf("%w: not a safetensors file: %d bytes", ErrIntegrity, size)
	}
	length := binary.LittleEndian.Uint64(prefix[:])
	if length > maxHeader || int64(length) > size-8 {
		return fmt.Errorf("%w: the safetensors header claims %d bytes in a file of %d (a Git LFS pointer, or a cut upload?)", ErrIntegrity, length, size)
	}
	var header map[string]json.RawMessage
	if err := json.NewDecoder(io.NewSectionReader(r, 8, int64(length))).Decode(&header); err != nil {
		return fmt.Errorf("%w: the safetensors header is not JSON: %w", ErrIntegrity, err)
	}
	var end int64
	for name, raw := range header {
		if name == "__metadata__" {
			continue
		}
		var tensor struct {
			Offsets [2]int64 `json:"data_offsets"`
		}
		if err := json.Unmarshal(raw, &tensor); err != nil || tensor.Offsets[0] < 0 || tensor.Offsets[1] < tensor.Offsets[0] {
			return fmt.Errorf("%w: the safetensors header describes the tensor %q wrongly", ErrIntegrity, oneLine(name))
		}
		end = max(end, tensor.Offsets[1])
	}
	if want := 8 + int64(length) + end; want != size {
		return fmt.Errorf("%w: the safetensors header describes %d bytes, the file has %d (a cut upload?)", ErrIntegrity, want, size)
	}
	return nil
}

// checkIndex demands every shard that an index's weight_map names.
func checkIndex(r io.Reader, dir string, have map[string]bool) error {
	var index struct {
		WeightMap map[string]string `json:"weight_map"`
	}
	if err := json.NewDecoder(io.LimitReader(r, maxIndex)).Decode(&index); err != nil {
		return fmt.Errorf("%w: the index is not JSON: %w", ErrIntegrity, err)
	}
	missing := map[string]bool{}
	for _, shard := range index.WeightMap {
		if !have[path.Join(dir, shard)] {
			missing[shard] = true
		}
	}
	if len(missing) == 0 {
		return nil
	}
	names := make([]string, 0, len(missing))
	for name := range missing {
		names = append(names, name)
	}
	slices.Sort(names)
	return fmt.Errorf("%w: %d shards named by the index are missing from the store: %s", ErrIntegrity, len(names), oneLine(strings.Join(names, ", ")))
}
