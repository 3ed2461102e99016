package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/pilotlight-dev/pilotlight/internal/tlsconf"
	"github.com/pilotlight-dev/pilotlight/internal/tlsconf/tlstest"
)

var triggerAuthentications = schema.GroupVersionResource{Group: "keda.sh", Version: "v1alpha1", Resource: "triggerauthentications"}

const authenticationYAML = `
apiVersion: keda.sh/v1alpha1
kind: TriggerAuthentication
metadata: {name: scaler}
spec:
  secretTargetRef:
  - {parameter: caCert, name: scaler-client, key: ca.crt}
  - {parameter: tlsClientCert, name: scaler-client, key: tls.crt}
  - {parameter: tlsClientKey, name: scaler-client, key: tls.key}
`

// certificates are those of one scenario. The scaler's own is of one authority,
// those of its clients are of others.
type certificates struct {
	ca     *tlstest.CA // of the scaler and the activator
	server tlsconf.Files
	mine   tlsconf.Files // the activator's
	keda   tlsconf.Files
}

func issue(t *testing.T, ca *tlstest.CA, dir, name string) tlsconf.Files {
	t.Helper()
	files, err := ca.Issue(dir, name)
	require.NoError(t, err)
	return files
}

func authority(t *testing.T, name string) *tlstest.CA {
	t.Helper()
	ca, err := tlstest.New(name)
	require.NoError(t, err)
	return ca
}

// secure starts the programs with TLS, and the ScaledObject with a
// TriggerAuthentication, whose Secret holds the parameters' files.
func (s *scenario) secure(parameters ...string) *certificates {
	s.t.Helper()
	c := &certificates{ca: authority(s.t, "scaler-ca")}
	c.server, c.mine = issue(s.t, c.ca, s.t.TempDir(), "server"), issue(s.t, c.ca, s.t.TempDir(), "activator")
	c.keda = issue(s.t, authority(s.t, "keda-ca"), s.t.TempDir(), "keda")
	s.secret(c)
	var auth unstructured.Unstructured
	require.NoError(s.t, yaml.Unmarshal([]byte(authenticationYAML), &auth.Object))
	spec := auth.Object["spec"].(map[string]any)
	spec["secretTargetRef"] = slices.DeleteFunc(spec["secretTargetRef"].([]any), func(one any) bool {
		return !slices.Contains(parameters, one.(map[string]any)["parameter"].(string))
	})
	_, err := s.Dyn.Resource(triggerAuthentications).Namespace(s.ns).Create(s.t.Context(), &auth, metav1.CreateOptions{})
	require.NoError(s.t, err)
	return c
}

// secret writes the Secret of the TriggerAuthentication.
func (s *scenario) secret(c *certificates) {
	s.t.Helper()
	secret := corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "scaler-client"}, StringData: map[string]string{}}
	for key, name := range map[string]string{"ca.crt": c.server.CA, "tls.crt": c.keda.Cert, "tls.key": c.keda.Key} {
		data, err := os.ReadFile(name)
		require.NoError(s.t, err)
		secret.StringData[key] = string(data)
	}
	secrets := s.Client.CoreV1().Secrets(s.ns)
	_, err := secrets.Create(s.t.Context(), &secret, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		_, err = secrets.Update(s.t.Context(), &secret, metav1.UpdateOptions{})
	}
	require.NoError(s.t, err)
}

// scalerTLS are the scaler's flags for mutual TLS.
func (c *certificates) scalerTLS() []string {
	return []string{
		"--tls-cert-file", c.server.Cert, "--tls-key-file", c.server.Key,
		"--tls-client-ca-file", c.keda.CA, "--demand-tls-client-ca-file", c.mine.CA,
	}
}

func (s *scenario) secureActivator(c *certificates) {
	s.t.Helper()
	s.startActivator("--tls-ca-file", c.server.CA, "--tls-cert-file", c.mine.Cert, "--tls-key-file", c.mine.Key)
}

