package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// What is compared are neighbours: a round in which everything is slow says
// nothing about the difference.
func TestCompareTakesTheMedianOfDifferences(t *testing.T) {
	direct := []sample{{0.1, 1}, {0.1, 1}, {0.1, 1}}
	bare := []sample{{1, 2}, {5, 20}, {1, 2}}
	ours := []sample{{1.25, 2.5}, {5.25, 20.5}, {3, 9}}
	got := compare(direct, bare, ours)
	require.Equal(t, "activator_over_bare_p50_ms", got[0].Name)
	require.InDelta(t, 0.25, got[0].Value, 1e-9)
	require.Equal(t, "activator_over_bare_p99_ms", got[1].Name)
	require.InDelta(t, 0.5, got[1].Value, 1e-9)
}

func TestTargetsFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "targets.yaml")
	require.NoError(t, writeTargets(file, target{"warm", 5, "127.0.0.1:81"}, target{"asleep", 5, ""}))
	content, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Contains(t, string(content), "name: warm, maxReplicaCount: 1, metadata: {targetRequests: \"5\", modelName: warm}, pods: [{name: warm-0, host: 127.0.0.1, port: 81, ")
	require.Contains(t, string(content), "modelName: asleep}}\n")
}
