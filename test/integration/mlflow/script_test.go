package mlflow_test

import (
	"encoding/binary"
	"encoding/json"
	"math/rand/v2"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	fakemlflow "github.com/pilotlight-dev/pilotlight/internal/fake/mlflow"
	fakes3 "github.com/pilotlight-dev/pilotlight/internal/fake/s3"
)

// model is the name under which the script registers.
const model = "llama 3.1"

// A step is one answer that the script was given.
type step struct {
	Step   string `json:"step"`
	Answer any    `json:"answer"`
}

// runScript registers with the real client and returns what it was told.
func runScript(t *testing.T, tr tracking) []step {
	t.Helper()
	python := filepath.Join(tool(t, "PILOTLIGHT_MLFLOW"), "bin", "python")
	folder := filepath.Join(t.TempDir(), "logged")
	write(t, folder, loggedFiles())
	tr.store.put(t, "raw/7", rawFiles())
	stdout, stderr, code := output(t, 3*time.Minute, environment(tr.variables()),
		python, "-W", "ignore", "script.py", model, folder, "s3://"+bucket+"/raw/7")
	require.Zero(t, code, stderr)
	var steps []step
	require.NoError(t, json.Unmarshal([]byte(stdout), &steps), stdout)
	return steps
}

// loggedFiles is a version as MLflow's transformers flavor writes one that was
// logged from a folder.
func loggedFiles() map[string][]byte {
	return map[string][]byte{
		"MLmodel": []byte("artifact_path: llm\nflavors:\n  transformers:\n    model_binary: model\n    components:\n    - tokenizer\n" +
			"    source_model_name: example/llm\n    task: text-generation\n"),
		"requirements.txt":                       []byte("transformers\n"),
		"model/config.json":                      []byte(`{"architectures":["LlamaForCausalLM"]}`),
		"model/model.safetensors.index.json":     []byte(`{"weight_map":{"w":"model-00001-of-00002.safetensors","v":"model-00002-of-00002.safetensors"}}`),
		"model/model-00001-of-00002.safetensors": safetensors("w", 1, 1<<20),
		"model/model-00002-of-00002.safetensors": safetensors("v", 2, 300_001),
		"components/tokenizer/tokenizer.json":    []byte(`{"version":"1.0"}`),
	}
}

// rawFiles is a folder as it comes from Hugging Face.
func rawFiles() map[string][]byte {
	return map[string][]byte{
		"config.json": []byte(`{"architectures":["LlamaForCausalLM"]}`), "tokenizer.json": []byte(`{"version":"2.0"}`),
		"model.safetensors": safetensors("w", 3, 3<<20),
	}
}

// safetensors is a file with one tensor of n random bytes.
func safetensors(name string, seed byte, n int) []byte {
	header, _ := json.Marshal(map[string]any{name: map[string]any{"dtype": "U8", "shape": []int{n}, "data_offsets": []int{0, n}}}) // plain values
	out := append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header...)
	data := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{seed}).Read(data) // never fails
	return append(out, data...)
}

func write(t *testing.T, dir string, files map[string][]byte) {
	t.Helper()
	for name, data := range files {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o750))
		require.NoError(t, os.WriteFile(path, data, 0o600))
	}
}

// startFake serves both fakes, the registry as a recent one.
func startFake(t *testing.T) (*fakemlflow.Server, tracking) {
	t.Helper()
	objects := fakes3.New(fakes3.Options{Credentials: map[string]string{keyID: secretKey}})
	objects.CreateBucket(bucket)
	objectServer := httptest.NewServer(objects)
	t.Cleanup(objectServer.Close)
	registry := fakemlflow.New(fakemlflow.Options{Recent: true, ArtifactRoot: "s3://" + bucket + "/mlflow", Username: "ann", Password: "not-a-password"})
	registryServer := httptest.NewServer(registry)
	t.Cleanup(registryServer.Close)
	return registry, tracking{url: registryServer.URL, user: "ann", password: "not-a-password", store: connect(t, objectServer.URL)}
}

// requireSame demands that two servers told the client the same, step by step.
func requireSame(t *testing.T, real, fake []step) {
	t.Helper()
	require.Greater(t, len(real), 50, "the script ran to its end")
	if diff := cmp.Diff(real, fake); diff != "" {
		t.Fatalf("the fake (+) does not say what MLflow (-) says:\n%s", diff)
	}
}
