package static

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/internal/workload"
)

const good = `
targets:
- namespace: demo
  name: llama
  maxReplicaCount: 4
  replicas: 2
  metadata: {targetRequests: "4"}
  pods:
  - {name: b, host: 127.0.0.1, port: 8002, created: 2026-01-02T03:04:05Z}
  - {name: a, host: 127.0.0.1, port: 8001, created: 2026-01-02T03:04:05Z, readyAt: 2026-01-02T03:05:35Z}
`

func write(t *testing.T, path, body string, age time.Duration) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(body), 0o600))
	at := time.Now().Add(-age)
	require.NoError(t, os.Chtimes(path, at, at))
}

func TestSourceFollowsTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "targets.yaml")
	write(t, path, good, time.Hour)
	var logs strings.Builder
	s, err := Open(path, slog.New(slog.NewTextHandler(&logs, nil)))
	require.NoError(t, err)
	ref := workload.Ref{Namespace: "demo", Name: "llama"}
	got, err := s.Workload(context.Background(), ref, "")
	require.NoError(t, err)
	created := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	want := workload.Workload{
		Ref: ref, MaxReplicas: 4, Replicas: 2, Metadata: map[string]string{"targetRequests": "4"},
		Pods: []workload.Pod{
			{Name: "a", Host: "127.0.0.1", Port: 8001, Created: created, ReadyAt: created.Add(90 * time.Second)},
			{Name: "b", Host: "127.0.0.1", Port: 8002, Created: created},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatal(diff)
	}

	write(t, path, "targets: [", time.Minute)
	got, err = s.Workload(context.Background(), ref, "")
	require.NoError(t, err, "a broken file leaves the last good one standing")
	require.Len(t, got.Pods, 2)
	for range 10 {
		_, err = s.All(context.Background())
		require.NoError(t, err)
	}
	require.Equal(t, 1, strings.Count(logs.String(), "\n"), "and is reported once: %s", logs.String())

	write(t, path, "targets: [{namespace: demo, name: llama, maxReplicaCount: 1}]", time.Second)
	got, err = s.Workload(context.Background(), ref, "")
	require.NoError(t, err)
	require.Empty(t, got.Pods)
	require.Zero(t, got.Replicas, "without a count, the pods are what is asked for")

	_, err = s.Workload(context.Background(), workload.Ref{Namespace: "demo", Name: "other"}, "")
	require.ErrorIs(t, err, workload.ErrNotFound)
}

func TestOpenNamesWhatIsWrong(t *testing.T) {
	cases := map[string]struct{ body, want string }{
		"UnknownKey": {"targets: [{namespace: a, name: b, maxReplicas: 3}]", "maxReplicas"},
		"NoName":     {"targets: [{namespace: a, maxReplicaCount: 3}]", "targets[0]"},
		"Twice":      {"targets: [{namespace: a, name: b, maxReplicaCount: 1}, {namespace: a, name: b, maxReplicaCount: 1}]", "a/b is listed twice"},
		"Bounds":     {"targets: [{namespace: a, name: b, minReplicaCount: 4, maxReplicaCount: 3}]", "minReplicaCount"},
		"Port":       {"targets: [{namespace: a, name: b, maxReplicaCount: 3, pods: [{name: x, port: 70000}]}]", "pods[0]"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "targets.yaml")
			write(t, path, tc.body, 0)
			_, err := Open(path, nil)
			require.ErrorContains(t, err, tc.want)
			require.ErrorContains(t, err, path)
		})
	}
	_, err := Open(filepath.Join(t.TempDir(), "none"), nil)
	require.ErrorIs(t, err, os.ErrNotExist)
}
