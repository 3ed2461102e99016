package transfer

import (
	"cmp"
	"errors"
	"io"
	"slices"

	"github.com/pilotlight-dev/pilotlight/fetcher/checksum"
)

// resumeWhole trusts an object that an earlier run had verified, if its file
// still has the sum.
func (e *engine) resumeWhole(o *object) (bool, error) {
	if e.Journal == nil {
		return false, nil
	}
	want := e.Journal.Left(o.Path).Whole
	if want.Algorithm == "" || want.Parts > 0 || o.Want.Algorithm != "" && !o.Want.Equal(want) {
		return false, nil
	}
	var err error
	if o.file, err = e.Sink.Create(o.Object); err != nil {
		return false, err // the sink names the file
	}
	got, err := readBack(o.file, want.Algorithm, o.Size, nil, false)
	if err != nil || !got.Equal(want) {
		return false, err // the file names itself
	}
	if err := o.file.Finish(); err != nil {
		return false, err // as above
	}
	e.sums[o.index] = got
	e.resumed.Add(o.Size)
	e.Observer.Advanced(o.Size)
	e.board.finished(o)
	return true, nil
}

// resumePieces checks the ranges that an earlier run left, the newest first, and
// returns those that are still there and the gaps between them.
func (e *engine) resumePieces(o *object) (have []checksum.Piece, todo []span, err error) {
	if e.Journal != nil {
		left := e.Journal.Left(o.Path)
		for i := len(left.Pieces) - 1; i >= 0; i-- {
			p := left.Pieces[i]
			if p.Off < 0 || p.Len <= 0 || p.Off+p.Len > o.Size || p.Off%bufferAlign != 0 || overlaps(have, p) {
				continue
			}
			old, now := uint64(0), tally{plan: o.verify, off: p.Off}
			err := readPiece(o.file, p.Off, p.Len, func(b []byte) {
				old = left.Algorithm.Update(old, b)
				now.add(b)
			})
			if err != nil {
				return nil, nil, err // the file names itself
			}
			if old == p.CRC {
				have = append(have, now.pieces...)
				e.resumed.Add(p.Len)
				e.Observer.Advanced(p.Len)
			}
		}
	}
	return have, gaps(have, o.Size), nil
}

func overlaps(have []checksum.Piece, p checksum.Piece) bool {
	return slices.ContainsFunc(have, func(h checksum.Piece) bool { return p.Off < h.Off+h.Len && h.Off < p.Off+p.Len })
}

// gaps returns what is missing of an object; ends that direct writes cannot
// begin at are moved back to ones that they can.
func gaps(have []checksum.Piece, size int64) []span {
	slices.SortFunc(have, func(a, b checksum.Piece) int { return cmp.Compare(a.Off, b.Off) })
	var out []span
	at := int64(0)
	for _, p := range have {
		if p.Off > at {
			out = append(out, span{at, p.Off - at})
		}
		at = p.Off + p.Len
	}
	if at < size {
		out = append(out, span{at, size - at})
	}
	return out
}

// readPiece hands n bytes from off to fn, buffer by buffer. A file that ends
// early hands over less, which then has another sum.
func readPiece(file io.ReaderAt, off, n int64, fn func([]byte)) error {
	buf := make([]byte, min(n, largeBuffer))
	for n > 0 {
		got, err := file.ReadAt(buf[:min(n, int64(len(buf)))], off)
		fn(buf[:got])
		off, n = off+int64(got), n-int64(got)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err // the file names itself
		}
	}
	return nil
}
