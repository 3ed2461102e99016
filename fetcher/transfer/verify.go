package transfer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash"
	"io"
	"slices"
	"sort"
	"time"

	"github.com/pilotlight-dev/pilotlight/fetcher/checksum"
	"github.com/pilotlight-dev/pilotlight/internal/retry"
)

// plan is how one object will be verified.
type plan struct {
	// algorithm is that of the ranges' CRCs.
	algorithm checksum.Algorithm
	// want is what the object is compared with; zero if there is nothing.
	want checksum.Sum
	// parts are the sizes of the stored parts and ends where they end, if known.
	parts, ends []int64
	// etag may prove what want does not; zero if it cannot.
	etag checksum.Sum
}

// newPlan chooses the strongest proof there is: a sum that the caller brought,
// else a CRC of the whole, which costs nothing more, else a SHA-256, else a
// composite CRC whose parts are known, else an MD5.
func newPlan(o Object, f Facts) plan {
	p := plan{algorithm: checksum.CRC64NVME, etag: f.ETag}
	var total int64
	for _, size := range f.PartSizes {
		total += size
		p.ends = append(p.ends, total)
	}
	if total == o.Size && total > 0 {
		p.parts = f.PartSizes
	} else {
		p.ends = nil
	}
	rank := func(s checksum.Sum) int {
		whole, knownParts := s.Parts == 0, len(p.parts) == s.Parts
		switch {
		case whole && s.Algorithm.Combines():
			return slices.Index([]checksum.Algorithm{checksum.CRC64NVME, checksum.CRC32C, checksum.CRC32}, s.Algorithm)
		case whole && s.Algorithm == checksum.SHA256:
			return 3
		case !whole && knownParts && s.Algorithm.Combines():
			return 4
		case !whole && knownParts && s.Algorithm == checksum.SHA256:
			return 5
		case whole && s.Algorithm == checksum.MD5:
			return 6
		}
		return 7
	}
	best := 7
	for _, s := range f.Sums {
		if r := rank(s); r < best {
			best, p.want = r, s
		}
	}
	if o.Want.Algorithm != "" {
		p.want = o.Want
	}
	if p.want.Algorithm.Combines() {
		p.algorithm = p.want.Algorithm
	}
	return p
}

// composite reports whether CRCs have to be kept apart at the ends of parts.
func (p plan) composite() bool { return p.want.Parts > 0 && p.want.Algorithm.Combines() }

// readsBack reports whether the sum needs the bytes in their order.
func (p plan) readsBack() bool { return p.want.Algorithm != "" && !p.want.Algorithm.Combines() }

// lastPartEnd moves the end of a range back to that of a stored part, if there
// is one inside that direct writes can end at.
func (p plan) lastPartEnd(off, end int64) int64 {
	for i := sort.Search(len(p.ends), func(i int) bool { return p.ends[i] > end }) - 1; i >= 0 && p.ends[i] > off; i-- {
		if p.ends[i]%bufferAlign == 0 {
			return p.ends[i]
		}
	}
	return end
}

// tally computes the CRCs of bytes that come in their order.
type tally struct {
	plan   plan
	off    int64 // of the next byte
	pieces []checksum.Piece
	whole  hash.Hash // in their order as well, when a whole object's sum needs it
}

func (t *tally) add(p []byte) {
	if t.whole != nil {
		_, _ = t.whole.Write(p) // a hash never fails
	}
	for len(p) > 0 {
		n := int64(len(p))
		if t.plan.composite() {
			i := sort.Search(len(t.plan.ends), func(i int) bool { return t.plan.ends[i] > t.off })
			if i < len(t.plan.ends) {
				n = min(n, t.plan.ends[i]-t.off)
			}
			if i > 0 && t.plan.ends[i-1] == t.off {
				t.pieces = append(t.pieces, checksum.Piece{Off: t.off})
			}
		}
		if len(t.pieces) == 0 {
			t.pieces = append(t.pieces, checksum.Piece{Off: t.off})
		}
		last := &t.pieces[len(t.pieces)-1]
		last.CRC = t.plan.algorithm.Update(last.CRC, p[:n])
		last.Len += n
		t.off += n
		p = p[n:]
	}
}

