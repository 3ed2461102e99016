package fetcher_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/fetcher"
	fake "github.com/pilotlight-dev/pilotlight/internal/fake/s3"
)

// Files that a store gives no checksum of, but the ETag of an upload in parts.
func TestFilesAreProvenByTheETagOfTheirParts(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	equal := func(size int, part int64) (parts []int64) {
		for left := int64(size); left > 0; left -= part {
			parts = append(parts, min(part, left))
		}
		return parts
	}
	cases := map[string]struct {
		size   int
		put    fake.PutOptions
		off    bool
		proven bool
		reason string
	}{
		"EightMiB":  {20*mib + 1, fake.PutOptions{PartSizes: equal(20*mib+1, 8*mib)}, false, true, "boto3, the AWS CLI, MLflow's client"},
		"FiveMiB":   {20*mib + 1, fake.PutOptions{PartSizes: equal(20*mib+1, 5*mib)}, false, true, "rclone"},
		"Sixteen":   {20*mib + 1, fake.PutOptions{PartSizes: equal(20*mib+1, 16*mib)}, false, true, "MinIO's client; the second guess"},
		"OnePart":   {9 * mib, fake.PutOptions{MultipartParts: 1}, false, true, ""},
		"Small":     {1000, fake.PutOptions{MultipartParts: 1}, false, true, "read in one request"},
		"OddParts":  {20 * mib, fake.PutOptions{PartSizes: []int64{7 * mib, 7*mib + 1, 6*mib - 1}}, false, false, "nobody can guess them"},
		"Invented":  {20 * mib, fake.PutOptions{ETag: strings.Repeat("0a", 16) + "-3"}, false, false, "R2's are no MD5s"},
		"NotAsked":  {20*mib + 1, fake.PutOptions{PartSizes: equal(20*mib+1, 8*mib)}, true, false, ""},
		"OtherETag": {20 * mib, fake.PutOptions{ETag: "no-hex-3"}, false, false, ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			data := bytes.Repeat([]byte("0123456789abcdef"), tc.size/16+1)[:tc.size]
			tc.put.NoChecksum = true
			w.store.PutObject(bucket, "big/model.bin", data, tc.put)
			w.point("big")
			var log bytes.Buffer
			opts := w.options()
			opts.Logger, opts.AnyLayout, opts.ETags = textLogger(&log), true, !tc.off
			res, err := fetcher.Init(t.Context(), opts)
			require.NoError(t, err)
			sum := res.Manifest.Objects[0].Checksum
			require.Equal(t, tc.proven, strings.HasPrefix(sum, "crc64nvme:"), "%s: %q", tc.reason, sum)
			require.Equal(t, !tc.proven, strings.Contains(log.String(), "only the size was verified"), log.String())
			w.requireCurrent(map[string][]byte{"model.bin": data})
		})
	}
}
