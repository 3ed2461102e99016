package node

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMountPathsAreReplacedByFolders(t *testing.T) {
	m := mounts{{"/models/cache", "/x/c"}, {"/models", "/x/m"}}
	tests := map[string]string{
		"/models":                      "/x/m",
		"/models/current":              "/x/m/current",
		"--root=/models":               "--root=/x/m",
		"/models/cache/x:/models/y":    "/x/c/x:/x/m/y",
		"/modelsother":                 "/modelsother",
		"models:/llama@champion":       "models:/llama@champion",
		"s3://bucket/models/x":         "s3://bucket/models/x",
		"cp /models/a /models/cache/b": "cp /x/m/a /x/c/b",
	}
	for text, want := range tests {
		t.Run(text, func(t *testing.T) { require.Equal(t, want, m.in(text)) })
	}
}
