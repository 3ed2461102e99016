package engine

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
)

const (
	// maxHeader is the limit of the safetensors format: 100 MB.
	maxHeader = 100_000_000
	copyChunk = 1 << 20
	bookkeep  = ".pilotlight" // the fetcher's own folder, not part of the model
)

// Model is what a load found.
type Model struct {
	// Version is __metadata__.version of the shards, which all agree; "" when
	// no shard has one.
	Version string
	// Digest is the SHA-256 (hex) over all files in the order of their
	// slash-separated relative paths: path, a zero byte, size (8 bytes, little
	// endian), contents. The folder .pilotlight is left out.
	Digest string
	Files  int
	Bytes  int64
}

// ReadModel reads every byte of every regular file below dir, checks the
// shards and gives the model. It lists dir once and then opens each file by its
// path through dir, as vLLM does. Errors: ErrNoShards, ErrBadShard,
// ErrMixedVersions, those of the file system, and the context's.
func ReadModel(ctx context.Context, dir string) (Model, error) {
	return readModel(ctx, dir, func(context.Context, int, int) error { return nil })
}

// readModel calls pace after each file, with how many are done and in all.
func readModel(ctx context.Context, dir string, pace func(ctx context.Context, done, all int) error) (Model, error) {
	names, err := listFiles(dir)
	if err != nil {
		return Model{}, fmt.Errorf("listing model folder %s: %w", dir, err)
	}
	if !slices.ContainsFunc(names, isShard) {
		return Model{}, fmt.Errorf("loading %s: %w", dir, ErrNoShards)
	}
	m := Model{Files: len(names)}
	digest := sha256.New()
	first := "" // the first shard read
	for i, name := range names {
		version, size, err := readFile(ctx, filepath.Join(dir, filepath.FromSlash(name)), name, digest)
		if err != nil {
			return Model{}, fmt.Errorf("loading %s: %w", name, err)
		}
		m.Bytes += size
		if isShard(name) {
			if first == "" {
				first, m.Version = name, version
			}
			if version != m.Version {
				return Model{}, fmt.Errorf("%w: shard %s says %s, shard %s says %s", ErrMixedVersions, first, known(m.Version), name, known(version))
			}
		}
		if err := pace(ctx, i+1, len(names)); err != nil {
			return Model{}, err
		}
	}
	m.Digest = hex.EncodeToString(digest.Sum(nil))
	return m, nil
}

// listFiles gives the sorted relative paths of the regular files below dir.
// Links to files count as files; links to folders are not followed, except dir
// itself.
func listFiles(dir string) ([]string, error) {
	var names []string
	root := os.DirFS(dir)
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && name == bookkeep:
			return fs.SkipDir
		case d.IsDir():
			return nil
		}
		info, err := fs.Stat(root, name)
		if err == nil && info.Mode().IsRegular() {
			names = append(names, name)
		}
		return err
	})
	slices.Sort(names)
	return names, err
}

func isShard(name string) bool { return path.Ext(name) == ".safetensors" }

// readFile feeds one file to the digest and, if it is a shard, checks it and
// gives its version.
func readFile(ctx context.Context, file, name string, digest hash.Hash) (version string, size int64, err error) {
	f, err := os.Open(file) //nolint:gosec // the path is the folder's own listing
	if err != nil {
		return "", 0, err
	}
	defer f.Close() //nolint:errcheck // the file is only read
	info, err := f.Stat()
	if err != nil {
		return "", 0, err
	}
	size = info.Size()
	prefix := binary.LittleEndian.AppendUint64(append([]byte(name), 0), uint64(size)) //nolint:gosec // sizes are not negative
	_, _ = digest.Write(prefix)                                                       // a hash never fails to write
	r := io.TeeReader(f, digest)
	read := int64(0)
	if isShard(name) {
		if version, read, err = readHeader(r, size); err != nil {
			return "", 0, err
		}
	}
	for read <= size {
		if err := ctx.Err(); err != nil {
			return "", 0, err
		}
		n, err := io.CopyN(io.Discard, r, copyChunk)
		read += n
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return "", 0, err
		}
	}
	if read != size {
		return "", 0, fmt.Errorf("read %d bytes of a file of %d: it changed meanwhile", read, size)
	}
	return version, size, nil
}

// readHeader reads the head of a safetensors file of that size: 8 bytes with
// the length of the JSON (little endian), then the JSON. The tensors it
// describes must fill the rest of the file exactly.
func readHeader(r io.Reader, size int64) (version string, read int64, err error) {
	var length [8]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return "", 0, fmt.Errorf("%w: no header: %w", ErrBadShard, err)
	}
	n := binary.LittleEndian.Uint64(length[:])
	if n > maxHeader || int64(n) > size-8 {
		return "", 0, fmt.Errorf("%w: header of %d bytes in a file of %d", ErrBadShard, n, size)
	}
	text := make([]byte, n)
	if _, err := io.ReadFull(r, text); err != nil {
		return "", 0, fmt.Errorf("%w: header cut short: %w", ErrBadShard, err)
	}
	read = 8 + int64(n)
	var entries map[string]json.RawMessage
	if err := json.Unmarshal(text, &entries); err != nil {
		return "", 0, fmt.Errorf("%w: header is not JSON: %w", ErrBadShard, err)
	}
	var meta map[string]string
	if raw, ok := entries["__metadata__"]; ok {
		if err := json.Unmarshal(raw, &meta); err != nil {
			return "", 0, fmt.Errorf("%w: __metadata__: %w", ErrBadShard, err)
		}
		delete(entries, "__metadata__")
	}
	end, err := lastOffset(entries)
	if err != nil {
		return "", 0, err
	}
	if end != size-read {
		return "", 0, fmt.Errorf("%w: header describes %d bytes of tensors, the file has %d", ErrBadShard, end, size-read)
	}
	return meta["version"], read, nil
}

// lastOffset checks each tensor's data_offsets and gives the largest end.
func lastOffset(tensors map[string]json.RawMessage) (int64, error) {
	end := int64(0)
	for name, raw := range tensors {
		var tensor struct {
			Offsets []int64 `json:"data_offsets"`
		}
		if err := json.Unmarshal(raw, &tensor); err != nil {
			return 0, fmt.Errorf("%w: tensor %q: %w", ErrBadShard, name, err)
		}
		o := tensor.Offsets
		if len(o) != 2 || o[0] < 0 || o[1] < o[0] {
			return 0, fmt.Errorf("%w: tensor %q has data_offsets %v", ErrBadShard, name, o)
		}
		end = max(end, o[1])
	}
	return end, nil
}

// known names an unset version or digest.
func known(s string) string {
	if s == "" {
		return "unknown"
	}
	return s
}
