package transfer

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/fetcher/checksum"
)

// compositeOf computes a composite sum the slow way.
func compositeOf(a checksum.Algorithm, data []byte, parts []int64) checksum.Sum {
	all := a.New()
	for _, n := range parts {
		one := a.New()
		_, _ = one.Write(data[:n])
		_, _ = all.Write(one.Sum(nil))
		data = data[n:]
	}
	return checksum.Sum{Algorithm: a, Value: all.Sum(nil), Parts: len(parts)}
}

func TestEveryKindOfSumIsVerified(t *testing.T) {
	const size = 1<<20 + 777
	data := random(1, size)
	small := data[:5000]
	equal, unequal := []int64{400_000, 400_000, size - 800_000}, []int64{256 << 10, 512 << 10, size - 768<<10}
	tests := map[string]struct {
		data  []byte
		facts Facts
		want  string // the beginning of what is recorded
	}{
		"CRC64NVME":        {data, Facts{Sums: []checksum.Sum{sumOf(checksum.CRC64NVME, data)}}, "crc64nvme:"},
		"CRC32C":           {data, Facts{Sums: []checksum.Sum{sumOf(checksum.CRC32C, data)}}, "crc32c:"},
		"CRC32":            {data, Facts{Sums: []checksum.Sum{sumOf(checksum.CRC32, data)}}, "crc32:"},
		"SHA256":           {data, Facts{Sums: []checksum.Sum{sumOf(checksum.SHA256, data)}}, "sha256:"},
		"MD5":              {data, Facts{Sums: []checksum.Sum{sumOf(checksum.MD5, data)}}, "md5:"},
		"CRCBeatsMD5":      {data, Facts{Sums: []checksum.Sum{sumOf(checksum.MD5, data), sumOf(checksum.CRC32C, data)}}, "crc32c:"},
		"CompositeUneven":  {data, Facts{Sums: []checksum.Sum{compositeOf(checksum.CRC32C, data, unequal)}, PartSizes: unequal}, "crc32c:"},
		"CompositeAnyEnd":  {data, Facts{Sums: []checksum.Sum{compositeOf(checksum.CRC32, data, equal)}, PartSizes: equal}, "crc32:"},
		"CompositeSHA256":  {data, Facts{Sums: []checksum.Sum{compositeOf(checksum.SHA256, data, equal)}, PartSizes: equal}, "sha256:"},
		"PartsUnknown":     {data, Facts{Sums: []checksum.Sum{compositeOf(checksum.CRC32C, data, equal)}}, ""},
		"PartsDoNotAddUp":  {data, Facts{Sums: []checksum.Sum{compositeOf(checksum.CRC32C, data, equal)}, PartSizes: equal[:2]}, ""},
		"Nothing":          {data, Facts{}, ""},
		"SmallMD5":         {small, Facts{Sums: []checksum.Sum{sumOf(checksum.MD5, small)}}, "md5:"},
		"SmallSHA256":      {small, Facts{Sums: []checksum.Sum{sumOf(checksum.SHA256, small)}}, "sha256:"},
		"SmallComposite":   {small, Facts{Sums: []checksum.Sum{compositeOf(checksum.CRC32C, small, []int64{3000, 2000})}, PartSizes: []int64{3000, 2000}}, "crc32c:"},
		"SmallWithNothing": {small, Facts{}, ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := newStore(map[string][]byte{"object": tc.data})
			s.facts["object"] = tc.facts
			d := newDisk()
			report, err := Run(t.Context(), tiny(s, d), objectsOf(s))
			require.NoError(t, err)
			requireOnDisk(t, s, d)
			if tc.want == "" {
				require.Empty(t, report.Sums[0].Algorithm, "what is not proven is not claimed")
				return
			}
			require.Contains(t, report.Sums[0].String(), tc.want)

			other := make([]byte, len(tc.data))
			copy(other, tc.data)
			other[len(other)/2] ^= 4
			s.data["object"] = other
			_, err = Run(t.Context(), tiny(s, newDisk()), objectsOf(s))
			require.ErrorIs(t, err, ErrIntegrity, "one bit differs")
		})
	}
}

// FuzzCut demands that the ranges of any object are a partition of it, that all
// begin where direct writes can, and that none but the last is shorter than the
// least unless a stored part ends there.
func FuzzCut(f *testing.F) {
	f.Add(int64(100<<20), int64(8<<20), uint8(16))
	f.Add(int64(1<<30+1), int64(5_000_000), uint8(255))
	f.Add(int64(1), int64(1), uint8(0))
	f.Fuzz(func(t *testing.T, size, partSize int64, limit uint8) {
		if size <= 0 || size > 8<<30 || partSize < 64<<10 {
			t.Skip("not the size of an object or of a stored part")
		}
		opts := Options{WholeMax: 1}.withDefaults()
		opts.WholeMax = 0 // every object is a large one
		b := newBoard([]Object{{Path: "o", Size: size}}, opts, 256)
		b.limit[large] = int(limit)
		o := b.queue[large][0]
		for off := int64(0); off < size; off += partSize {
			o.verify.ends = append(o.verify.ends, min(off+partSize, size))
		}
		b.opened(o, nil, []span{{0, size}})
		var at int64
		for len(o.todo) > 0 {
			s := b.cut(o)
			require.Equal(t, at, s.off)
			require.Positive(t, s.n)
			require.LessOrEqual(t, s.n, opts.RangeMax)
			require.Zero(t, s.off%bufferAlign)
			at += s.n
		}
		require.Equal(t, size, at)
		require.Zero(t, b.left)
	})
}

func TestRangesEndWhereStoredPartsDo(t *testing.T) {
	p := plan{ends: []int64{8 << 20, 16 << 20, 24 << 20}}
	for _, tc := range []struct{ off, end, want int64 }{
		{0, 20 << 20, 16 << 20},
		{0, 16 << 20, 16 << 20},
		{16 << 20, 20 << 20, 20 << 20},
		{0, 4 << 20, 4 << 20},
	} {
		require.Equal(t, tc.want, p.lastPartEnd(tc.off, tc.end), fmt.Sprint(tc))
	}
	odd := plan{ends: []int64{5_000_000, 10_000_000}}
	require.EqualValues(t, 8<<20, odd.lastPartEnd(0, 8<<20), "direct writes cannot end there")
}
