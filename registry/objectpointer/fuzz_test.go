package objectpointer

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/registry"
)

func FuzzDecode(f *testing.F) {
	digest := strings.Repeat("0a", 32)
	for _, seed := range []string{
		`{"v":1,"version":"1","location":"s3://weights/x","digest":"` + digest + `","history":[{"to":"1","at":"2026-03-01T10:00:00Z","action":"init","state":"done"}]}`,
		`{"v":1,"version":"ü","location":"r2://bucket@acc.r2.cloudflarestorage.com/x","digest":"` + digest + `"}`,
		`{"v":2}`, `{"v":1}`, `[]`, ``, `{"v":1,"version":"1","location":"s3://weights/x","digest":"` + digest + `","history":7}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		pos, err := decode(data)
		if err != nil {
			require.True(t, errors.Is(err, registry.ErrBroken) || errors.Is(err, registry.ErrUnsupported), "every error has a class: %v", err)
			return
		}
		require.NoError(t, check(pos.Version, pos.Location, pos.Digest))
		require.LessOrEqual(t, len(pos.History), MaxHistory)
		again, err := encode(pos)
		require.NoError(t, err)
		require.LessOrEqual(t, len(again), MaxSize)
		back, err := decode(again)
		require.NoError(t, err)
		pos.HistoryErr = nil // what could not be read is not written
		require.Empty(t, cmp.Diff(pos, back))
	})
}

// The longest of everything, all of it escaped, is within the bound.
func TestTheLongestPointerIsReadable(t *testing.T) {
	loc := registry.Location{Scheme: "s3", Bucket: "bucket", Prefix: strings.Repeat("<", maxLocation-len("s3://bucket/"))}
	pos := registry.Position{Ref: registry.Ref{Kind: registry.KindPointer, Location: loc}, Version: strings.Repeat("<", MaxVersion), Location: loc, Digest: strings.Repeat("0a", 32)}
	entry := registry.NewEntry(registry.Change{
		To: pos.Version, Location: loc, Digest: pos.Digest, Message: strings.Repeat("<", registry.MaxMessage), By: strings.Repeat("<", registry.MaxBy),
	}, pos.Version, time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC), registry.StateDone)
	for range MaxHistory + 50 {
		pos.History = append(pos.History, entry)
	}
	data, err := encode(pos)
	require.NoError(t, err)
	require.LessOrEqual(t, len(data), MaxSize)
	back, err := decode(data)
	require.NoError(t, err)
	require.NoError(t, back.HistoryErr)
	require.GreaterOrEqual(t, len(back.History), 10)
	require.Equal(t, entry, back.History[0])
}
