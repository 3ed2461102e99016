package fetcher_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/fetcher"
)

func TestDigestIsFixed(t *testing.T) {
	objects := []fetcher.Object{
		{Path: "b&<é", Size: 2, ETag: "e2", VersionID: "v2", Checksum: "crc64nvme:xx"},
		{Path: "a", Size: 1, ETag: "e1"},
	}
	// printf '{"subPath":"m","filters":[],"objects":[{"key":"a","size":1,"etag":"e1","versionId":""},{"key":"b&<é","size":2,"etag":"e2","versionId":"v2"}]}' | sha256sum
	const want = "fa6880dc74d24531ab47079cb1f72781f5170a3b7cd013476eeaa6d4eb632480"
	got, err := fetcher.Digest("m", nil, objects)
	require.NoError(t, err)
	require.Equal(t, want, got, "the format of the digest names folders on disk: it must never change")
}

func TestDigestDependsOnWhatPinsTheContent(t *testing.T) {
	base := fetcher.Object{Path: "a", Size: 1, ETag: "e", VersionID: "v", Checksum: "c"}
	digest := func(subPath string, o fetcher.Object) string {
		d, err := fetcher.Digest(subPath, nil, []fetcher.Object{o})
		require.NoError(t, err)
		return d
	}
	change := func(f func(*fetcher.Object)) fetcher.Object { o := base; f(&o); return o }
	for name, o := range map[string]fetcher.Object{
		"Path":      change(func(o *fetcher.Object) { o.Path = "b" }),
		"Size":      change(func(o *fetcher.Object) { o.Size = 2 }),
		"ETag":      change(func(o *fetcher.Object) { o.ETag = "f" }),
		"VersionID": change(func(o *fetcher.Object) { o.VersionID = "w" }),
	} {
		require.NotEqual(t, digest("", base), digest("", o), name)
	}
	require.NotEqual(t, digest("", base), digest("sub", base))
	require.Equal(t, digest("", base), digest("", change(func(o *fetcher.Object) { o.Checksum = "" })), "not every reader may see checksums")
}

func TestCheckKeys(t *testing.T) {
	tests := map[string]struct {
		keys []string
		want map[string]string // key -> reason
	}{
		"Ordinary":  {[]string{"a", "b/c", "b/d/e", "..a", "a..b", "a b", "ü", ".hidden", "b/.pilotlight/x"}, nil},
		"Traversal": {[]string{"../x", "a/../b", "./a", "a/."}, map[string]string{"../x": "component ..", "a/../b": "component ..", "./a": "component .", "a/.": "component ."}},
		"Absolute":  {[]string{"/etc/passwd"}, map[string]string{"/etc/passwd": "absolute"}},
		"Empty":     {[]string{"", "a//b"}, map[string]string{"": "empty name", "a//b": "empty path component"}},
		"Control":   {[]string{"a\x00", "b\n", "c\x7f", "d\u0085"}, map[string]string{"a\x00": "control", "b\n": "control", "c\x7f": "control", "d\u0085": "control"}},
		"Encoding":  {[]string{"a\xff"}, map[string]string{"a\xff": "UTF-8"}},
		"TooLong":   {[]string{"d/" + strings.Repeat("x", 256)}, map[string]string{"d/" + strings.Repeat("x", 256): "255"}},
		"Folder":    {[]string{"a/"}, map[string]string{"a/": "folder with content"}},
		"Reserved":  {[]string{".pilotlight/x", ".pilotlight"}, map[string]string{".pilotlight/x": "reserved", ".pilotlight": "reserved"}},
		"Collision": {[]string{"a", "a/b/c"}, map[string]string{"a/b/c": `"a" is a file as well`}},
		"Twice":     {[]string{"a", "a"}, map[string]string{"a": "twice"}},
		"AllAtOnce": {[]string{"ok", "../x", "/y"}, map[string]string{"../x": "component", "/y": "absolute"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var objects []fetcher.Object
			for _, k := range tc.keys {
				objects = append(objects, fetcher.Object{Path: k})
			}
			err := fetcher.CheckKeys(objects)
			if tc.want == nil {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, fetcher.ErrIntegrity)
			var keyErr *fetcher.KeyError
			require.ErrorAs(t, err, &keyErr)
			require.Len(t, keyErr.Problems, len(tc.want))
			for _, p := range keyErr.Problems {
				require.Contains(t, p.Reason, tc.want[p.Key])
			}
			require.NotContains(t, err.Error(), "\n", "keys are quoted")
		})
	}
}

