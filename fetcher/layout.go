package fetcher

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// Names inside a version by which an engine is started, whatever its layout:
// `vllm serve <root>/current/.pilotlight/model --tokenizer
// <root>/current/.pilotlight/tokenizer`. They are relative links, so that the
// same command line serves a plain Hugging Face folder and one that MLflow
// wrote, and swapping `current` swaps both in one step.
const (
	ModelLink     = metaDir + "/model"
	TokenizerLink = metaDir + "/tokenizer"
)

// Kinds of Layout.
const (
	LayoutFolder       = "folder"              // configuration and weights in one folder
	LayoutTransformers = "mlflow-transformers" // MLmodel with the transformers flavor
	LayoutPyfunc       = "mlflow-pyfunc"       // MLmodel with a pyfunc artifact that is a model
	LayoutAny          = "any"                 // nothing was looked for (Options.AnyLayout)
)

// Layout says where in a version's tree an engine finds what it loads. Paths
// are relative to the version, with slashes; "." is the version itself.
type Layout struct {
	Kind  string `json:"kind"`
	Model string `json:"model"`
	// Tokenizer differs from Model only when it was stored apart from it.
	Tokenizer string `json:"tokenizer"`
}

const (
	mlmodelFile = "MLmodel"
	maxMLmodel  = 4 << 20 // bytes; the largest part is the signature
)

// weightSuffixes end the files that hold weights, and notWeights are files with
// such names that do not: the state of a training run, and adapters, which are
// nothing without their base model.
var weightSuffixes = []string{".safetensors", ".bin", ".pt", ".pth", ".gguf"}

func isWeights(name string) bool {
	base := path.Base(name)
	switch {
	case base == "training_args.bin", base == "optimizer.pt", base == "optimizer.bin", base == "scheduler.pt",
		strings.HasPrefix(base, "rng_state"), isAdapter(name):
		return false
	}
	return slices.ContainsFunc(weightSuffixes, func(s string) bool { return strings.HasSuffix(base, s) })
}

func isAdapter(name string) bool { return strings.HasPrefix(path.Base(name), "adapter_model.") }

// errNoWeights is the one fault that an explicit choice of the tree excuses.
var errNoWeights = errors.New("the version holds no weights")

// checkWeightsListed refuses a listing without any weights before a byte of it
// is downloaded. Who chose the tree with a sub-path may have chosen an adapter.
func checkWeightsListed(objects []Object, explicit bool) error {
	if slices.ContainsFunc(objects, func(o Object) bool { return isWeights(o.Path) || explicit && isAdapter(o.Path) }) {
		return nil
	}
	return noWeights("none of its files is")
}

func noWeights(why string) error {
	return fmt.Errorf("%w: %w (%s; was it logged with save_pretrained=False, or is it an adapter?): register one that does, or publish it as it is with --any-layout", ErrIntegrity, errNoWeights, why)
}

// detectLayout finds the model in a downloaded tree. With explicit the user has
// chosen the tree with a sub-path: then it is the model if none is found in it.
func detectLayout(root *os.Root, objects []Object, explicit bool) (Layout, error) {
	t := newTree(objects)
	layout, err := t.model(root)
	if explicit && errors.Is(err, errNoWeights) {
		layout, err = Layout{Kind: LayoutFolder, Model: "."}, nil
	}
	if err != nil {
		return Layout{}, err
	}
	if layout.Tokenizer == "" {
		layout.Tokenizer = layout.Model
	}
	return layout, nil
}

// tree answers questions about a listing.
type tree struct {
	files map[string]bool
	// weights and configs are the folders that hold some directly.
	weights, configs map[string]bool
}

func newTree(objects []Object) tree {
	t := tree{files: map[string]bool{}, weights: map[string]bool{}, configs: map[string]bool{}}
	for _, o := range objects {
		dir, base := path.Dir(o.Path), path.Base(o.Path)
		t.files[o.Path] = true
		t.weights[dir] = t.weights[dir] || isWeights(o.Path)
		// Mistral's own format has params.json, a GGUF file describes itself.
		t.configs[dir] = t.configs[dir] || base == "config.json" || base == "params.json" || strings.HasSuffix(base, ".gguf")
	}
	return t
}

// model applies the rules in order: what MLmodel says, then the shallowest
// folder that an engine can load.
func (t tree) model(root *os.Root) (Layout, error) {
	if t.files[mlmodelFile] {
		ml, err := readMLmodel(root)
		if err != nil {
			return Layout{}, fmt.Errorf("reading %s: %w", mlmodelFile, err)
		}
		if layout, ok, err := t.fromMLmodel(ml); ok || err != nil {
			return layout, err
		}
	}
	if t.files["model_index.json"] { // diffusers: the parts are folders below
		return Layout{Kind: LayoutFolder, Model: "."}, nil
	}
	dir, err := t.shallowest(".")
	return Layout{Kind: LayoutFolder, Model: dir}, err
}

// shallowest returns the folder with configuration and weights that is nearest
// to the top; without any configuration, the one with weights.
func (t tree) shallowest(below string) (string, error) {
	var loadable, weights []string
	for dir, has := range t.weights {
		if !has || !within(dir, below) {
			continue
		}
		weights = append(weights, dir)
		if t.configs[dir] {
			loadable = append(loadable, dir)
		}
	}
	found := loadable
	if len(found) == 0 {
		found = weights
	}
	if len(found) == 0 {
		return "", noWeights("no folder in it has any")
	}
	slices.SortFunc(found, func(a, b string) int { return cmp.Or(cmp.Compare(depth(a), depth(b)), strings.Compare(a, b)) })
	if len(found) > 1 && depth(found[0]) == depth(found[1]) {
		same := slices.DeleteFunc(found, func(d string) bool { return depth(d) != depth(found[0]) })
		return "", fmt.Errorf("%w: the version holds several models (%s): choose one with --sub-path", ErrUsage, oneLine(strings.Join(same, ", ")))
	}
	return found[0], nil
}

