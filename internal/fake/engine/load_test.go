package engine_test

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/internal/fake/engine"
)

func TestAnswersSayWhichVersionServes(t *testing.T) {
	dir := write(t, map[string][]byte{
		"config.json":      []byte("{}"),
		"a.safetensors":    shard("1", 10),
		"b.safetensors":    shard("1", 3<<20), // more than one chunk
		"sub/tokens.model": []byte("t"),
	})
	link := filepath.Join(t.TempDir(), "current")
	require.NoError(t, os.Symlink(dir, link))
	synctest.Test(t, func(t *testing.T) {
		e := engine.New(engine.Config{ModelDir: link})
		require.Empty(t, e.LoadedVersion())
		require.Equal(t, http.StatusServiceUnavailable, ask(t.Context(), e, 1).Code, "nothing loaded yet")

		require.NoError(t, e.Load(t.Context()))
		require.Equal(t, "1", e.LoadedVersion())
		require.Len(t, e.LoadedDigest(), 64)

		w := ask(t.Context(), e, 2)
		got := decode(t, w.Body)
		require.True(t, strings.HasPrefix(got.Choices[0].Text, "llama version 1 says: "), "%q", got.Choices[0].Text)
		require.Equal(t, "version=1;digest="+e.LoadedDigest()[:12], got.SystemFingerprint)
		require.Equal(t, "1", w.Header().Get("X-Model-Version"))
		require.Equal(t, "1", send(t.Context(), e, http.MethodGet, "/v1/models", "").Header().Get("X-Model-Version"))
	})
}

// The digest is written down here once more, from its description.
func TestDigestCoversPathsAndContents(t *testing.T) {
	files := map[string][]byte{"b.safetensors": shard("1", 10), "a/x.json": []byte("{}"), "a.txt": {}}
	want := sha256.New()
	for _, name := range []string{"a.txt", "a/x.json", "b.safetensors"} {
		want.Write([]byte(name + "\x00"))
		want.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(files[name]))))
		want.Write(files[name])
	}
	base, err := engine.ReadModel(t.Context(), write(t, files))
	require.NoError(t, err)
	require.Equal(t, engine.Model{
		Version: "1", Digest: hex.EncodeToString(want.Sum(nil)), Files: 3, Bytes: int64(2 + len(files["b.safetensors"])),
	}, base)

	tests := map[string]struct {
		change map[string][]byte
		same   bool
	}{
		"BookkeepingIsLeftOut":     {map[string][]byte{".pilotlight/manifest.json": []byte("{}")}, true},
		"OnlyTheFoldersOwnIsThat":  {map[string][]byte{"a/.pilotlight/x": []byte("{}")}, false},
		"ContentCounts":            {map[string][]byte{"a/x.json": []byte("[]")}, false},
		"AnEmptyFileCounts":        {map[string][]byte{"c.txt": {}}, false},
		"TheLastByteOfAShardCount": {map[string][]byte{"b.safetensors": append(shard("1", 10)[:len(shard("1", 10))-1], 'x')}, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			changed := maps.Clone(files)
			maps.Copy(changed, tc.change)
			got, err := engine.ReadModel(t.Context(), write(t, changed))
			require.NoError(t, err)
			require.Equal(t, tc.same, got.Digest == base.Digest)
		})
	}
}

