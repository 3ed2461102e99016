package deploy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"

	"github.com/pilotlight-dev/pilotlight/test/e2e/plane"
)

// server is a real API server with everybody's CustomResourceDefinitions.
type server struct {
	*plane.Plane
	mapper meta.RESTMapper
}

var (
	theServer *server
	closeAll  = func() {}
	starting  sync.Once
	startErr  error
)

func TestMain(m *testing.M) {
	code := m.Run()
	closeAll()
	_ = os.RemoveAll(binDir)
	os.Exit(code)
}

// apiServer returns the server, which the first test that asks starts.
func apiServer(t *testing.T) *server {
	t.Helper()
	bin := os.Getenv("PILOTLIGHT_E2E_BIN")
	if bin == "" {
		t.Skip("needs a control plane: run make verify-deploy")
	}
	starting.Do(func() { theServer, startErr = start(bin, os.Getenv("PILOTLIGHT_E2E_CRDS")) })
	require.NoError(t, startErr)
	return theServer
}

func start(bin, crds string) (*server, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 8*time.Minute)
	defer cancel()
	var p *plane.Plane
	for tries := 3; ; tries-- {
		dir, err := os.MkdirTemp("", "pilotlight-deploy")
		if err != nil {
			return nil, err
		}
		p, err = plane.Start(ctx, plane.Options{Bin: bin, CRDs: crds, Dir: dir})
		if err == nil {
			break
		}
		_ = os.RemoveAll(dir)
		if tries == 1 { // else another program of the machine may have taken a port
			return nil, err
		}
	}
	closeAll = func() { p.Close(); _ = os.RemoveAll(p.Dir) }
	s := &server{Plane: p}
	if err := s.installCRDs(ctx); err != nil {
		return nil, err
	}
	for _, name := range []string{"ai", "monitoring", "mlops", "nlp-team", "training", "batch", "retail", "nvidia-device-plugin", "gpu-operator"} {
		_, err := p.Client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		if err != nil {
			return nil, fmt.Errorf("making the namespace %s: %w", name, err)
		}
	}
	return s, s.discover()
}

// discover asks the server what it serves.
func (s *server) discover() error {
	groups, err := restmapper.GetAPIGroupResources(discovery.NewDiscoveryClient(s.Client.Discovery().RESTClient()))
	if err != nil {
		return fmt.Errorf("asking what the server serves: %w", err)
	}
	s.mapper = restmapper.NewDiscoveryRESTMapper(groups)
	return nil
}

