package demo

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/rand/v2"

	fakemlflow "github.com/pilotlight-dev/pilotlight/internal/fake/mlflow"
	fakes3 "github.com/pilotlight-dev/pilotlight/internal/fake/s3"
)

const (
	modelName      = "llama"
	alias          = "champion"
	namespace      = "demo"
	targetRequests = 4
	maxReplicas    = 4

	bucket     = "weights"
	shards     = 3
	shardBytes = 4 << 20
	// pace of each download, so that one can be watched: 3 x 4 MiB in about
	// a second.
	bytesPerSecond = 4 << 20
)

// register puts two versions of a small model into the store and the registry
// and points the alias at the first.
func register(store *fakes3.Server, registry *fakemlflow.Server) error {
	for _, version := range []byte{1, 2} {
		prefix := fmt.Sprintf("%s/%d", modelName, version)
		for name, data := range weights(version) {
			store.PutObject(bucket, prefix+"/"+name, data, fakes3.PutOptions{})
		}
		number, err := registry.CreateVersion(modelName, "s3://"+bucket+"/"+prefix)
		if err != nil {
			return fmt.Errorf("registering version %d: %w", version, err)
		}
		if number != fmt.Sprint(version) {
			return fmt.Errorf("registering version %d: the registry calls it %s", version, number)
		}
	}
	store.SetBytesPerSecond(bytesPerSecond)
	return registry.SetAlias(modelName, alias, "1")
}

// weights makes a folder as Hugging Face lays it out: a configuration, an
// index and shards in the safetensors format, whose metadata name the version.
func weights(version byte) map[string][]byte {
	files := map[string][]byte{
		"config.json":    []byte(`{"architectures": ["DemoForCausalLM"], "model_type": "demo"}` + "\n"),
		"tokenizer.json": []byte(`{"version": "1.0"}` + "\n"),
	}
	source := rand.NewChaCha8([32]byte{version})
	index := map[string]string{}
	for i := range shards {
		name, tensor := fmt.Sprintf("model-%05d-of-%05d.safetensors", i+1, shards), fmt.Sprintf("layer.%d.weight", i)
		index[tensor] = name
		files[name] = shard(source, tensor, version)
	}
	body, _ := json.Marshal(map[string]any{"metadata": map[string]int{"total_size": shards * shardBytes}, "weight_map": index}) // plain maps
	files["model.safetensors.index.json"] = body
	return files
}

func shard(source *rand.ChaCha8, tensor string, version byte) []byte {
	header, _ := json.Marshal(map[string]any{ // plain maps
		"__metadata__": map[string]string{"format": "pt", "version": fmt.Sprint(version)},
		tensor:         map[string]any{"dtype": "U8", "shape": []int{shardBytes}, "data_offsets": []int{0, shardBytes}},
	})
	data := make([]byte, shardBytes)
	_, _ = source.Read(data) // never fails
	var out bytes.Buffer
	out.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(header))))
	out.Write(header)
	out.Write(data)
	return out.Bytes()
}
