package plane

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	authv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/pilotlight-dev/pilotlight/internal/freeport"
)

// Options say what to start.
type Options struct {
	// Bin holds etcd, kube-apiserver, kube-controller-manager, keda-operator and
	// keda-adapter; required.
	Bin string
	// CRDs holds KEDA's CustomResourceDefinitions, one YAML file each; required.
	CRDs string
	// Dir is for everything the run writes; required, and empty.
	Dir string
	// Logs is for the output of every process; "" is Dir/logs.
	Logs string
	// HPASync is the time between the HPA's looks; 0 is 5 s (users have 15 s).
	HPASync time.Duration
	// StoreOnly leaves out all that acts: there are etcd, kube-apiserver and
	// KEDA's CustomResourceDefinitions, but no controller and no KEDA.
	StoreOnly bool
}

// Plane is a running control plane.
type Plane struct {
	Options
	// Config reaches the API server as a member of system:masters.
	Config *rest.Config
	Client kubernetes.Interface
	Dyn    dynamic.Interface
	// Host is the API server's host:port.
	Host string

	ctx      context.Context //nolint:containedctx // the life of the processes
	stop     context.CancelFunc
	procs    []*Process
	operator *Process
	tokens   string // file with the users
	ports    struct{ etcd, peer, api, controllers, scheduler, operatorMetrics, operatorProbe, operatorGRPC, adapter, adapterMetrics int }
}

const startLimit = 4 * time.Minute // seconds, on a machine with nothing else to do

