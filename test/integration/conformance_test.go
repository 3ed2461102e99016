package integration_test

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/fetcher"
	"github.com/pilotlight-dev/pilotlight/fetcher/volume"
	"github.com/pilotlight-dev/pilotlight/registry"
)

// place resolves every reference to one location.
type place string

func (p place) Resolve(_ context.Context, ref registry.Ref) (registry.Resolution, error) {
	loc, err := registry.ParseLocation("s3://" + bucket + "/" + string(p))
	return registry.Resolution{Ref: ref, Name: ref.Name, Version: "1", Location: loc}, err
}

func options(t *testing.T, api fetcher.S3API, prefix string) fetcher.Options {
	t.Helper()
	ref, err := registry.ParseRef("models:/llama@champion")
	require.NoError(t, err)
	return fetcher.Options{
		Ref: ref, Root: filepath.Join(t.TempDir(), "models"), Resolver: place(prefix), Deadline: time.Minute, AnyLayout: true,
		RetryBase: time.Millisecond, RetryMax: 10 * time.Millisecond,
		Connect: func(context.Context, registry.Location) (fetcher.S3API, error) { return api, nil },
	}
}

func random(seed byte, n int) []byte {
	data := make([]byte, n)
	rng := rand.NewChaCha8([32]byte{seed})
	_, _ = rng.Read(data)
	return data
}

// requireTree demands that `current` holds exactly these files.
func requireTree(t *testing.T, root string, want map[string][]byte) {
	t.Helper()
	dir, err := filepath.EvalSymlinks(filepath.Join(root, "current"))
	require.NoError(t, err)
	got := 0
	require.NoError(t, fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || strings.HasPrefix(name, ".pilotlight") {
			return err
		}
		data, err := os.ReadFile(filepath.Join(dir, name)) //nolint:gosec // a file of this test
		require.True(t, bytes.Equal(want[name], data), name)
		got++
		return err
	}))
	require.Equal(t, len(want), got)
}

func TestConformance(t *testing.T) {
	cases := map[string]func(*testing.T, *backend){
		"EverySize": everySize, "AnyKey": anyKey, "ManyPages": manyPages, "Parts": parts,
		"OverwrittenAfterListing": overwritten, "DeletedAfterListing": deleted,
		"WrongSecret": wrongSecret, "NoBucket": noBucket, "RollbackWithoutGets": rollback,
	}
	for server, start := range backends(t) {
		t.Run(server, func(t *testing.T) {
			b := start(t)
			for name, run := range cases {
				t.Run(name, func(t *testing.T) { run(t, b) })
			}
		})
	}
}

func everySize(t *testing.T, b *backend) {
	files := map[string][]byte{}
	for i, size := range []int{0, 1, 4095, 4096, 256 << 10, 8 << 20, 8<<20 + 1, 40<<20 + 4097} {
		name := fmt.Sprintf("file-%d", size)
		files[name] = random(byte(i), size)
		b.put(t, "sizes/"+name, files[name])
	}
	for _, durability := range []volume.Durability{volume.Durable, volume.Ephemeral} {
		opts := options(t, b.client, "sizes")
		opts.Durability = durability
		res, err := fetcher.Init(t.Context(), opts)
		require.NoError(t, err)
		requireTree(t, opts.Root, files)
		require.Zero(t, res.Retries)
		for _, o := range res.Manifest.Objects {
			require.NotEmpty(t, o.Checksum, "%s was verified", o.Path)
		}
	}
}

func anyKey(t *testing.T, b *backend) {
	files := map[string][]byte{}
	for i, name := range []string{
		"a b", "plus+plus", "per%cent", "per%2Fcent", "com,ma", "quest?ion", "ha#sh", "amp&ersand", "semi;colon", "equal=s", "ti~lde",
		"quo'te", `dou"ble`, "brackets[]{}()<>", "umlaut-äöü", "日本語/モデル", "emoji-🔥", "dots..dots", "...", "deep/er/est", "back\\slash", "*star",
	} {
		files[name] = random(byte(i), 100+i)
		b.put(t, "keys/"+name, files[name])
	}
	b.put(t, "keys-sibling/x", []byte("not ours"))
	opts := options(t, b.client, "keys")
	_, err := fetcher.Init(t.Context(), opts)
	require.NoError(t, err)
	requireTree(t, opts.Root, files)
}

