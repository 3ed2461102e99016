package apikey

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func hashOf(key string) string {
	h := sha256.Sum256([]byte(key))
	return hex.EncodeToString(h[:])
}

func write(t *testing.T, path, content string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path+".new", []byte(content), 0o600))
	require.NoError(t, os.Rename(path+".new", path))
}

func TestAllowed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys")
	write(t, path, "# the team's\n"+hashOf("sk-one")+"  -\n\n"+strings.ToUpper(hashOf("sk-two"))+" ci\n")
	k, err := Open(path, nil)
	require.NoError(t, err)
	require.True(t, k.Allowed("sk-one"))
	require.True(t, k.Allowed("sk-two"))
	require.False(t, k.Allowed("sk-three"))
	require.False(t, k.Allowed(""))
	require.False(t, k.Allowed(hashOf("sk-one")), "a hash is no key")
}

// The clock is false, the file's times are not: sizes differ, too.
func TestReload(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys")
	write(t, path, hashOf("old"))
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		k, err := Open(path, slog.New(slog.NewTextHandler(&log, nil)))
		require.NoError(t, err)
		write(t, path, hashOf("new")+" x\n")
		time.Sleep(2 * recheck)
		require.True(t, k.Allowed("new"))
		require.False(t, k.Allowed("old"), "a key that was taken out")

		write(t, path, "sk-plain-text-by-mistake\n")
		time.Sleep(2 * recheck)
		require.True(t, k.Allowed("new"), "a broken replacement changes nothing")
		require.Contains(t, log.String(), "line 1")
		require.NotContains(t, log.String(), "sk-plain", "no key is ever logged")
		require.NoError(t, os.Remove(path))
		time.Sleep(2 * recheck)
		require.True(t, k.Allowed("new"))
	})
}

func TestOpenRefuses(t *testing.T) {
	for name, content := range map[string]string{
		"Empty": "", "OnlyComments": "# nothing\n", "PlainKey": "sk-secret", "ShortHash": "abcd", "NotHex": strings.Repeat("g", 64), "TooLarge": strings.Repeat("\n", largest+1),
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "keys")
			write(t, path, content)
			_, err := Open(path, nil)
			require.ErrorIs(t, err, ErrFile)
			require.NotContains(t, err.Error(), "sk-secret")
		})
	}
	_, err := Open(filepath.Join(t.TempDir(), "none"), nil)
	require.ErrorIs(t, err, ErrFile)
}
