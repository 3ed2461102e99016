package mlflow_test

import (
	"bytes"
	"context"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/internal/exitcode"
	"github.com/pilotlight-dev/pilotlight/registry"
	client "github.com/pilotlight-dev/pilotlight/registry/mlflow"
)

// direct is the server whose clients talk to the store themselves.
func direct() serverOptions {
	return serverOptions{args: []string{"--no-serve-artifacts", "--default-artifact-root", "s3://" + bucket + "/mlflow"}}
}

// TestRealServer walks one server through a life: it is registered with, asked,
// fetched from, broken, mended, and it calls back. The parts build on each other.
func TestRealServer(t *testing.T) {
	tool(t, "PILOTLIGHT_MLFLOW")
	tool(t, "PILOTLIGHT_FETCHER")
	tool(t, "PILOTLIGHT_CLI")
	t.Parallel()
	tr := startMLflow(t, startStore(t), direct())
	root := filepath.Join(t.TempDir(), "models")

	inOrder(t, []part{
		{"TheFakePassesForMLflow", func(t *testing.T) {
			_, fake := startFake(t)
			requireSame(t, runScript(t, tr), runScript(t, fake))
			requireSameAnswers(t, tr, fake)
		}},
		{"Resolve", func(t *testing.T) { requireResolutions(t, tr) }},
		{"FetchWhatWasLogged", func(t *testing.T) {
			tr.setLive(t, "1")
			tr.requireFetch(t, root, "live", loggedFiles())
			requireFile(t, root, "current/.pilotlight/model/config.json", loggedFiles()["model/config.json"])
			requireFile(t, root, "current/.pilotlight/tokenizer/tokenizer.json", loggedFiles()["components/tokenizer/tokenizer.json"])
		}},
		{"FetchWhereTheAliasWent", func(t *testing.T) {
			tr.setLive(t, "2")
			tr.requireFetch(t, root, "live", rawFiles())
			requireFile(t, root, "current/.pilotlight/model/config.json", rawFiles()["config.json"])
		}},
		{"DeletedUnderTheAlias", func(t *testing.T) { requireBrokenAlias(t, tr, root) }},
		{"RollBack", func(t *testing.T) {
			tr.setLive(t, "1")
			require.Contains(t, tr.requireFetch(t, root, "live", loggedFiles()), "reused=true")
		}},
		{"Webhook", func(t *testing.T) { requireWebhook(t, tr) }},
		conformance(tr),
	})
	inOrder(t, commands(tr))
	inOrder(t, followers(tr))
}

// A part is a test that needs those before it.
type part struct {
	name string
	run  func(*testing.T)
}

// inOrder runs parts until one fails.
func inOrder(t *testing.T, parts []part) {
	t.Helper()
	for _, p := range parts {
		if !t.Run(p.name, p.run) {
			t.Fatalf("what comes after %s needs it", p.name)
		}
	}
}

// clientConfig configures Pilotlight's own client for a server.
func clientConfig(tr tracking) client.Config {
	return client.Config{TrackingURI: tr.url, Username: tr.user, Password: client.Secret(tr.password)}
}

func resolve(ctx context.Context, tr tracking, text string) (registry.Resolution, error) {
	c, err := client.New(clientConfig(tr))
	if err != nil {
		return registry.Resolution{}, err
	}
	ref, err := registry.ParseRef(text)
	if err != nil {
		return registry.Resolution{}, err
	}
	return c.Resolve(ctx, ref)
}

