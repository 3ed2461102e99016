package fetcher_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/fetcher"
)

const mlmodelTransformers = `artifact_path: model
flavors:
  python_function:
    loader_module: mlflow.transformers
    python_version: 3.11.9
  transformers:
    code: null
    components: [tokenizer]
    framework: pt
    model_binary: model
    pipeline_model_type: LlamaForCausalLM
    source_model_name: meta-llama/Llama-3.1-8B
    task: text-generation
run_id: ab12
signature:
  inputs: '[{"type": "string", "required": true}]'
`

const mlmodelPyfunc = `flavors:
  python_function:
    artifacts:
      prompt: {path: artifacts/prompt.txt, uri: /data/prompt.txt}
      snapshot: {path: artifacts/snapshot, uri: /data/snapshot}
    loader_module: mlflow.pyfunc.model
`

// tree builds a version from the names of its files.
func tree(names ...string) map[string][]byte {
	files := map[string][]byte{}
	for _, name := range names {
		switch filepath.Ext(name) {
		case ".safetensors":
			files[name] = safetensors(name)
		case ".json":
			files[name] = []byte(`{"file":"` + name + `"}`)
		default:
			files[name] = []byte(name)
		}
	}
	return files
}

// mlflow adds an MLmodel file to a version.
func mlflow(files map[string][]byte, content string) map[string][]byte {
	files["MLmodel"] = []byte(content)
	return files
}

func TestLayouts(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		files     map[string][]byte
		subPath   string
		kind      string
		model     string // folder, and tokenizer where that is another
		tokenizer string
	}{
		"HuggingFaceFolder": {files: tree("config.json", "model.safetensors", "tokenizer.json"), kind: fetcher.LayoutFolder, model: "."},
		"FolderBelow":       {files: tree("README.md", "snapshot/config.json", "snapshot/model.safetensors", "snapshot/deep/config.json", "snapshot/deep/model.safetensors"), kind: fetcher.LayoutFolder, model: "snapshot"},
		"MistralsOwn":       {files: tree("params.json", "consolidated.safetensors", "tekken.json"), kind: fetcher.LayoutFolder, model: "."},
		"PyTorch":           {files: tree("config.json", "pytorch_model.bin"), kind: fetcher.LayoutFolder, model: "."},
		"GGUF":              {files: tree("llama.Q4_K_M.gguf"), kind: fetcher.LayoutFolder, model: "."},
		"WeightsOnly":       {files: tree("sub/weights.bin"), kind: fetcher.LayoutFolder, model: "sub"},
		"Diffusers":         {files: tree("model_index.json", "unet/config.json", "unet/x.safetensors", "vae/config.json", "vae/x.safetensors"), kind: fetcher.LayoutFolder, model: "."},
		"MLflowPipeline": {
			files: mlflow(tree("conda.yaml", "model/config.json", "model/model.safetensors", "components/tokenizer/tokenizer.json"), mlmodelTransformers),
			kind:  fetcher.LayoutTransformers, model: "model", tokenizer: "components/tokenizer",
		},
		"MLflowPath": { // logged from a checkpoint: the model has all it needs
			files: mlflow(tree("model/config.json", "model/model.safetensors", "model/tokenizer.json"), mlmodelTransformers),
			kind:  fetcher.LayoutTransformers, model: "model",
		},
		"MLflowPyfunc": {
			files: mlflow(tree("artifacts/prompt.txt", "artifacts/snapshot/config.json", "artifacts/snapshot/model.safetensors"), mlmodelPyfunc),
			kind:  fetcher.LayoutPyfunc, model: "artifacts/snapshot",
		},
		"MLflowOtherFlavor": {
			files: mlflow(tree("data/config.json", "data/model.safetensors"), "flavors: {pytorch: {model_data: data}}\n"),
			kind:  fetcher.LayoutFolder, model: "data",
		},
		"SubPathOverrides": {
			files:   mlflow(tree("model/config.json", "model/model.safetensors", "other/config.json", "other/model.safetensors"), mlmodelTransformers),
			subPath: "other", kind: fetcher.LayoutFolder, model: ".",
		},
		"SubPathToAnAdapter": {
			files:   mlflow(tree("peft/adapter_config.json", "peft/adapter_model.safetensors"), "flavors: {transformers: {peft_adaptor: peft}}\n"),
			subPath: "peft", kind: fetcher.LayoutFolder, model: ".",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.put("llama/1", tc.files)
			opts := w.options()
			opts.SubPath = tc.subPath
			res, err := fetcher.Init(t.Context(), opts)
			require.NoError(t, err)
			want := fetcher.Layout{Kind: tc.kind, Model: tc.model, Tokenizer: tc.tokenizer}
			if want.Tokenizer == "" {
				want.Tokenizer = want.Model
			}
			require.Equal(t, &want, res.Manifest.Layout)
			version, err := filepath.EvalSymlinks(filepath.Join(w.root, "current"))
			require.NoError(t, err)
			for link, dir := range map[string]string{fetcher.ModelLink: want.Model, fetcher.TokenizerLink: want.Tokenizer} {
				got, err := filepath.EvalSymlinks(filepath.Join(w.root, "current", link))
				require.NoError(t, err, "the constant path works")
				require.Equal(t, filepath.Join(version, dir), got)
			}
			again, err := fetcher.Init(t.Context(), opts)
			require.NoError(t, err)
			require.True(t, again.Reused)
			require.Equal(t, &want, again.Manifest.Layout, "a version that is reused is still described")
		})
	}
}