// Start brings the plane up, or nothing of it.
func Start(ctx context.Context, opts Options) (_ *Plane, err error) {
	if opts.HPASync <= 0 {
		opts.HPASync = 5 * time.Second
	}
	if opts.Logs == "" {
		opts.Logs = filepath.Join(opts.Dir, "logs")
	}
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	p := &Plane{Options: opts, ctx: life, stop: stop}
	defer func() {
		if err != nil {
			p.Close()
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	for _, step := range []struct {
		name string
		do   func(context.Context) error
		acts bool
	}{
		{"preparing", p.prepare, false},
		{"starting etcd", p.startEtcd, false},
		{"starting kube-apiserver", p.startAPI, false},
		{"starting kube-controller-manager", p.startControllers, true},
		{"installing KEDA", p.installKEDA, false},
		{"starting KEDA's operator", p.startOperator, true},
		{"starting KEDA's adapter", p.startAdapter, true},
	} {
		if step.acts && opts.StoreOnly {
			continue
		}
		if err := step.do(ctx); err != nil {
			return nil, fmt.Errorf("%s: %w", step.name, err)
		}
	}
	return p, nil
}

// Close ends every process.
func (p *Plane) Close() {
	for i := len(p.procs) - 1; i >= 0; i-- {
		_ = p.procs[i].Stop(5 * time.Second) // killed at the latest with the context
	}
	p.stop()
	for _, one := range p.procs {
		<-one.Done()
	}
}

func (p *Plane) file(name string) string { return filepath.Join(p.Dir, name) }

func (p *Plane) prepare(ctx context.Context) error {
	for _, port := range []*int{
		&p.ports.etcd, &p.ports.peer, &p.ports.api, &p.ports.controllers, &p.ports.scheduler, &p.ports.operatorMetrics,
		&p.ports.operatorProbe, &p.ports.operatorGRPC, &p.ports.adapter, &p.ports.adapterMetrics,
	} {
		var err error
		if *port, err = freeport.Port(ctx); err != nil {
			return err
		}
	}
	for _, dir := range []string{p.file("pki"), p.file("keda"), p.Logs} {
		if err := os.MkdirAll(dir, 0o750); err != nil {
			return err // names the folder
		}
	}
	ca, err := newAuthority(p.file("pki"), "ca")
	if err != nil {
		return err
	}
	front, err := newAuthority(p.file("pki"), "front-proxy-ca")
	if err != nil {
		return err
	}
	p.Host = "127.0.0.1:" + strconv.Itoa(p.ports.api)
	if err := errors.Join(
		ca.issue(p.file("pki"), "apiserver", "kube-apiserver", "127.0.0.1", "localhost", "kubernetes.default.svc"),
		front.issue(p.file("pki"), "front-proxy", "front-proxy"),
		serviceAccountKeys(p.file("pki")),
	); err != nil {
		return err
	}
	p.tokens = p.file("tokens.csv")
	admin := token()
	if err := os.WriteFile(p.tokens, fmt.Appendf(nil, "%s,admin,admin,system:masters\n", admin), 0o600); err != nil {
		return err // names the file
	}
	p.Config = &rest.Config{Host: "https://" + p.Host, BearerToken: admin, TLSClientConfig: rest.TLSClientConfig{CAFile: p.file("pki/ca.crt")}, QPS: 200, Burst: 400}
	if p.Client, err = kubernetes.NewForConfig(p.Config); err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	if p.Dyn, err = dynamic.NewForConfig(p.Config); err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	return p.Kubeconfig(p.file("admin.kubeconfig"), p.Host, admin)
}

// token is a bearer token that nobody guesses.
func token() string {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // never fails (crypto/rand)
	return hex.EncodeToString(b)
}

// Kubeconfig writes a kubeconfig that reaches host (the API server's own, or a
// proxy before it) with a token.
func (p *Plane) Kubeconfig(path, host, token string) error {
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: e2e
contexts: [{name: e2e, context: {cluster: e2e, user: e2e}}]
clusters: [{name: e2e, cluster: {server: "https://%s", certificate-authority: %q}}]
users: [{name: e2e, user: {token: %s}}]
`, host, p.file("pki/ca.crt"), token)
	return os.WriteFile(path, []byte(text), 0o600) // names the file
}

// start runs a program of the plane.
func (p *Plane) start(name string, env []string, binary string, args ...string) (*Process, error) {
	one, err := Run(p.ctx, p.Logs, name, env, filepath.Join(p.Bin, binary), args...)
	if err == nil {
		p.procs = append(p.procs, one)
	}
	return one, err
}

func (p *Plane) startEtcd(ctx context.Context) error {
	client, peer := "http://127.0.0.1:"+strconv.Itoa(p.ports.etcd), "http://127.0.0.1:"+strconv.Itoa(p.ports.peer)
	one, err := p.start("etcd", nil, "etcd", "--data-dir", p.file("etcd"), "--unsafe-no-fsync", "--log-level=warn",
		"--listen-client-urls", client, "--advertise-client-urls", client, "--listen-peer-urls", peer,
		"--initial-advertise-peer-urls", peer, "--initial-cluster", "default="+peer)
	if err != nil {
		return err
	}
	return until(ctx, one, func() error { return get(ctx, client+"/health") })
}

func (p *Plane) startAPI(ctx context.Context) error {
	pki := func(name string) string { return p.file("pki/" + name) }
	if err := os.WriteFile(p.file("audit-policy.yaml"), []byte(auditPolicy), 0o600); err != nil {
		return err // names the file
	}
	one, err := p.start("kube-apiserver", nil, "kube-apiserver",
		"--etcd-servers=http://127.0.0.1:"+strconv.Itoa(p.ports.etcd), "--bind-address=127.0.0.1", "--secure-port="+strconv.Itoa(p.ports.api),
		"--tls-cert-file="+pki("apiserver.crt"), "--tls-private-key-file="+pki("apiserver.key"), "--client-ca-file="+pki("ca.crt"),
		"--token-auth-file="+p.tokens, "--authorization-mode=RBAC", "--service-cluster-ip-range=10.0.0.0/16",
		"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file="+pki("sa.pub"), "--service-account-signing-key-file="+pki("sa.key"),
		"--requestheader-client-ca-file="+pki("front-proxy-ca.crt"), "--requestheader-allowed-names=front-proxy",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-", "--requestheader-group-headers=X-Remote-Group", "--requestheader-username-headers=X-Remote-User",
		"--proxy-client-cert-file="+pki("front-proxy.crt"), "--proxy-client-key-file="+pki("front-proxy.key"),
		"--endpoint-reconciler-type=none", "--disable-admission-plugins=ServiceAccount", "--profiling=false",
		"--audit-policy-file="+p.file("audit-policy.yaml"), "--audit-log-path="+p.auditLog())
	if err != nil {
		return err
	}
	return until(ctx, one, func() error {
		return p.Client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	})
}

func (p *Plane) startControllers(ctx context.Context) error {
	one, err := p.start("kube-controller-manager", nil, "kube-controller-manager",
		"--kubeconfig="+p.file("admin.kubeconfig"), "--leader-elect=false", "--bind-address=127.0.0.1", "--secure-port="+strconv.Itoa(p.ports.controllers),
		"--horizontal-pod-autoscaler-sync-period="+p.HPASync.String(), "--service-account-private-key-file="+p.file("pki/sa.key"), "--root-ca-file="+p.file("pki/ca.crt"),
		// Nobody plays a whole node, so that nobody may call it dead.
		"--controllers=*,-node-lifecycle-controller,-taint-eviction-controller,-node-ipam-controller,-cloud-node-lifecycle-controller,-persistentvolume-binder-controller,-persistentvolume-attach-detach-controller")
	if err != nil {
		return err
	}
	client := &http.Client{Timeout: 2 * time.Second, Transport: insecure()}
	defer client.CloseIdleConnections()
	return until(ctx, one, func() error {
		return getWith(ctx, client, fmt.Sprintf("https://127.0.0.1:%d/healthz", p.ports.controllers))
	})
}

// until tries until it succeeds, the process ends or ctx does.
func until(ctx context.Context, one *Process, try func() error) error {
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w: %s", ctx.Err(), err, one.Tail())
		case <-one.Done():
			return fmt.Errorf("%s has ended (%w): %s", one.Name, one.Err(), one.Tail())
		case <-ticker.C:
		}
	}
}

// ServiceAccountToken makes a ServiceAccount, if there is none, and returns a
// token for it. What it may do is for RBAC to say.
func (p *Plane) ServiceAccountToken(ctx context.Context, namespace, name string) (string, error) {
	accounts := p.Client.CoreV1().ServiceAccounts(namespace)
	if _, err := accounts.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return "", fmt.Errorf("making the ServiceAccount %s/%s: %w", namespace, name, err)
	}
	seconds := int64(validFor.Seconds())
	got, err := accounts.CreateToken(ctx, name, &authv1.TokenRequest{Spec: authv1.TokenRequestSpec{ExpirationSeconds: &seconds}}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("making a token for %s/%s: %w", namespace, name, err)
	}
	return got.Status.Token, nil
}