// requireResolutions asks for what the script has left.
func requireResolutions(t *testing.T, tr tracking) {
	t.Helper()
	type want struct {
		version, place string // the place is a part of the location
		err            error
	}
	for text, want := range map[string]want{
		"models:/" + model + "@champion":   {version: "2", place: "s3://weights/raw/7"},
		"models:/" + model + "@previous":   {version: "1", place: "/models/m-"},
		"models:/" + model + "/1":          {version: "1", place: "/artifacts"},
		"models:/" + model + "/latest":     {version: "2", place: "s3://weights/raw/7"},
		"models:/" + model + "/Staging":    {version: "2", place: "s3://weights/raw/7"},
		"models:/" + model + "/3":          {err: registry.ErrNotFound},
		"models:/" + model + "@doomed":     {err: registry.ErrNotFound},
		"models:/" + model + "@nobody":     {err: registry.ErrNotFound},
		"models:/nobody@champion":          {err: registry.ErrNotFound},
		"models:/" + model + "/Archived":   {version: "1", place: "/artifacts"},
		"models:/" + model + "/Production": {err: registry.ErrNotFound},
		"models:/" + model + "/Nirvana":    {err: registry.ErrBroken}, // a stage that there is not
	} {
		res, err := resolve(t.Context(), tr, text)
		if want.err != nil {
			require.ErrorIs(t, err, want.err, text)
			continue
		}
		require.NoError(t, err, text)
		require.Equal(t, want.version, res.Version, text)
		require.Contains(t, res.Location.String(), want.place, text)
	}
	res, err := resolve(t.Context(), tr, "models:/"+model+"@previous")
	require.NoError(t, err)
	id := strings.Split(res.Location.Prefix, "/")[3]
	logged, err := resolve(t.Context(), tr, "models:/"+id)
	require.NoError(t, err)
	require.Equal(t, res.Location, logged.Location)
}

// requireBrokenAlias deletes the version that an alias names: the fetcher says so
// and leaves alone what it has published.
func requireBrokenAlias(t *testing.T, tr tracking, root string) {
	t.Helper()
	number := tr.register(t, model, "s3://"+bucket+"/raw/7")
	tr.setLive(t, number)
	tr.call(t, http.MethodDelete, "model-versions/delete", map[string]string{"name": model, "version": number}, nil)
	before, err := os.Readlink(filepath.Join(root, "current"))
	require.NoError(t, err)

	code, stderr := tr.fetch(t, root, "live")
	require.Equal(t, exitcode.PointerBroken, code, stderr)
	require.Contains(t, stderr, "live")
	after, err := os.Readlink(filepath.Join(root, "current"))
	require.NoError(t, err)
	require.Equal(t, before, after)
	requireTree(t, root, rawFiles())
}

// fetch runs the fetcher as an init container does.
func (tr tracking) fetch(t *testing.T, root, alias string, more ...string) (code int, stderr string) {
	t.Helper()
	args := append([]string{"init", "--model", "models:/" + model + "@" + alias, "--root", root, "--log-format", "text", "--deadline", "1m"}, more...)
	_, stderr, code = output(t, 2*time.Minute, environment(tr.variables()), tool(t, "PILOTLIGHT_FETCHER"), args...)
	require.NotContains(t, stderr, secretKey)
	if tr.password != "" {
		require.NotContains(t, stderr, tr.password)
	}
	return code, stderr
}

// requireFetch demands that a fetch publishes exactly these files.
func (tr tracking) requireFetch(t *testing.T, root, alias string, want map[string][]byte) (stderr string) {
	t.Helper()
	code, stderr := tr.fetch(t, root, alias, "--allow-location", "s3://"+bucket)
	require.Equal(t, exitcode.OK, code, stderr)
	requireTree(t, root, want)
	return stderr
}

func requireFile(t *testing.T, root, name string, want []byte) {
	t.Helper()
	got, err := os.ReadFile(filepath.Join(root, name))
	require.NoError(t, err)
	require.True(t, bytes.Equal(want, got), name)
}

// requireTree demands that `current` holds these files and no other.
func requireTree(t *testing.T, root string, want map[string][]byte) {
	t.Helper()
	dir, err := filepath.EvalSymlinks(filepath.Join(root, "current"))
	require.NoError(t, err)
	got := 0
	require.NoError(t, fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || strings.HasPrefix(name, ".pilotlight") {
			return err
		}
		require.Contains(t, want, name)
		requireFile(t, dir, name, want[name])
		got++
		return nil
	}))
	require.Len(t, want, got)
}