func TestVersionsWithoutWeightsAreRefused(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		files map[string][]byte
		want  error
		words string
		gets  bool // whether it takes a download to find out
	}{
		"ConfigOnly":     {tree("config.json", "tokenizer.json"), fetcher.ErrIntegrity, "no weights", false},
		"AdapterOnly":    {tree("adapter_config.json", "adapter_model.safetensors"), fetcher.ErrIntegrity, "an adapter?", false},
		"TrainingState":  {tree("config.json", "training_args.bin", "optimizer.pt", "rng_state_0.pth"), fetcher.ErrIntegrity, "no weights", false},
		"NotSaved":       {mlflow(tree("model/config.json", "extra/other.bin"), mlmodelTransformers), fetcher.ErrIntegrity, "promises them in model", true},
		"MLmodelAdapter": {mlflow(tree("other.bin"), "flavors: {transformers: {peft_adaptor: peft}}\n"), fetcher.ErrIntegrity, "only the adapter peft", true},
		"TwoModels":      {tree("a/config.json", "a/m.safetensors", "b/config.json", "b/m.safetensors"), fetcher.ErrUsage, "a, b): choose one with --sub-path", true},
		"TwoArtifacts": {mlflow(tree("artifacts/a/x.bin", "artifacts/b/x.bin"),
			"flavors: {python_function: {artifacts: {a: {path: artifacts/a}, b: {path: artifacts/b}}}}\n"), fetcher.ErrUsage, "choose one with --sub-path", true},
		"PathOutside": {mlflow(tree("x.bin"), "flavors: {transformers: {model_binary: ../../etc}}\n"), fetcher.ErrIntegrity, "model_binary", true},
		"NotYAML":     {mlflow(tree("x.bin"), "flavors: [unclosed"), fetcher.ErrIntegrity, "reading MLmodel", true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.put("llama/1", tc.files)
			_, err := w.init()
			require.ErrorIs(t, err, tc.want)
			require.ErrorContains(t, err, tc.words)
			require.Equal(t, tc.gets, w.store.Count("GetObject") > 0)
			_, err = os.Lstat(filepath.Join(w.root, "current"))
			require.ErrorIs(t, err, os.ErrNotExist)

			opts := w.options()
			opts.AnyLayout = true
			res, err := fetcher.Init(t.Context(), opts)
			require.NoError(t, err, "--any-layout publishes it as it is")
			require.Equal(t, &fetcher.Layout{Kind: fetcher.LayoutAny, Model: ".", Tokenizer: "."}, res.Manifest.Layout)
			w.requireCurrent(tc.files)
		})
	}
}

func TestAMissingModelLinkIsADamage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put("llama/1", model("one"))
	w.mustInit()
	link := filepath.Join(w.root, "current", fetcher.ModelLink)
	require.NoError(t, os.Remove(link))
	res := w.mustInit()
	require.False(t, res.Reused)
	require.FileExists(t, filepath.Join(link, "config.json"))
}