var crdKind = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// installCRDs creates those of crds.txt and waits until they are served.
func (s *server) installCRDs(ctx context.Context) error {
	list, err := os.ReadFile("crds.txt")
	if err != nil {
		return err
	}
	var names []string
	for line := range strings.Lines(string(list)) {
		if fields := strings.Fields(line); len(fields) > 0 && !strings.HasPrefix(line, "#") {
			made, err := s.installModule(ctx, fields)
			if err != nil {
				return fmt.Errorf("%s: %w", fields[0], err)
			}
			names = append(names, made...)
		}
	}
	for _, name := range names {
		if err := s.established(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// installModule creates the CustomResourceDefinitions of one line of crds.txt.
func (s *server) installModule(ctx context.Context, fields []string) (names []string, err error) {
	if len(fields) != 4 && len(fields) != 6 {
		return nil, fmt.Errorf("crds.txt: want module, version, checksum and folder, and perhaps a pattern and OLD=NEW, not %d words", len(fields))
	}
	cmd := exec.CommandContext(ctx, "go", "mod", "download", "-json", fields[0]+"@"+fields[1])
	cmd.Dir = os.TempDir() // outside of any module, whose go.sum would be asked
	out, err := cmd.Output()
	var module struct{ Dir, Sum string }
	if err = errors.Join(err, json.Unmarshal(out, &module)); err != nil {
		return nil, fmt.Errorf("downloading the module: %w", err)
	}
	if module.Sum != fields[2] {
		return nil, fmt.Errorf("the module's checksum is %s, and crds.txt says %s", module.Sum, fields[2])
	}
	pattern, rename := "*.yaml", []string{"", ""}
	if len(fields) == 6 {
		pattern, rename = fields[4], strings.Split(fields[5], "=")
	}
	files, err := filepath.Glob(filepath.Join(module.Dir, fields[3], pattern))
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("no definitions in %s (%w)", fields[3], err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		if rename[0] != "" {
			data = bytes.ReplaceAll(data, []byte(rename[0]), []byte(rename[1]))
		}
		docs, err := Split(filepath.Base(file), string(data))
		if err != nil {
			return nil, err
		}
		for _, d := range docs {
			if d.Object.GetKind() != "CustomResourceDefinition" {
				continue
			}
			_, err := s.Dyn.Resource(crdKind).Create(ctx, &d.Object, metav1.CreateOptions{})
			if err != nil && !apierrors.IsAlreadyExists(err) {
				return nil, fmt.Errorf("creating %s: %w", d, err)
			}
			names = append(names, d.Object.GetName())
		}
	}
	return names, nil
}

func (s *server) established(ctx context.Context, name string) error {
	for {
		crd, err := s.Dyn.Resource(crdKind).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("reading the definition %s: %w", name, err)
		}
		conditions, _, _ := unstructured.NestedSlice(crd.Object, "status", "conditions")
		for _, one := range conditions {
			if c := one.(map[string]any); c["type"] == "Established" && c["status"] == "True" {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for the definition %s: %w", name, ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// warnings collects what the server says beside its answer.
type warnings struct {
	mu   sync.Mutex
	list []string
}

func (w *warnings) HandleWarningHeader(_ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.list = append(w.list, text)
}

// dryRun creates a document without keeping it, with strict validation, and
// returns the server's refusal and its warnings.
func (s *server) dryRun(ctx context.Context, d Document) ([]string, error) {
	gvk := d.Object.GroupVersionKind()
	mapping, err := s.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return nil, err // names the kind
	}
	said := &warnings{}
	config := rest.CopyConfig(s.Config)
	config.WarningHandler = said
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	var target dynamic.ResourceInterface = client.Resource(mapping.Resource)
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		ns := d.Object.GetNamespace()
		if ns == "" {
			ns = "default"
		}
		target = client.Resource(mapping.Resource).Namespace(ns)
	}
	_, err = target.Create(ctx, d.Object.DeepCopy(), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict})
	return said.list, err
}

// accepted fails the test for each document that the server refuses, or takes
// with a warning.
func (s *server) accepted(t *testing.T, name string, docs []Document) {
	t.Helper()
	require.NotEmpty(t, docs, name)
	for _, d := range docs {
		said, err := s.dryRun(t.Context(), d)
		if err != nil || len(said) > 0 {
			t.Errorf("%s: %s: %v %q", name, d, err, said)
		}
	}
}

func TestTheServerAcceptsEveryRender(t *testing.T) {
	t.Parallel()
	s := apiServer(t)
	for _, c := range renders(t) {
		s.accepted(t, c.name, c.docs)
	}
}

// A check that accepts everything would be none.
func TestTheServerRefusesABrokenRender(t *testing.T) {
	t.Parallel()
	s := apiServer(t)
	docs, _, err := Render(model)
	require.NoError(t, err)
	broken := strings.NewReplacer(
		"maxReplicaCount", "maxReplicas", "maxSurge: 0, maxUnavailable: 1", "maxSurge: 0, maxUnavailable: 0",
		"targetPort: http", "targetPort: HTTP", "unhealthyPodEvictionPolicy: AlwaysAllow", "unhealthyPodEvictionPolicy: Always",
	).Replace(Text(docs))
	docs, err = Split("broken", broken)
	require.NoError(t, err)
	refused := map[string]string{}
	for _, d := range docs {
		if _, err := s.dryRun(t.Context(), d); err != nil {
			refused[d.Object.GetKind()] = err.Error()
		}
	}
	require.Contains(t, refused["ScaledObject"], `unknown field "spec.maxReplicas"`)
	require.Contains(t, refused["Deployment"], "may not be 0 when `maxSurge` is 0")
	require.Contains(t, refused["Service"], "must contain only alpha-numeric characters")
	require.Contains(t, refused["PodDisruptionBudget"], "unhealthyPodEvictionPolicy")
}