// KEDA checks who answers, and shows nothing of its own.
func TestServerTLS(t *testing.T) {
	t.Parallel()
	s := play(t, options{noScaler: true, noScaled: true})
	c := s.secure("caCert")
	s.startScaler("--tls-cert-file", c.server.Cert, "--tls-key-file", c.server.Key)
	s.secureActivator(c)
	s.scaledObject(options{trigger: map[string]string{"enableTLS": "true"}, authentication: "scaler"})
	s.awaitScaledObject()
	s.mark("one request")
	s.good(s.ask(t.Context(), 5))
	s.await(0, 90*time.Second)
}

// KEDA proves who it is and checks who answers (mTLS by a TriggerAuthentication),
// and goes on after the scaler's certificate has been renewed on disk.
func TestMutualTLSWithRotation(t *testing.T) {
	t.Parallel()
	s := play(t, options{noScaler: true, noScaled: true})
	c := s.secure("caCert", "tlsClientCert", "tlsClientKey")
	s.startScaler(c.scalerTLS()...)
	s.secureActivator(c)
	s.scaledObject(options{trigger: map[string]string{"enableTLS": "true"}, authentication: "scaler"})
	s.awaitScaledObject()
	s.mark("one request")
	s.good(s.ask(t.Context(), 5))
	s.await(0, 90*time.Second)

	s.mark("the scaler's certificate is renewed on disk")
	c.server = issue(t, c.ca, filepath.Dir(c.server.Cert), "server")
	s.good(s.ask(t.Context(), 5))
	s.await(0, 90*time.Second)

	s.mark("the scaler is restarted with it")
	require.NoError(t, s.scaler.Kill())
	s.startScaler(c.scalerTLS()...)
	s.good(s.ask(t.Context(), 5))
	s.await(0, 90*time.Second)
}

// KEDA's own certificate is renewed, by another authority: the Secret of the
// TriggerAuthentication and the file of the scaler that says whom it believes
// change, and the former certificate is worth nothing any more.
func TestClientCertificateRotated(t *testing.T) {
	t.Parallel()
	s := play(t, options{noScaler: true, noScaled: true})
	c := s.secure("caCert", "tlsClientCert", "tlsClientKey")
	s.startScaler(c.scalerTLS()...)
	s.secureActivator(c)
	s.scaledObject(options{trigger: map[string]string{"enableTLS": "true"}, authentication: "scaler"})
	s.awaitScaledObject()

	s.mark("KEDA's certificate is of another authority now")
	c.keda = issue(t, authority(t, "keda-ca-2"), filepath.Dir(c.keda.Cert), "keda")
	s.secret(c)
	s.good(s.ask(t.Context(), 5)) // what is connected stays so
	s.await(0, 90*time.Second)

	s.mark("the scaler is restarted: everybody connects anew")
	require.NoError(t, s.scaler.Kill())
	s.startScaler(c.scalerTLS()...)
	s.good(s.ask(t.Context(), 5))
	s.await(0, 90*time.Second)
}

// KEDA's operator is killed and comes back: at N nothing changes, and at zero a
// request wakes the model again. It is not played beside others, who have the same
// operator.
func TestKEDARestarted(t *testing.T) {
	s := play(t, options{scalerArgs: []string{"--gauge-lag", "5s"}}) // so that it takes less long
	l := s.press(8, 100)
	s.await(2, 60*time.Second)
	s.mark("KEDA's operator is killed and started again")
	require.NoError(t, s.RestartKEDA(t.Context()))
	s.atLeastTwo(10 * time.Second)
	_, bad := l.end()
	require.Empty(t, bad)
	s.await(0, 90*time.Second)
	s.mark("and again at zero")
	require.NoError(t, s.RestartKEDA(t.Context()))
	s.good(s.ask(t.Context(), 5))
	s.await(0, 60*time.Second)
}