func manyPages(t *testing.T, b *backend) {
	files := map[string][]byte{}
	var wg sync.WaitGroup
	for i := range 1100 {
		name := fmt.Sprintf("dir%d/file%d", i%7, i)
		files[name] = []byte(name)
	}
	work := make(chan string)
	for range 16 {
		wg.Go(func() {
			for name := range work {
				b.put(t, "pages/"+name, files[name])
			}
		})
	}
	for name := range files {
		work <- name
	}
	close(work)
	wg.Wait()
	opts := options(t, b.client, "pages")
	_, err := fetcher.Init(t.Context(), opts)
	require.NoError(t, err)
	requireTree(t, opts.Root, files)
}

func parts(t *testing.T, b *backend) {
	files := map[string][]byte{"odd": random(1, 17_000_001), "even": random(2, 24<<20)}
	b.putParts(t, "parts/odd", files["odd"], 5<<20+123)
	b.putParts(t, "parts/even", files["even"], 8<<20)
	opts := options(t, b.client, "parts")
	res, err := fetcher.Init(t.Context(), opts)
	require.NoError(t, err)
	requireTree(t, opts.Root, files)
	for _, o := range res.Manifest.Objects {
		require.Contains(t, o.ETag, "-", "an upload in parts")
		t.Logf("%s: %s", o.Path, o.Checksum)
	}
}

// meddler changes the store right after it was listed. It has the SDK's way to GET
// only, so both ways are tested.
type meddler struct {
	*s3.Client
	meddle func(ctx context.Context) error
}

func (m meddler) ListObjectsV2(ctx context.Context, in *s3.ListObjectsV2Input, opts ...func(*s3.Options)) (*s3.ListObjectsV2Output, error) {
	out, err := m.Client.ListObjectsV2(ctx, in, opts...)
	if err == nil {
		err = m.meddle(ctx)
	}
	return out, err
}

func changed(t *testing.T, b *backend, meddle func(ctx context.Context, key string) error, words string) {
	for name, size := range map[string]int{"small": 1000, "large": 20 << 20} {
		key := fmt.Sprintf("changed-%s/%s", strings.Fields(words)[0], name)
		b.put(t, key, random(1, size))
		opts := options(t, meddler{b.client.Client, func(ctx context.Context) error { return meddle(ctx, key) }}, filepath.Dir(key))
		_, err := fetcher.Init(t.Context(), opts)
		require.ErrorIs(t, err, fetcher.ErrIntegrity, name)
		require.ErrorContains(t, err, words)
		require.NoFileExists(t, filepath.Join(opts.Root, "current"))
		require.NoError(t, b.remove(t.Context(), key))
	}
}

func overwritten(t *testing.T, b *backend) {
	changed(t, b, func(_ context.Context, key string) error {
		b.put(t, key, random(9, 20<<20))
		return nil
	}, "overwritten after it was listed")
}

func deleted(t *testing.T, b *backend) { changed(t, b, b.remove, "disappeared after it was listed") }

func wrongSecret(t *testing.T, b *backend) {
	_, err := fetcher.Init(t.Context(), options(t, client(t, b.url, "wrong"), "sizes"))
	require.ErrorIs(t, err, fetcher.ErrStoreDenied)
	require.NotContains(t, err.Error(), "wrong\"")
}

func noBucket(t *testing.T, b *backend) {
	opts := options(t, b.client, "x")
	opts.Resolver = elsewhere{}
	_, err := fetcher.Init(t.Context(), opts)
	require.ErrorIs(t, err, registry.ErrBroken)
}

type elsewhere struct{}

func (elsewhere) Resolve(_ context.Context, ref registry.Ref) (registry.Resolution, error) {
	loc, err := registry.ParseLocation("s3://no-such-bucket/x")
	return registry.Resolution{Ref: ref, Location: loc}, err
}

func rollback(t *testing.T, b *backend) {
	b.put(t, "roll/1/weights", random(1, 9<<20))
	b.put(t, "roll/2/weights", random(2, 9<<20))
	opts := options(t, b.client, "roll/1")
	_, err := fetcher.Init(t.Context(), opts)
	require.NoError(t, err)
	opts.Resolver = place("roll/2")
	_, err = fetcher.Init(t.Context(), opts)
	require.NoError(t, err)
	opts.Resolver = place("roll/1")
	res, err := fetcher.Init(t.Context(), opts)
	require.NoError(t, err)
	require.True(t, res.Reused)
	require.Zero(t, res.Transfer.Fetched)
	requireTree(t, opts.Root, map[string][]byte{"weights": random(1, 9<<20)})
}
