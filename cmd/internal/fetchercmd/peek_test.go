package fetchercmd_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/internal/exitcode"
)

func TestARecordedVersionCostsOneGETAndOneLIST(t *testing.T) {
	s := newSystem(t)
	code, stderr := s.init()
	require.Equal(t, exitcode.OK, code, stderr)
	alias, uri, lists := s.registry.Calls("GET", "registered-models/alias"), s.registry.Calls("GET", "model-versions/get-download-uri"), s.store.Count("ListObjectsV2")
	code, stderr = s.init()
	require.Equal(t, exitcode.OK, code, stderr)
	require.Equal(t, 1, s.registry.Calls("GET", "registered-models/alias")-alias)
	require.Equal(t, 0, s.registry.Calls("GET", "model-versions/get-download-uri")-uri)
	require.Equal(t, 1, s.store.Count("ListObjectsV2")-lists)

	f := s.agent("--poll", "1s")
	alias, uri = s.registry.Calls("GET", "registered-models/alias"), s.registry.Calls("GET", "model-versions/get-download-uri")
	f.eventually("polls", func() bool { return s.registry.Calls("GET", "registered-models/alias") >= alias+3 })
	require.Equal(t, uri, s.registry.Calls("GET", "model-versions/get-download-uri"))
	require.Equal(t, lists+1, s.store.Count("ListObjectsV2"))
	f.end()
}
