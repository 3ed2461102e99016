package transfer

import (
	"context"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/fetcher/checksum"
)

// interrupted runs until n requests were made and returns what is left.
func interrupted(t *testing.T, s *store, d *disk, n int) *notes {
	t.Helper()
	s.requests = nil
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	j := &notes{new: map[string]Record{}}
	opts := tiny(s, d)
	opts.Connections, opts.Journal = 1, j
	s.spoil = func(_ context.Context, _ request, body io.Reader) (io.Reader, error) {
		if len(s.requests) > n {
			cancel()
			return nil, errBroken
		}
		return body, nil
	}
	_, err := Run(ctx, opts, objectsOf(s))
	require.ErrorIs(t, err, context.Canceled)
	s.spoil, s.requests = nil, nil
	return &notes{left: j.new, new: map[string]Record{}}
}

func TestAnotherRunFetchesOnlyWhatIsMissing(t *testing.T) {
	s := newStore(map[string][]byte{"large": random(1, 2<<20), "mid": random(2, 500<<10), "small": random(3, 9000), "tiny": random(4, 10)})
	var total int64
	for _, data := range s.data {
		total += int64(len(data))
	}
	for _, n := range []int{1, 4, 8, 10} {
		d := newDisk()
		left := interrupted(t, s, d, n)
		opts := tiny(s, d)
		c := &counting{}
		opts.Journal, opts.Observer = left, c
		report, err := Run(t.Context(), opts, objectsOf(s))
		require.NoError(t, err)
		requireOnDisk(t, s, d)
		require.Positive(t, report.Stats.Resumed, "after %d requests, left %v", n, left.left)
		require.Equal(t, total, report.Stats.Resumed+report.Stats.Fetched, "after %d requests", n)
		require.Equal(t, total, c.bytes)
		var asked int64
		for _, r := range s.requests {
			asked += r.n
		}
		require.Equal(t, report.Stats.Fetched, asked)
	}
}

func TestWhatTheDiskNoLongerHasIsFetchedAgain(t *testing.T) {
	s := newStore(map[string][]byte{"large": random(1, 2<<20), "small": random(3, 9000)})
	spoil := map[string]func(d *disk, j *notes){
		"PieceRotted": func(d *disk, _ *notes) { d.files["large"].data[10] ^= 1 },
		"PieceLost":   func(d *disk, _ *notes) { clear(d.files["large"].data) },
		"JournalLies": func(_ *disk, j *notes) {
			r := j.left["large"]
			r.Pieces = append(r.Pieces, checksum.Piece{Off: -5, Len: 3}, checksum.Piece{Off: 0, Len: 99 << 20}, checksum.Piece{Off: 7, Len: 9})
			j.left["large"] = r
		},
		"OtherContentNow": func(_ *disk, j *notes) { j.left["small"] = Record{Whole: sumOf(checksum.CRC32C, []byte("else"))} },
	}
	for name, do := range spoil {
		t.Run(name, func(t *testing.T) {
			d := newDisk()
			left := interrupted(t, s, d, 6)
			do(d, left)
			opts := tiny(s, d)
			opts.Journal = left
			_, err := Run(t.Context(), opts, objectsOf(s))
			require.NoError(t, err)
			requireOnDisk(t, s, d)
		})
	}
}

func TestAVerifiedObjectNeedsNoRequest(t *testing.T) {
	s := newStore(map[string][]byte{"large": random(1, 1<<20), "small": random(2, 100)})
	d := newDisk()
	j := &notes{new: map[string]Record{}}
	opts := tiny(s, d)
	opts.Journal = j
	_, err := Run(t.Context(), opts, objectsOf(s))
	require.NoError(t, err)
	s.requests = nil
	opts.Journal = &notes{left: j.new, new: map[string]Record{}}
	report, err := Run(t.Context(), opts, objectsOf(s))
	require.NoError(t, err)
	require.Empty(t, s.requests)
	require.EqualValues(t, 1<<20+100, report.Stats.Resumed)
	require.Zero(t, report.Stats.Fetched)
}

func TestPiecesOfAnotherAlgorithmStillCount(t *testing.T) {
	s := newStore(map[string][]byte{"large": random(1, 2<<20)})
	d := newDisk()
	left := interrupted(t, s, d, 4)
	s.facts["large"] = Facts{Sums: []checksum.Sum{sumOf(checksum.CRC32C, s.data["large"])}}
	opts := tiny(s, d)
	opts.Journal = left
	report, err := Run(t.Context(), opts, objectsOf(s))
	require.NoError(t, err)
	require.Positive(t, report.Stats.Resumed)
	require.Equal(t, checksum.CRC32C, report.Sums[0].Algorithm)
	requireOnDisk(t, s, d)
}
