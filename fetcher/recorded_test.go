package fetcher_test

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/fetcher"
	"github.com/pilotlight-dev/pilotlight/registry"
)

// recording is a world whose pointer is an object, which records a digest.
type recording struct {
	*world
	digest string
	fails  error // of the pointer, when it is asked
}

func (p *recording) Resolve(ctx context.Context, ref registry.Ref) (registry.Resolution, error) {
	if p.fails != nil {
		return registry.Resolution{}, p.fails
	}
	res, err := p.world.Resolve(ctx, ref)
	res.Digest = p.digest
	return res, err
}

func (p *recording) options(change ...func(*fetcher.Options)) fetcher.Options {
	p.t.Helper()
	opts := p.world.options()
	var err error
	opts.Ref, err = registry.ParseRef("pointer+s3://weights/pointers/llama")
	require.NoError(p.t, err)
	opts.Resolver = p
	for _, f := range change {
		f(&opts)
	}
	return opts
}

// record moves the pointer as the command does: with the digest of what is there.
func (p *recording) record(change ...func(*fetcher.Options)) {
	p.t.Helper()
	p.digest = ""
	got, err := fetcher.List(p.t.Context(), p.options(change...))
	require.NoError(p.t, err)
	p.digest = got.Manifest.Digest
}

func TestWhatAPointerRecordsIsWhatIsFetched(t *testing.T) {
	t.Parallel()
	sub := func(o *fetcher.Options) { o.SubPath = "model" }
	configs := func(o *fetcher.Options) { o.Include, o.AnyLayout = []string{"config.json"}, true }
	weights := func(o *fetcher.Options) { o.Exclude, o.AnyLayout = []string{"config.json"}, true }
	overwritten := func(p *recording) { p.put("llama/1/model", map[string][]byte{"config.json": []byte(`{"a":1}`)}) }
	more := func(p *recording) { p.put("llama/1/model", map[string][]byte{"extra.txt": []byte("x")}) }
	tests := map[string]struct {
		recorded, fetched func(*fetcher.Options)
		spoil             func(*recording)
		ok                bool
	}{
		"Whole":         {nil, nil, nil, true},
		"Overwritten":   {nil, nil, overwritten, false},
		"Added":         {nil, nil, more, false},
		"SameSubPath":   {sub, sub, nil, true},
		"SameFilters":   {configs, configs, nil, true},
		"PartOfWhole":   {nil, sub, nil, true},
		"SomeOfWhole":   {nil, configs, nil, true},
		"PartOfAnother": {nil, sub, overwritten, false},
		"SomeOfAnother": {nil, weights, overwritten, false},
		"OtherFilters":  {configs, weights, nil, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := &recording{world: newWorld(t)}
			p.put("llama/1/model", model("one"))
			p.point("llama/1")
			options := func(change func(*fetcher.Options)) []func(*fetcher.Options) {
				if change == nil {
					return nil
				}
				return []func(*fetcher.Options){change}
			}
			p.record(options(tc.recorded)...)
			if tc.spoil != nil {
				tc.spoil(p)
				p.point("llama/1")
			}
			_, err := fetcher.Init(t.Context(), p.options(options(tc.fetched)...))
			if tc.ok {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, fetcher.ErrIntegrity)
			require.ErrorContains(t, err, "not those that the pointer records")
			_, err = os.Lstat(filepath.Join(p.root, "current"))
			require.ErrorIs(t, err, os.ErrNotExist, "nothing is published")
			require.Zero(t, p.store.Count("GetObject"), "and nothing was fetched")
		})
	}
}

// What is on disk and is what the pointer records goes on to be served, whatever
// has become of the store.
func TestARecordedVersionOnDiskOutlivesItsStore(t *testing.T) {
	t.Parallel()
	p := &recording{world: newWorld(t)}
	p.put("llama/1", model("one"))
	p.put("llama/2", model("two"))
	p.point("llama/1")
	p.record()
	first := p.digest
	_, err := fetcher.Init(t.Context(), p.options())
	require.NoError(t, err)
	p.point("llama/2")
	p.record()
	_, err = fetcher.Init(t.Context(), p.options())
	require.NoError(t, err)
	p.put("llama/1", map[string][]byte{"config.json": []byte(`{"a":1}`)})
	p.point("llama/1")
	p.digest = first
	res, err := fetcher.Init(t.Context(), p.options())
	require.NoError(t, err)
	require.True(t, res.Reused)
	p.requireCurrent(model("one"))

	// The same version in the same place, moved there again: other files.
	p.record()
	res, err = fetcher.Init(t.Context(), p.options())
	require.NoError(t, err)
	require.Equal(t, p.digest, res.Manifest.Digest)
	require.NotEqual(t, first, res.Manifest.Digest)
}

