package fetchercmd_test

import (
	"context"
	"encoding/base64"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/fetcher"
	"github.com/pilotlight-dev/pilotlight/internal/exitcode"
	fakes3 "github.com/pilotlight-dev/pilotlight/internal/fake/s3"
	"github.com/pilotlight-dev/pilotlight/internal/s3conf"
	"github.com/pilotlight-dev/pilotlight/registry"
	"github.com/pilotlight-dev/pilotlight/registry/objectpointer"
)

const livePointer = "pointer+s3://weights/pointers/llama"

// point makes the pointer object name a version, and takes the registry away.
func (s *system) point(version string) {
	s.t.Helper()
	delete(s.env, "MLFLOW_TRACKING_URI")
	store, err := s3conf.New(s.t.Context(), s3conf.Options{Endpoint: s.env["MLFLOW_S3_ENDPOINT_URL"], AccessKeyID: keyID, SecretAccessKey: secret})
	require.NoError(s.t, err)
	ref, err := registry.ParseRef(livePointer)
	require.NoError(s.t, err)
	p := objectpointer.New(store, objectpointer.Options{})
	at := registry.Location{Scheme: registry.SchemeS3, Bucket: "weights", Prefix: "llama/" + version}
	listed, err := fetcher.List(s.t.Context(), fetcher.Options{
		Ref: registry.Ref{Kind: registry.KindObject, Location: at}, Resolver: fetcher.Fixed{Location: at},
		Connect: func(context.Context, registry.Location) (fetcher.S3API, error) { return store, nil },
	})
	require.NoError(s.t, err)
	change := registry.Change{To: "v" + version, Location: at, Digest: listed.Manifest.Digest, Action: registry.ActionPromote, By: "ann"}
	if change.Expect, err = p.Read(s.t.Context(), ref); err == nil {
		_, err = p.Move(s.t.Context(), ref, change)
	} else {
		_, err = p.Init(s.t.Context(), ref, change)
	}
	require.NoError(s.t, err)
}

func TestInitFollowsAPointerObject(t *testing.T) {
	s := newSystem(t)
	follow := func(want int, more ...string) string {
		t.Helper()
		code, stderr := s.init(append([]string{"--model", livePointer}, more...)...)
		require.Equal(t, want, code, stderr)
		return stderr
	}
	s.point("1")
	require.Contains(t, follow(exitcode.OK), "version=v1")
	require.Equal(t, "version 1", s.serving())
	s.point("2")
	require.Contains(t, follow(exitcode.PointerBroken, "--allow-location", "s3://weights/llama/1"), "--allow-location")
	require.Equal(t, "version 1", s.serving())
	follow(exitcode.OK)
	require.Equal(t, "version 2", s.serving())
	s.point("1")
	require.Contains(t, follow(exitcode.OK), "reused=true")
	require.Equal(t, "version 1", s.serving())
	follow(exitcode.OK, "--version-pin", "s3://weights/llama/2")
	require.Equal(t, "version 2", s.serving())

	s.env["MLFLOW_S3_ENDPOINT_URL"] = "http://127.0.0.1:1"
	require.Contains(t, follow(exitcode.RegistryUnreachable, "--deadline", "1s"), livePointer)
	require.Equal(t, "version 2", s.serving())
}

// What the pointer records is what is published, or nothing is.
func TestAPointerObjectIsNotBelievedOverTheStore(t *testing.T) {
	s := newSystem(t)
	s.point("1")
	code, stderr := s.init("--model", livePointer)
	require.Equal(t, exitcode.OK, code, stderr)
	s.point("2")
	s.store.PutObject("weights", "llama/2/config.json", []byte(`{"model_type":"another"}`), fakes3.PutOptions{})
	code, stderr = s.init("--model", livePointer)
	require.Equal(t, exitcode.Integrity, code, stderr)
	require.Contains(t, stderr, "not those that the pointer records")
	require.Equal(t, "version 1", s.serving())
}

// The key of the files is not sent for the pointer, which lies open.
func TestAPointerObjectIsNotDecrypted(t *testing.T) {
	s := newSystem(t)
	s.point("1")
	var mu sync.Mutex
	var asked []string
	s.store.SetFault(func(r *http.Request) (f fakes3.Fault) {
		if r.Header.Get("X-Amz-Server-Side-Encryption-Customer-Key") != "" {
			mu.Lock()
			defer mu.Unlock()
			asked = append(asked, r.URL.Path)
		}
		return f
	})
	s.env["PILOTLIGHT_SSE_C_KEY"] = base64.StdEncoding.EncodeToString([]byte(strings.Repeat("k", 32)))
	code, stderr := s.init("--model", livePointer)
	require.NotEqual(t, exitcode.PointerBroken, code, stderr)
	require.NotEqual(t, exitcode.RegistryUnreachable, code, stderr)
	mu.Lock()
	defer mu.Unlock()
	require.NotEmpty(t, asked)
	for _, path := range asked {
		require.NotContains(t, path, "pointers/")
	}
}

func TestTheAgentFollowsAPointerObject(t *testing.T) {
	s := newSystem(t)
	s.point("1")
	f := s.agent("--model", livePointer, "--poll", "1s")
	f.eventually("the first version", func() bool { st := f.status(); return st.Published != nil && st.Published.Version == "v1" })
	lists := s.store.Count("ListObjectsV2")
	gets := s.store.Count("GetObject")
	f.eventually("polls", func() bool { return s.store.Count("GetObject") >= gets+2 })
	require.Equal(t, lists, s.store.Count("ListObjectsV2"), "an unchanged pointer is one GET")
	s.point("2")
	f.eventually("the second version", func() bool { return f.status().Published.Version == "v2" })
	require.Equal(t, "version 2", s.serving())
	s.point("1")
	f.eventually("back", func() bool { return f.status().Published.Version == "v1" })
	require.Equal(t, livePointer, f.status().Ref)
	f.end()
}