// sum computes the sum of an object that is wholly on disk, to be compared with
// plan.want. ordered is the running hash of an object that came in its order.
func (o *object) sum(ordered hash.Hash) (checksum.Sum, error) {
	want := o.verify.want
	switch {
	case want.Algorithm == "":
		return checksum.Sum{}, nil
	case ordered != nil && want.Parts == 0:
		return checksum.Sum{Algorithm: want.Algorithm, Value: ordered.Sum(nil)}, nil
	case o.verify.readsBack():
		return readBack(o.file, want.Algorithm, o.Size, o.verify.parts, want.Parts > 0)
	}
	slices.SortFunc(o.pieces, func(a, b checksum.Piece) int { return cmp.Compare(a.Off, b.Off) })
	var at int64
	for _, p := range o.pieces {
		if p.Off != at {
			return checksum.Sum{}, fmt.Errorf("%w: the ranges do not add up at byte %d", ErrIntegrity, at)
		}
		at += p.Len
	}
	if at != o.Size {
		return checksum.Sum{}, fmt.Errorf("%w: the ranges end at byte %d of %d", ErrIntegrity, at, o.Size)
	}
	if want.Parts > 0 {
		if s, ok := checksum.Composite(want.Algorithm, o.pieces, o.verify.parts); ok {
			return s, nil
		}
		return checksum.Sum{}, fmt.Errorf("%w: the ranges do not add up to the %d parts", ErrIntegrity, want.Parts)
	}
	crc := checksum.Join(want.Algorithm, o.pieces)
	return checksum.Sum{Algorithm: want.Algorithm, Value: want.Algorithm.Bytes(crc)}, nil
}

// readBack reads a file for a sum that needs the order: of the whole, or of the
// parts' sums.
func readBack(file io.ReaderAt, a checksum.Algorithm, size int64, parts []int64, composite bool) (checksum.Sum, error) {
	if !composite {
		parts = []int64{size}
	}
	buf := make([]byte, largeBuffer)
	all, off := a.New(), int64(0)
	for _, n := range parts {
		one := a.New()
		if _, err := io.CopyBuffer(struct{ io.Writer }{one}, io.NewSectionReader(file, off, n), buf); err != nil {
			return checksum.Sum{}, err // the file names itself
		}
		off += n
		if !composite {
			return checksum.Sum{Algorithm: a, Value: one.Sum(nil)}, nil
		}
		_, _ = all.Write(one.Sum(nil)) // a hash never fails
	}
	return checksum.Sum{Algorithm: a, Value: all.Sum(nil), Parts: len(parts)}, nil
}

// complete verifies an object whose last byte is on disk and closes it, or has
// all of it fetched again.
func (e *engine) complete(ctx context.Context, o *object, c class, ordered hash.Hash) error {
	start := time.Now()
	got, err := o.sum(ordered)
	if o.verify.readsBack() && ordered == nil {
		timed(&e.meter.write, start) // the disk was waited for
	}
	if err != nil {
		return err // the caller names the object
	}
	want := o.verify.want
	if want.Algorithm == "" {
		if got, err = e.proveOtherwise(ctx, o); err != nil {
			return err // as above
		}
	} else if !got.Equal(want) {
		err := fmt.Errorf("%w: %w: the %s of the content is %s, the store says %s", ErrIntegrity, ErrDoubtful, want.Algorithm, got, want)
		return e.fetchAgain(ctx, o, c, err)
	}
	if err := o.file.Finish(); err != nil {
		return err // as above
	}
	e.sums[o.index] = got
	if e.Journal != nil {
		if err := e.Journal.Whole(o.Path, got, o.Size); err != nil {
			return err // as above
		}
	}
	e.board.finished(o)
	return nil
}

// proveOtherwise does what can be done for an object without a usable checksum,
// and returns the zero Sum if it is not proven.
func (e *engine) proveOtherwise(ctx context.Context, o *object) (checksum.Sum, error) {
	why := "the store gives no usable checksum: only the size was verified"
	if o.verify.etag.Parts > 0 && e.ETags {
		sum, ok, err := e.proveByETag(ctx, o)
		if ok || err != nil {
			return sum, err
		}
		why = "the store gives no checksum, and its ETag is not that of parts of a usual size: only the size was verified"
	}
	e.Logger.WarnContext(ctx, why, "object", o.Path)
	return checksum.Sum{}, nil
}

// fetchAgain puts an object that did not verify back to where it began.
func (e *engine) fetchAgain(ctx context.Context, o *object, c class, cause error) error {
	if o.failed+1 >= maxDoubtful {
		return cause
	}
	e.took(o.Path, cause)
	e.advance(-o.Size)
	if err := retry.Sleep(ctx, e.Backoff.Wait(o.failed+1)); err != nil {
		return errors.Join(cause, err)
	}
	e.board.again(o, c)
	return nil
}
