package plane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"
)

// KEDANamespace is where KEDA believes to run.
const KEDANamespace = "keda"

var (
	crdResource        = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	apiServiceResource = schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}
	// ScaledObjects is KEDA's resource.
	ScaledObjects = schema.GroupVersionResource{Group: "keda.sh", Version: "v1alpha1", Resource: "scaledobjects"}
)

func (p *Plane) installKEDA(ctx context.Context) error {
	files, err := filepath.Glob(filepath.Join(p.CRDs, "*.yaml"))
	if err != nil || len(files) == 0 {
		return fmt.Errorf("no CustomResourceDefinitions in %s (%w)", p.CRDs, err)
	}
	for _, name := range files {
		if err := p.createFile(ctx, name); err != nil {
			return err
		}
	}
	for _, ns := range []string{KEDANamespace} {
		if _, err := p.Client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("making the namespace %s: %w", ns, err)
		}
	}
	return p.established(ctx)
}

func (p *Plane) createFile(ctx context.Context, name string) error {
	data, err := os.ReadFile(name) //nolint:gosec // a file of KEDA's module
	if err != nil {
		return err // names the file
	}
	var obj unstructured.Unstructured
	if err := yaml.Unmarshal(data, &obj.Object); err != nil {
		return fmt.Errorf("reading %s: %w", name, err)
	}
	if _, err := p.Dyn.Resource(crdResource).Create(ctx, &obj, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating %s: %w", name, err)
	}
	return nil
}

// established waits until ScaledObjects are served.
func (p *Plane) established(ctx context.Context) error {
	return poll(ctx, func() error {
		_, err := p.Dyn.Resource(ScaledObjects).List(ctx, metav1.ListOptions{Limit: 1})
		return err // names the resource
	})
}

// poll tries every 100 ms until it succeeds or ctx ends.
func poll(ctx context.Context, try func() error) error {
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-ticker.C:
		}
	}
}

const kedaCerts = "kedaorg-certs" // KEDA's default name

// startOperator starts it once to make the certificates, and again to use them.
func (p *Plane) startOperator(ctx context.Context) error {
	first, err := p.operatorProcess("keda-operator-first")
	if err != nil {
		return err
	}
	err = poll(ctx, func() error {
		secret, err := p.Client.CoreV1().Secrets(KEDANamespace).Get(ctx, kedaCerts, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err) || err == nil && len(secret.Data["tls.crt"]) == 0:
			return errors.New("no certificates yet")
		case err != nil:
			return err // names the secret
		}
		for name, data := range secret.Data {
			if err := os.WriteFile(filepath.Join(p.file("keda"), name), data, 0o600); err != nil {
				return err // names the file
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("%w: %s", err, first.Tail())
	}
	if err := first.Kill(); err != nil {
		return err
	}
	return p.RestartKEDA(ctx)
}

func (p *Plane) operatorProcess(name string) (*Process, error) {
	return p.start(name, []string{"POD_NAMESPACE=" + KEDANamespace, "POD_NAME=keda-operator", "WATCH_NAMESPACE=", "KEDA_CLUSTER_OBJECT_NAMESPACE=" + KEDANamespace},
		"keda-operator", "--kubeconfig="+p.file("admin.kubeconfig"), "--enable-cert-rotation=true", "--enable-webhook-patching=false", "--enable-apiservice-patching=false",
		"--cert-dir="+p.file("keda"), "--zap-log-level=info", "--zap-encoder=console",
		"--metrics-bind-address=127.0.0.1:"+strconv.Itoa(p.ports.operatorMetrics), "--health-probe-bind-address=127.0.0.1:"+strconv.Itoa(p.ports.operatorProbe),
		"--metrics-service-bind-address=127.0.0.1:"+strconv.Itoa(p.ports.operatorGRPC), "--kube-api-qps=200", "--kube-api-burst=400")
}

// RestartKEDA kills the operator, if it runs, starts it, and waits until it is
// ready.
func (p *Plane) RestartKEDA(ctx context.Context) error {
	if p.operator != nil {
		if err := p.operator.Kill(); err != nil {
			return err
		}
	}
	one, err := p.operatorProcess("keda-operator")
	if err != nil {
		return err
	}
	p.operator = one
	return until(ctx, one, func() error { return get(ctx, "http://127.0.0.1:"+strconv.Itoa(p.ports.operatorProbe)+"/readyz") })
}

func (p *Plane) startAdapter(ctx context.Context) error {
	config := p.file("admin.kubeconfig")
	one, err := p.start("keda-adapter", []string{"POD_NAMESPACE=" + KEDANamespace, "WATCH_NAMESPACE=", "KUBECONFIG=" + config}, "keda-adapter",
		"--secure-port="+strconv.Itoa(p.ports.adapter), "--bind-address=127.0.0.1", "--port="+strconv.Itoa(p.ports.adapterMetrics),
		"--lister-kubeconfig="+config, "--authentication-kubeconfig="+config, "--authorization-kubeconfig="+config,
		"--client-ca-file="+p.file("keda/ca.crt"), "--requestheader-client-ca-file="+p.file("pki/front-proxy-ca.crt"), "--cert-dir="+p.file("keda"),
		"--tls-cert-file="+p.file("keda/tls.crt"), "--tls-private-key-file="+p.file("keda/tls.key"),
		"--metrics-service-address=127.0.0.1:"+strconv.Itoa(p.ports.operatorGRPC), "--metrics-service-grpc-authority=keda-operator.keda.svc")
	if err != nil {
		return err
	}
	if err := p.aggregate(ctx); err != nil {
		return err
	}
	return until(ctx, one, func() error {
		return p.Client.Discovery().RESTClient().Get().AbsPath("/apis/external.metrics.k8s.io/v1beta1").Do(ctx).Error()
	})
}

// aggregate makes the API server ask the adapter for external metrics.
func (p *Plane) aggregate(ctx context.Context) error {
	_, err := p.Client.CoreV1().Services(KEDANamespace).Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "keda-metrics-apiserver"},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost", Ports: []corev1.ServicePort{{Port: int32(p.ports.adapter)}}}, //nolint:gosec // a port
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("making the adapter's Service: %w", err)
	}
	text := strings.ReplaceAll(`
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1beta1.external.metrics.k8s.io}
spec:
  group: external.metrics.k8s.io
  version: v1beta1
  groupPriorityMinimum: 100
  versionPriority: 100
  insecureSkipTLSVerify: true
  service: {namespace: keda, name: keda-metrics-apiserver, port: PORT}
`, "PORT", strconv.Itoa(p.ports.adapter))
	var obj unstructured.Unstructured
	if err := yaml.Unmarshal([]byte(text), &obj.Object); err != nil {
		return err // a constant
	}
	if _, err := p.Dyn.Resource(apiServiceResource).Create(ctx, &obj, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("making the APIService: %w", err)
	}
	return nil
}
