package mlflow_test

import (
	"context"
	"errors"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/internal/exitcode"
	"github.com/pilotlight-dev/pilotlight/registry"
	"github.com/pilotlight-dev/pilotlight/registry/objectpointer"
)

const pointerRef = "pointer+s3://" + bucket + "/pointers/llm"

// TestPointerObject does without a registry: the command line makes and moves a
// pointer on the store, and the fetcher follows it.
func TestPointerObject(t *testing.T) {
	tool(t, "PILOTLIGHT_CLI")
	tr := tracking{store: startStore(t)}
	place := func(version string) string { return "s3://" + bucket + "/served/" + version }
	for n, version := range []string{"1", "2"} {
		tr.store.put(t, "served/"+version, servedFiles(n+1))
	}
	root := filepath.Join(t.TempDir(), "models")
	fetch := func(version int, says string) {
		t.Helper()
		_, stderr, code := output(t, time.Minute, environment(tr.variables()), tool(t, "PILOTLIGHT_FETCHER"),
			"init", "--model", pointerRef, "--root", root, "--log-format", "text", "--allow-location", "s3://"+bucket+"/served")
		require.Zero(t, code, stderr)
		require.Contains(t, stderr, says)
		requireTree(t, root, servedFiles(version))
	}
	tr.requireCLI(t, exitcode.OK, "pointer", "init", pointerRef, "--location", place("1"), "--version", "v1", "--yes")
	tr.requireCLI(t, exitcode.Conflict, "pointer", "init", pointerRef, "--location", place("2"), "--version", "v2", "--yes")
	fetch(1, "version=v1")
	tr.requireCLI(t, exitcode.OK, "promote", pointerRef, "--to", "v2", "--location", place("2"), "--yes")
	fetch(2, "version=v2")
	require.Contains(t, tr.requireCLI(t, exitcode.OK, "rollback", pointerRef, "--yes"), "from v2 to v1")
	fetch(1, "reused=true")

	ref, err := registry.ParseRef(pointerRef)
	require.NoError(t, err)
	counted := &counter{Store: tr.store.client}
	p := objectpointer.New(counted, objectpointer.Options{})
	for range 3 {
		res, err := p.Resolve(t.Context(), ref)
		require.NoError(t, err)
		require.Equal(t, "v1", res.Version)
	}
	require.Equal(t, 2, counted.unchanged, "the store sends an unchanged pointer once")
}

// counter counts the answers without a body.
type counter struct {
	objectpointer.Store
	unchanged int
}

func (c *counter) GetObject(ctx context.Context, in *s3.GetObjectInput, opts ...func(*s3.Options)) (*s3.GetObjectOutput, error) {
	out, err := c.Store.GetObject(ctx, in, opts...)
	var answer interface{ HTTPStatusCode() int }
	if errors.As(err, &answer) && answer.HTTPStatusCode() == http.StatusNotModified {
		c.unchanged++
	}
	return out, err
}
