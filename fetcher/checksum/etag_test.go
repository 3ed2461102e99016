package checksum_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/fetcher/checksum"
)

func TestETagOfAnUploadInParts(t *testing.T) {
	digits := strings.Repeat("0a", 16)
	s, ok := checksum.FromMultipartETag(digits + "-7")
	require.True(t, ok)
	require.Equal(t, 7, s.Parts)
	require.Equal(t, checksum.MD5, s.Algorithm)
	for _, other := range []string{"", digits, digits + "-", digits + "-0", digits + "--1", digits + "-10001", digits[2:] + "-7", "x" + digits[1:] + "-7", digits + "-7-7"} {
		_, ok := checksum.FromMultipartETag(other)
		require.False(t, ok, other)
	}
}

func TestUniformParts(t *testing.T) {
	const mib = 1 << 20
	cases := map[string]struct {
		size int64
		n    int
		want []int64
	}{
		"Boto":         {500 * mib, 63, []int64{8 * mib}},
		"RcloneOrGo":   {500 * mib, 100, []int64{5 * mib}},
		"MLflowServer": {500*mib + 1, 51, []int64{10 * mib}},
		"MinIO":        {5000 * mib, 313, []int64{16 * mib}},
		"Several":      {60 * mib, 4, []int64{16 * mib, 15 * mib, 16e6, 20e6}},
		"LikeliestOf":  {10 * mib, 2, []int64{8 * mib, 5 * mib, 8e6, 10e6}},
		"OnePart":      {3, 1, []int64{3}},
		"RoundedUp":    {90_000 * mib, 10_000, []int64{9 * mib}}, // rclone, above 10,000 parts of its usual size
		"NothingFits":  {100 * mib, 90, nil},
		"AnyWholeMiB":  {100*mib + 1, 9, []int64{12 * mib}},
		"TooManyParts": {1 << 50, 20_000, nil},
		"Empty":        {0, 1, nil},
		"Backwards":    {3, 9, nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := checksum.UniformParts(tc.size, tc.n)
			require.Equal(t, tc.want, got)
			for _, p := range got {
				require.EqualValues(t, tc.n, (tc.size+p-1)/p, "as many parts as there are")
			}
		})
	}
}
