package repo

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/pilotlight-dev/pilotlight"

// root is the folder of the module, seen from this package.
const root = "../.."

// tree is the project as it lies on disk.
func tree() fs.FS { return os.DirFS(root) }

// built are folders of what is made, not of what is written.
var built = map[string]bool{".git": true, "bin": true, "build": true}

// files calls do with every file of the project, in order, whose path ends in
// suffix.
func files(t *testing.T, fsys fs.FS, suffix string, do func(path, content string)) {
	t.Helper()
	require.NoError(t, fs.WalkDir(fsys, ".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && built[path]:
			return fs.SkipDir
		case !d.Type().IsRegular() || !strings.HasSuffix(path, suffix):
			return nil
		}
		content, err := fs.ReadFile(fsys, path)
		if err != nil {
			return err
		}
		do(path, string(content))
		return nil
	}))
}

// exists reports whether path is a file or folder of fsys.
func exists(fsys fs.FS, path string) bool {
	_, err := fs.Stat(fsys, strings.TrimSuffix(path, "/"))
	return err == nil
}

func inTestdata(path string) bool {
	return slices.Contains(strings.Split(path, "/"), "testdata")
}

// programFiles lists the project's own files that the programs under cmd are
// compiled from, relative to the root.
func programFiles(t *testing.T) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-json=Module,Dir,GoFiles,EmbedFiles", "./cmd/...")
	cmd.Dir = root
	out, err := cmd.Output()
	require.NoError(t, err)
	top, err := filepath.Abs(root)
	require.NoError(t, err)
	var list []string
	for dec := json.NewDecoder(bytes.NewReader(out)); dec.More(); {
		var p struct {
			Module              struct{ Main bool }
			Dir                 string
			GoFiles, EmbedFiles []string
		}
		require.NoError(t, dec.Decode(&p))
		if !p.Module.Main {
			continue
		}
		dir, err := filepath.Rel(top, p.Dir)
		require.NoError(t, err)
		for _, name := range slices.Concat(p.GoFiles, p.EmbedFiles) {
			list = append(list, filepath.ToSlash(filepath.Join(dir, name)))
		}
	}
	return list
}
