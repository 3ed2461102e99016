package mlflow_test

import (
	"fmt"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/registry"
	client "github.com/pilotlight-dev/pilotlight/registry/mlflow"
	registryconformance "github.com/pilotlight-dev/pilotlight/test/conformance/registry"
)

// requireConformance runs the suite that every registry passes against a server
// whose models are named after prefix.
func requireConformance(t *testing.T, tr tracking, prefix string) {
	t.Helper()
	source := func(name, version string) registry.Location {
		return registry.Location{Scheme: registry.SchemeS3, Bucket: bucket, Prefix: name + "/" + version}
	}
	alias := func(name string) registry.Ref {
		return registry.Ref{Kind: registry.KindAlias, Name: prefix + name, Selector: "chämpion"}
	}
	registryconformance.Run(t, registryconformance.Backend{
		Client: func(t *testing.T) registryconformance.Pointer {
			t.Helper()
			c, err := client.New(clientConfig(tr))
			require.NoError(t, err)
			return c
		},
		Make: func(t *testing.T, name string, n int) registry.Ref {
			t.Helper()
			ref := alias(name)
			tr.call(t, http.MethodPost, "registered-models/create", map[string]string{"name": ref.Name}, nil)
			for i := range n {
				tr.register(t, ref.Name, source(ref.Name, fmt.Sprint(i+1)).String())
			}
			tr.setAlias(t, ref.Name, ref.Selector, "1")
			return ref
		},
		Missing: func(_ *testing.T, name string) registry.Ref { return alias(name) },
		Dangle: func(t *testing.T, ref registry.Ref) {
			t.Helper()
			tr.removeRow(t, ref.Name, "1")
		},
		Describe: func(ref registry.Ref, version string) (registry.Location, string) {
			return source(ref.Name, version), ""
		},
		MaxHistory: 20, AtMost: 40,
	})
}

// register makes a version of a model and returns its number.
func (tr tracking) register(t *testing.T, name, source string) string {
	t.Helper()
	var created struct {
		Version struct {
			Version string `json:"version"`
		} `json:"model_version"`
	}
	tr.call(t, http.MethodPost, "model-versions/create", map[string]string{"name": name, "source": source}, &created)
	return created.Version.Version
}

// removeRow deletes a version and leaves its aliases, as servers before 3.17 did
// and as their databases still have it. Recent ones take the aliases along.
func (tr tracking) removeRow(t *testing.T, name, version string) {
	t.Helper()
	tr.sql(t, "DELETE FROM model_versions WHERE name = ? AND version = ?", name, version)
}

// sql changes the server's database, for what its interface does not offer.
func (tr tracking) sql(t *testing.T, statement string, args ...string) {
	t.Helper()
	const script = "import sqlite3, sys\n" +
		"c = sqlite3.connect(sys.argv[1], timeout=20)\n" +
		"n = c.execute(sys.argv[2], sys.argv[3:]).rowcount\n" +
		"c.commit()\n" +
		"sys.exit(n != 1)\n"
	python := filepath.Join(tool(t, "PILOTLIGHT_MLFLOW"), "bin", "python")
	_, stderr, code := output(t, time.Minute, environment(nil), python, append([]string{"-c", script, tr.database, statement}, args...)...)
	require.Zero(t, code, "%s changed not one row: %s", statement, stderr)
}

// setAlias points an alias at a version as somebody's script would, without a
// record.
func (tr tracking) setAlias(t *testing.T, name, alias, version string) {
	t.Helper()
	tr.call(t, http.MethodPost, "registered-models/alias", map[string]string{"name": name, "alias": alias, "version": version}, nil)
}

// conformance is the suite as a part of a server's life, timed.
func conformance(tr tracking) part {
	return part{"Conformance", func(t *testing.T) {
		began := time.Now()
		requireConformance(t, tr, "suite ")
		t.Logf("the suite took %.1f s", time.Since(began).Seconds())
	}}
}