func TestBadModelFoldersAreRefused(t *testing.T) {
	tests := map[string]struct {
		files map[string][]byte
		want  error
		text  string
	}{
		"MixedVersions": {
			map[string][]byte{"a.safetensors": shard("1", 4), "b.safetensors": shard("2", 4)},
			engine.ErrMixedVersions, "mixed versions: shard a.safetensors says 1, shard b.safetensors says 2",
		},
		"VersionInOneShardOnly": {
			map[string][]byte{"a.safetensors": shard("", 4), "b.safetensors": shard("2", 4)},
			engine.ErrMixedVersions, "shard a.safetensors says unknown",
		},
		"NoShards":        {map[string][]byte{"config.json": []byte("{}")}, engine.ErrNoShards, ""},
		"EmptyShard":      {map[string][]byte{"a.safetensors": {}}, engine.ErrBadShard, "no header"},
		"CutInTheHeader":  {map[string][]byte{"a.safetensors": shard("1", 4)[:40]}, engine.ErrBadShard, "in a file of 40"},
		"CutInTheTensors": {map[string][]byte{"a.safetensors": shard("1", 40)[:len(shard("1", 40))-1]}, engine.ErrBadShard, "describes 40 bytes of tensors, the file has 39"},
		"BytesLeftOver":   {map[string][]byte{"a.safetensors": append(shard("1", 4), "more"...)}, engine.ErrBadShard, "describes 4 bytes of tensors, the file has 8"},
		"HugeHeader":      {map[string][]byte{"a.safetensors": []byte("\xff\xff\xff\xff\xff\xff\xff\xffxx")}, engine.ErrBadShard, ""},
		"NotJSON":         {map[string][]byte{"a.safetensors": rawShard("weights!", 0)}, engine.ErrBadShard, "not JSON"},
		"MetadataNotText": {map[string][]byte{"a.safetensors": rawShard(`{"__metadata__":{"version":1}}`, 0)}, engine.ErrBadShard, "__metadata__"},
		"NegativeOffset":  {map[string][]byte{"a.safetensors": rawShard(`{"w":{"data_offsets":[-1,4]}}`, 4)}, engine.ErrBadShard, "data_offsets"},
		"OffsetsReversed": {map[string][]byte{"a.safetensors": rawShard(`{"w":{"data_offsets":[4,0]},"v":{"data_offsets":[0,4]}}`, 4)}, engine.ErrBadShard, "data_offsets"},
		"NoOffsets":       {map[string][]byte{"a.safetensors": rawShard(`{"w":{}}`, 0)}, engine.ErrBadShard, "data_offsets"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			err := engine.New(engine.Config{ModelDir: write(t, tc.files)}).Run(t.Context(), "127.0.0.1:0")
			require.ErrorIs(t, err, tc.want)
			require.ErrorContains(t, err, tc.text)
		})
	}
	err := engine.New(engine.Config{ModelDir: filepath.Join(t.TempDir(), "none")}).Load(t.Context())
	require.ErrorIs(t, err, os.ErrNotExist)
}

// vLLM opens each file through the link it was given, so a link swapped in the
// middle of a load mixes two versions. This engine notices.
func TestLinkSwappedDuringTheLoadMixesVersions(t *testing.T) {
	one := write(t, map[string][]byte{"a.safetensors": shard("1", 4), "b.safetensors": shard("1", 4)})
	two := write(t, map[string][]byte{"a.safetensors": shard("2", 4), "b.safetensors": shard("2", 4)})
	link := filepath.Join(t.TempDir(), "current")
	require.NoError(t, os.Symlink(one, link))
	synctest.Test(t, func(t *testing.T) {
		e := engine.New(engine.Config{ModelDir: link, StartDelay: time.Minute})
		loaded := make(chan error, 1)
		go func() { loaded <- e.Load(t.Context()) }()
		time.Sleep(20 * time.Second) // the first of two files is read, the second is due at 30 s
		require.NoError(t, os.Symlink(two, link+".new"))
		require.NoError(t, os.Rename(link+".new", link))
		require.ErrorIs(t, <-loaded, engine.ErrMixedVersions)
	})
}

func TestStartTakesItsTime(t *testing.T) {
	dir := write(t, map[string][]byte{"a.safetensors": shard("1", 4), "b.json": []byte("{}"), "c.json": []byte("{}")})
	for name, c := range map[string]engine.Config{
		"WithWeights":    {ModelDir: dir},
		"WithoutWeights": {},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c.StartDelay, c.StartJitter = time.Minute, 40*time.Second
				c.Rand = func() float64 { return 0.5 }
				begin := time.Now()
				require.NoError(t, engine.New(c).Load(t.Context()))
				require.Equal(t, 80*time.Second, time.Since(begin))
			})
		})
	}
}

func TestStartsThatFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		err := engine.New(engine.Config{StartDelay: time.Minute, FailStart: true}).Run(t.Context(), "127.0.0.1:0")
		require.ErrorIs(t, err, engine.ErrStartFailed)
		require.Equal(t, time.Minute, time.Since(begin))

		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		hung := engine.New(engine.Config{StartDelay: time.Minute, HangStart: true})
		require.NoError(t, hung.Run(ctx, "127.0.0.1:0"), "only its context ends it, and that is no failure")
		require.Equal(t, time.Minute+time.Hour, time.Since(begin))
		select {
		case <-hung.Ready():
			t.Error("a hanging engine became ready")
		default:
		}
	})
}