// So does a part of it, whose digest is not the one of the whole that the pointer
// records: it was compared when it was fetched.
func TestAPartOfARecordedVersionOutlivesItsStore(t *testing.T) {
	t.Parallel()
	for name, part := range map[string]func(*fetcher.Options){
		"Filters": func(o *fetcher.Options) { o.Include, o.AnyLayout = []string{"config.json"}, true },
		"SubPath": func(o *fetcher.Options) { o.SubPath = "model" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := &recording{world: newWorld(t)}
			p.put("llama/1/model", model("one"))
			p.point("llama/1")
			p.record()
			first, err := fetcher.Init(t.Context(), p.options(part))
			require.NoError(t, err)
			p.put("llama/1/model", map[string][]byte{"extra.txt": []byte("x")})
			p.point("llama/1")
			res, err := fetcher.Init(t.Context(), p.options(part))
			require.NoError(t, err)
			require.True(t, res.Reused)
			require.Equal(t, first.Manifest.Digest, res.Manifest.Digest)

			// Another part has never been compared.
			_, err = fetcher.Init(t.Context(), p.options(func(o *fetcher.Options) { o.Exclude, o.AnyLayout = []string{"tokenizer.json"}, true }))
			require.ErrorIs(t, err, fetcher.ErrIntegrity)
			// Nor has this one against what was recorded later.
			p.digest = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
			_, err = fetcher.Init(t.Context(), p.options(part))
			require.ErrorIs(t, err, fetcher.ErrIntegrity)
		})
	}
}

// A pod that is pinned to the place that the pointer names demands what it records
// there as well. Where the pointer names another, or does not answer, it records
// nothing about the pinned place: the pod starts, and its log says so.
func TestAPinnedPlaceIsWhatThePointerRecords(t *testing.T) {
	t.Parallel()
	const uncompared = "not compared with a recorded digest"
	overwritten := func(p *recording) { p.put("llama/1", map[string][]byte{"config.json": []byte(`{"a":1}`)}) }
	fetched := func(p *recording) {
		_, err := fetcher.Init(p.t.Context(), p.options())
		require.NoError(p.t, err)
	}
	tests := map[string]struct {
		before, spoil func(*recording)
		fails         error // of the pointer
		reused, says  bool
		err           error
	}{
		"Recorded":          {},
		"Overwritten":       {spoil: overwritten, err: fetcher.ErrIntegrity},
		"OverwrittenOnDisk": {before: fetched, spoil: overwritten, reused: true},
		"MovedOn":           {spoil: func(p *recording) { overwritten(p); p.point("llama/2"); p.record() }, says: true},
		"Unreachable":       {spoil: overwritten, fails: registry.ErrUnreachable, says: true},
		"Broken":            {spoil: overwritten, fails: registry.ErrBroken, says: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := &recording{world: newWorld(t)}
			p.put("llama/1", model("one"))
			p.put("llama/2", model("two"))
			p.point("llama/1")
			p.record()
			if tc.before != nil {
				tc.before(p)
			}
			if tc.spoil != nil {
				tc.spoil(p)
			}
			p.fails = tc.fails
			var log bytes.Buffer
			res, err := fetcher.Init(t.Context(), p.options(func(o *fetcher.Options) {
				o.Pin, o.Logger = "s3://weights/llama/1", slog.New(slog.NewTextHandler(&log, nil))
			}))
			require.ErrorIs(t, err, tc.err)
			require.Equal(t, tc.reused, res.Reused)
			require.Equal(t, tc.says, strings.Contains(log.String(), uncompared), log.String())
			if tc.err == nil {
				require.Equal(t, "s3://weights/llama/1", res.Manifest.Location)
			}
		})
	}
}
