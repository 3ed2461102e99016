package scalercmd

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"

	"github.com/pilotlight-dev/pilotlight/cmd/internal/cli"
	"github.com/pilotlight-dev/pilotlight/cmd/internal/clusterflags"
	"github.com/pilotlight-dev/pilotlight/warmup/coldstart"
	"github.com/pilotlight-dev/pilotlight/warmup/coldstart/configmap"
	"github.com/pilotlight-dev/pilotlight/warmup/coldstart/filestore"
)

// stateFlags say where the scaler remembers across restarts.
type stateFlags struct{ namespace, file string }

func (f *stateFlags) add(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&f.namespace, "state-namespace", "", "remember learned start times and holds in ConfigMaps of this namespace (default: $POD_NAMESPACE)")
	fs.StringVar(&f.file, "state-file", "", "remember them in this file instead")
}

// open returns the store that the flags ask for, nil if there is none: then a
// restart begins anew, and in a cluster that deserves a warning. Errors are
// usage errors.
func (f stateFlags) open(cluster clusterflags.Flags, getenv func(string) string, log *slog.Logger) (coldstart.Store, error) {
	switch {
	case f.file != "" && f.namespace != "":
		return nil, cli.Usage("--state-file and --state-namespace: give one of them")
	case f.namespace != "" && cluster.Static != "":
		return nil, cli.Usage("--state-namespace needs a cluster: with --static-targets, give --state-file")
	case f.file != "":
		return openFile(f.file)
	case cluster.Static != "":
		return nil, nil
	}
	namespace := f.namespace
	if namespace == "" {
		namespace = getenv("POD_NAMESPACE")
	}
	if namespace == "" {
		log.Warn("what is learned is lost with this process: set POD_NAMESPACE or give --state-namespace")
		return nil, nil
	}
	return openConfigMaps(cluster, namespace, getenv)
}

// openFile checks what would otherwise fail only at the first write.
func openFile(path string) (coldstart.Store, error) {
	info, err := os.Stat(filepath.Dir(path))
	if err != nil {
		return nil, cli.Usage("--state-file: %w", err)
	}
	if !info.IsDir() {
		return nil, cli.Usage("--state-file: %s is not a folder", filepath.Dir(path))
	}
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return nil, cli.Usage("--state-file: %s is not a file", path)
	} else if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, cli.Usage("--state-file: %w", err)
	}
	return filestore.Store{Path: path}, nil
}

// openConfigMaps makes a client of its own, so that a flood of pod lists does
// not delay the last write.
func openConfigMaps(cluster clusterflags.Flags, namespace string, getenv func(string) string) (coldstart.Store, error) {
	config, err := cluster.Config(getenv)
	if err != nil {
		return nil, err
	}
	config.Burst = 2 * configmap.Shards
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, cli.Usage("--kubeconfig: %w", err)
	}
	return configmap.Store{Client: client, Namespace: namespace}, nil
}