func within(dir, below string) bool {
	return below == "." || dir == below || strings.HasPrefix(dir, below+"/")
}

func depth(dir string) int {
	if dir == "." {
		return 0
	}
	return strings.Count(dir, "/") + 1
}

// mlmodel is the part of MLflow's MLmodel file that says where the model is.
type mlmodel struct {
	Flavors struct {
		Transformers *struct {
			ModelBinary string   `json:"model_binary"`
			Components  []string `json:"components"`
			Adapter     string   `json:"peft_adaptor"`
		} `json:"transformers"`
		Pyfunc *struct {
			Artifacts map[string]struct {
				Path string `json:"path"`
			} `json:"artifacts"`
		} `json:"python_function"`
	} `json:"flavors"`
}

func readMLmodel(root *os.Root) (mlmodel, error) {
	var ml mlmodel
	err := withFile(root, mlmodelFile, func(f *os.File) error {
		data, err := io.ReadAll(io.LimitReader(f, maxMLmodel+1))
		if err != nil {
			return localError(err)
		}
		if len(data) > maxMLmodel {
			return fmt.Errorf("%w: it is larger than %d MiB", ErrIntegrity, maxMLmodel>>20)
		}
		if err := yaml.Unmarshal(data, &ml); err != nil {
			return fmt.Errorf("%w: it is not the YAML of MLflow: %s", ErrIntegrity, oneLine(err.Error()))
		}
		return nil
	})
	return ml, err
}

// fromMLmodel follows the flavors; ok is false when none of them says where.
func (t tree) fromMLmodel(ml mlmodel) (layout Layout, ok bool, err error) {
	if tf := ml.Flavors.Transformers; tf != nil {
		dir, err := localFolder("model_binary", tf.ModelBinary)
		switch {
		case err != nil:
			return Layout{}, false, err
		case dir == "" && tf.Adapter != "":
			return Layout{}, false, noWeights("MLmodel names only the adapter " + oneLine(tf.Adapter))
		case dir != "" && !t.weights[dir]:
			return Layout{}, false, noWeights("MLmodel promises them in " + dir)
		case dir != "":
			layout := Layout{Kind: LayoutTransformers, Model: dir}
			if slices.Contains(tf.Components, "tokenizer") && t.hasFolder("components/tokenizer") {
				layout.Tokenizer = "components/tokenizer"
			}
			return layout, true, nil
		}
	}
	if py := ml.Flavors.Pyfunc; py != nil && len(py.Artifacts) > 0 {
		return t.fromArtifacts(slices.Sorted(maps.Keys(py.Artifacts)), func(key string) string { return py.Artifacts[key].Path })
	}
	return Layout{}, false, nil
}

// fromArtifacts takes the one pyfunc artifact that holds a model.
func (t tree) fromArtifacts(keys []string, pathOf func(string) string) (Layout, bool, error) {
	var models []string
	for _, key := range keys {
		dir, err := localFolder("artifacts."+key+".path", pathOf(key))
		if err != nil {
			return Layout{}, false, err
		}
		if dir == "" || !t.hasFolder(dir) {
			continue
		}
		found, err := t.shallowest(dir)
		switch {
		case errors.Is(err, errNoWeights):
			continue // an artifact without weights: a prompt, a table
		case err != nil:
			return Layout{}, false, err
		}
		models = append(models, found)
	}
	switch len(models) {
	case 0:
		return Layout{}, false, nil
	case 1:
		return Layout{Kind: LayoutPyfunc, Model: models[0]}, true, nil
	}
	return Layout{}, false, fmt.Errorf("%w: several artifacts of the pyfunc model hold models (%s): choose one with --sub-path", ErrUsage, oneLine(strings.Join(models, ", ")))
}

func (t tree) hasFolder(dir string) bool {
	for name := range t.files {
		if strings.HasPrefix(name, dir+"/") {
			return true
		}
	}
	return false
}

// localFolder cleans a path that MLmodel names; it must stay in the version.
func localFolder(field, name string) (string, error) {
	if name == "" {
		return "", nil
	}
	clean := path.Clean(name)
	if reason := checkKey(clean); reason != "" || clean == "." {
		return "", fmt.Errorf("%w: %s of MLmodel is %q: want a folder of the version", ErrIntegrity, field, oneLine(name))
	}
	return clean, nil
}

// writeLayout makes the links of a staged version; an earlier run may have left
// some. The folder that holds them is synced with the manifest.
func writeLayout(root folder, l Layout) error {
	for name, dir := range map[string]string{ModelLink: l.Model, TokenizerLink: l.Tokenizer} {
		if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return localError(fmt.Errorf("removing an old %s: %w", name, err))
		}
		if err := root.Symlink(path.Join("..", dir), name); err != nil {
			return localError(fmt.Errorf("creating the link %s: %w", name, err))
		}
	}
	return nil
}

// layoutIntact reports whether a version's links are as its manifest says.
func layoutIntact(root *os.Root, dir string, l *Layout) bool {
	if l == nil {
		return true // a manifest written without
	}
	for name, want := range map[string]string{ModelLink: l.Model, TokenizerLink: l.Tokenizer} {
		got, err := root.Readlink(path.Join(dir, name))
		if err != nil || got != path.Join("..", want) {
			return false
		}
	}
	return true
}
