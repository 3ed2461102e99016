package transfer

import (
	"cmp"
	"context"
	"crypto/md5" //nolint:gosec // an ETag is made of MD5s
	"errors"
	"io"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/pilotlight-dev/pilotlight/fetcher/checksum"
)

// proveByETag compares an object that is wholly on disk with the ETag of its
// upload in parts, whose sizes have to be guessed. It reads the file back, and
// again for each guess. With ok the content is what was uploaded, and sum is the
// CRC of the whole, which was counted on the way. Without, nothing is known: the
// parts may have been of other sizes, or the ETag may be something else.
func (e *engine) proveByETag(ctx context.Context, o *object) (sum checksum.Sum, ok bool, err error) {
	etag := o.verify.etag
	for _, size := range checksum.UniformParts(o.Size, etag.Parts) {
		start := time.Now()
		got, err := e.partsMD5(ctx, o.file, o.Size, size)
		timed(&e.meter.write, start) // the disk was waited for, or the CPU
		if err != nil {
			return checksum.Sum{}, false, err // the file names itself
		}
		if got.Equal(etag) {
			sum, ok := o.joined()
			return sum, ok, nil
		}
	}
	return checksum.Sum{}, false, nil
}

// joined is the CRC of a whole object, from those of its ranges.
func (o *object) joined() (checksum.Sum, bool) {
	slices.SortFunc(o.pieces, func(a, b checksum.Piece) int { return cmp.Compare(a.Off, b.Off) })
	var at int64
	for _, p := range o.pieces {
		if p.Off != at {
			return checksum.Sum{}, false
		}
		at += p.Len
	}
	a := o.verify.algorithm
	return checksum.Sum{Algorithm: a, Value: a.Bytes(checksum.Join(a, o.pieces))}, at == o.Size
}

// partsMD5 is the sum of the sums of a file's parts. All objects together have as
// many parts under way as there are processors.
func (e *engine) partsMD5(ctx context.Context, file io.ReaderAt, size, part int64) (checksum.Sum, error) {
	n := int((size + part - 1) / part)
	sums := make([]byte, n*md5.Size)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(min(n, cap(e.hashing)))
	for i := range n {
		group.Go(func() error {
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case e.hashing <- struct{}{}:
			}
			defer func() { <-e.hashing }()
			off := int64(i) * part
			sum, err := rangeMD5(ctx, io.NewSectionReader(file, off, min(part, size-off)))
			copy(sums[i*md5.Size:], sum)
			return err // the file names itself
		})
	}
	if err := group.Wait(); err != nil {
		return checksum.Sum{}, err // as above
	}
	all := checksum.MD5.New()
	_, _ = all.Write(sums) // a hash never fails
	return checksum.Sum{Algorithm: checksum.MD5, Value: all.Sum(nil), Parts: n}, nil
}

func rangeMD5(ctx context.Context, in io.Reader) ([]byte, error) {
	h := checksum.MD5.New()
	buf := make([]byte, smallBuffer)
	for ctx.Err() == nil {
		n, err := in.Read(buf)
		_, _ = h.Write(buf[:n]) // a hash never fails
		if errors.Is(err, io.EOF) {
			return h.Sum(nil), nil
		}
		if err != nil {
			return nil, err // the file names itself
		}
	}
	return nil, context.Cause(ctx)
}
