package fetcher_test

import (
	"bytes"
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/fetcher"
	"github.com/pilotlight-dev/pilotlight/fetcher/volume"
	fake "github.com/pilotlight-dev/pilotlight/internal/fake/s3"
)

// BenchmarkFetch downloads, verifies and publishes eight objects of 32 MiB over
// loopback, fsyncs included.
func BenchmarkFetch(b *testing.B) {
	w := newWorld(b)
	for i := range 8 {
		w.store.PutObject(bucket, fmt.Sprintf("big/%d.bin", i), bytes.Repeat([]byte{byte(i)}, 32<<20), fake.PutOptions{})
	}
	w.point("big")
	b.SetBytes(8 * 32 << 20)
	for b.Loop() {
		b.StopTimer()
		require.NoError(b, os.RemoveAll(w.root))
		b.StartTimer()
		_, err := fetcher.Init(b.Context(), w.options())
		require.NoError(b, err)
	}
}

// BenchmarkReuse finds a version of 5,000 files complete on disk: what a second
// start costs, five pages of listing included.
func BenchmarkReuse(b *testing.B) {
	w := newWorld(b)
	for i := range 5000 {
		w.store.PutObject(bucket, fmt.Sprintf("many/%d/%d.bin", i%100, i), []byte("x"), fake.PutOptions{})
	}
	w.point("many")
	w.mustInit()
	for b.Loop() {
		w.mustInit()
	}
}

// BenchmarkMultipartETags downloads eight objects of 32 MiB that were uploaded in
// parts and have no checksum, without and with the proof by their ETags.
func BenchmarkMultipartETags(b *testing.B) {
	for name, etags := range map[string]bool{"Off": false, "On": true} {
		b.Run(name, func(b *testing.B) {
			w := newWorld(b)
			for i := range 8 {
				w.store.PutObject(bucket, fmt.Sprintf("big/%d.bin", i), bytes.Repeat([]byte{byte(i)}, 32<<20), fake.PutOptions{MultipartParts: 4, NoChecksum: true})
			}
			w.point("big")
			opts := w.options()
			opts.ETags, opts.Durability = etags, volume.Ephemeral
			b.SetBytes(8 * 32 << 20)
			for b.Loop() {
				b.StopTimer()
				require.NoError(b, os.RemoveAll(w.root))
				b.StartTimer()
				_, err := fetcher.Init(b.Context(), opts)
				require.NoError(b, err)
			}
		})
	}
}