// FuzzCheckKeys: whatever passes is a local path, stays itself when cleaned,
// and two keys that pass can both be created below one folder.
func FuzzCheckKeys(f *testing.F) {
	for _, seed := range [][2]string{{"a", "a/b"}, {"../x", "y"}, {"a//b", "a"}, {"\x00", "."}, {"a/b", "a/c"}, {".pilotlight", ".pilotlightx"}} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		err := fetcher.CheckKeys([]fetcher.Object{{Path: a}, {Path: b}})
		if err != nil {
			require.ErrorIs(t, err, fetcher.ErrIntegrity)
			return
		}
		for _, key := range []string{a, b} {
			require.True(t, filepath.IsLocal(key))
			require.Equal(t, key, filepath.Clean(key))
			require.False(t, strings.HasPrefix(key+"/", ".pilotlight/"))
		}
		require.NotEqual(t, a, b)
		require.False(t, strings.HasPrefix(a, b+"/") || strings.HasPrefix(b, a+"/"))
	})
}

func TestPlan(t *testing.T) {
	m := fetcher.Manifest{Digest: strings.Repeat("ab", 32), Objects: []fetcher.Object{
		{Path: "a/b/c", Size: 1}, {Path: "big", Size: 5000}, {Path: "a/d", Size: 4096},
	}}
	p := fetcher.NewPlan(m, false)
	var order []string
	for _, o := range p.Fetch {
		order = append(order, o.Path)
	}
	require.Empty(t, cmp.Diff([]string{"big", "a/d", "a/b/c"}, order), "the largest first")
	require.Empty(t, cmp.Diff([]string{"a", "a/b"}, p.Dirs), "parents first")
	require.EqualValues(t, 9097, p.Bytes)
	// blocks of the files: 1 + 2 + 1; one more for each file; 2 folders and 2 of ours
	require.EqualValues(t, (4+3+4)*4096, p.Space)

	again := fetcher.NewPlan(m, true)
	require.True(t, again.Reuse)
	require.Empty(t, again.Fetch)
	require.Zero(t, again.Space)
}

func TestSafetensorsHeader(t *testing.T) {
	good := safetensors("0123456789")
	withHeader := func(length uint64, header, data string) []byte {
		return append(binary.LittleEndian.AppendUint64(nil, length), header+data...)
	}
	metadata := `{"__metadata__":{"format":"pt"},"w":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}`
	tests := map[string]struct {
		file []byte
		ok   bool
	}{
		"Good":       {good, true},
		"Metadata":   {withHeader(uint64(len(metadata)), metadata, "xx"), true},
		"NoTensors":  {withHeader(2, "{}", ""), true},
		"Cut":        {good[:len(good)-1], false},
		"Longer":     {append(bytes.Clone(good), 'x'), false},
		"Tiny":       {[]byte("abc"), false},
		"LFSPointer": {[]byte("version https://git-lfs.github.com/spec/v1\noid sha256:00\n"), false},
		"NotJSON":    {withHeader(3, "abc", ""), false},
		"Overflow":   {withHeader(1<<63, "{}", ""), false},
		"Backwards":  {withHeader(30, `{"w":{"data_offsets":[5,2]}}  `, "xx"), false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			err := fetcher.CheckSafetensors(bytes.NewReader(tc.file), int64(len(tc.file)))
			if tc.ok {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, fetcher.ErrIntegrity)
		})
	}
}

func TestDecodeManifestRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"Garbage": `x`, "Format": `{"v":2}`, "Digest": `{"v":1,"digest":"00","objects":[]}`,
	} {
		_, err := fetcher.DecodeManifest([]byte(text))
		require.True(t, errors.Is(err, fetcher.ErrIntegrity), name)
	}
}
