package checksum_test

import (
	"encoding/base64"
	"hash/crc32"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/fetcher/checksum"
)

var crcs = []checksum.Algorithm{checksum.CRC64NVME, checksum.CRC32C, checksum.CRC32}

func TestKnownValues(t *testing.T) {
	// The check values of the CRC catalogue for "123456789".
	for algorithm, want := range map[checksum.Algorithm]uint64{
		checksum.CRC64NVME: 0xae8b14860a799888, checksum.CRC32C: 0xe3069283, checksum.CRC32: 0xcbf43926,
	} {
		require.Equal(t, want, algorithm.Update(0, []byte("123456789")), algorithm)
		h := algorithm.New()
		_, _ = h.Write([]byte("123456789"))
		require.Equal(t, algorithm.Bytes(want), h.Sum(nil), algorithm)
	}
}

// FuzzCombine cuts a text anywhere and demands the sum of the whole.
func FuzzCombine(f *testing.F) {
	f.Add([]byte("hello, world"), uint16(3), uint16(7))
	f.Add([]byte{}, uint16(0), uint16(0))
	f.Add([]byte{0, 0, 0}, uint16(1), uint16(1))
	f.Fuzz(func(t *testing.T, data []byte, a, b uint16) {
		i := int(a) % (len(data) + 1)
		j := i + int(b)%(len(data)-i+1)
		for _, algorithm := range crcs {
			var pieces []checksum.Piece
			for _, cut := range [][2]int{{0, i}, {i, j}, {j, len(data)}} {
				pieces = append(pieces, checksum.Piece{
					Off: int64(cut[0]), Len: int64(cut[1] - cut[0]), CRC: algorithm.Update(0, data[cut[0]:cut[1]]),
				})
			}
			require.Equal(t, algorithm.Update(0, data), checksum.Join(algorithm, pieces), algorithm)
		}
	})
}

func TestCombineOverLengthsThatNobodyReads(t *testing.T) {
	// Appending zeros bit by bit is the slow reference: x^(8n) one byte at a time.
	zeros := make([]byte, 1<<16)
	for _, algorithm := range crcs {
		start := algorithm.Update(0, []byte("seed"))
		want := start
		var crcZeros uint64
		for range 64 {
			want = algorithm.Update(want, zeros)
			crcZeros = algorithm.Update(crcZeros, zeros)
		}
		require.Equal(t, want, checksum.Combine(algorithm, start, crcZeros, 64<<16), algorithm)
	}
}

func TestComposite(t *testing.T) {
	data := make([]byte, 10_000)
	for i := range data {
		data[i] = byte(rand.N(256)) //nolint:gosec // any bytes
	}
	parts := []int64{4000, 4000, 2000}
	piece := func(from, to int64) checksum.Piece {
		return checksum.Piece{Off: from, Len: to - from, CRC: checksum.CRC32C.Update(0, data[from:to])}
	}
	// The reference: the CRC of the parts' CRCs.
	reference := crc32.New(crc32.MakeTable(crc32.Castagnoli))
	for _, p := range [][2]int64{{0, 4000}, {4000, 8000}, {8000, 10_000}} {
		_, _ = reference.Write(checksum.CRC32C.Bytes(checksum.CRC32C.Update(0, data[p[0]:p[1]])))
	}
	tests := map[string]struct {
		pieces []checksum.Piece
		ok     bool
	}{
		"PieceIsPart": {[]checksum.Piece{piece(0, 4000), piece(4000, 8000), piece(8000, 10_000)}, true},
		"Finer":       {[]checksum.Piece{piece(0, 1000), piece(1000, 4000), piece(4000, 8000), piece(8000, 9000), piece(9000, 10_000)}, true},
		"Straddling":  {[]checksum.Piece{piece(0, 5000), piece(5000, 10_000)}, false},
		"Missing":     {[]checksum.Piece{piece(0, 4000), piece(4000, 8000)}, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			sum, ok := checksum.Composite(checksum.CRC32C, tc.pieces, parts)
			require.Equal(t, tc.ok, ok)
			if ok {
				require.Equal(t, "crc32c:"+base64.StdEncoding.EncodeToString(reference.Sum(nil))+"-3", sum.String())
			}
		})
	}
}

func TestParse(t *testing.T) {
	for _, text := range []string{"crc64nvme:AAAAAAAAAAA=", "crc32c:AAAAAA==-12", "md5:1B2M2Y8AsgTpgAmY7PhCfg=="} {
		sum, err := checksum.Parse(text)
		require.NoError(t, err)
		require.Equal(t, text, sum.String())
	}
	for _, text := range []string{"", "crc32c", "crc32c:AAAA", "crc9:AAAAAA==", "crc32c:AAAAAA==-0", "crc32c:AAAAAA==-x", "sha256:!"} {
		_, err := checksum.Parse(text)
		require.ErrorIs(t, err, checksum.ErrUnknown, text)
	}
}

func TestETagIsAnMD5OnlyInOnePart(t *testing.T) {
	sum, ok := checksum.FromETag("d41d8cd98f00b204e9800998ecf8427e")
	require.True(t, ok)
	require.Equal(t, checksum.MD5, sum.Algorithm)
	for _, etag := range []string{"", "d41d8cd98f00b204e9800998ecf8427e-2", "W/x", "d41d8cd9"} {
		_, ok := checksum.FromETag(etag)
		require.False(t, ok, etag)
	}
}

func TestAnEmptySumEqualsNothing(t *testing.T) {
	require.False(t, checksum.Sum{}.Equal(checksum.Sum{}), "unknown is not equal to unknown")
}
