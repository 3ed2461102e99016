package mlflow_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/stretchr/testify/require"

	fake "github.com/pilotlight-dev/pilotlight/internal/fake/mlflow"
	"github.com/pilotlight-dev/pilotlight/registry"
	"github.com/pilotlight-dev/pilotlight/registry/mlflow"
)

// headers runs a registry that remembers the headers of its last request.
func headers(t *testing.T) (seen func() http.Header, url string) {
	t.Helper()
	var mu sync.Mutex
	var last http.Header
	_, url = newRegistry(t, fake.Options{Intercept: func(_ http.ResponseWriter, r *http.Request) bool {
		mu.Lock()
		defer mu.Unlock()
		last = r.Header.Clone()
		return false
	}})
	return func() http.Header { mu.Lock(); defer mu.Unlock(); return last }, url
}

// fromEnv is the client that a user's variables make.
func fromEnv(t *testing.T, env map[string]string) *mlflow.Client {
	t.Helper()
	cfg, err := mlflow.ConfigFromEnv(func(k string) string { return env[k] })
	require.NoError(t, err)
	return newClient(t, cfg)
}

func basic(user, password string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))
}

// home is a home folder with MLflow's credentials file.
func home(t *testing.T, content string) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, ".mlflow"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, ".mlflow", "credentials"), []byte(content), 0o600))
	return dir
}

func TestCredentialsAsMLflowChoosesThem(t *testing.T) {
	file := home(t, "; comment\n[other]\nmlflow_tracking_username = bob\n[mlflow]\nMLFLOW_TRACKING_USERNAME = file\nmlflow_tracking_password: fi=le:pw\n# end\n")
	tests := map[string]struct {
		env    map[string]string
		want   string
		reason string
	}{
		"None":              {nil, "", ""},
		"BasicBeatsToken":   {map[string]string{"MLFLOW_TRACKING_USERNAME": "ann", "MLFLOW_TRACKING_PASSWORD": "pw", "MLFLOW_TRACKING_TOKEN": "tok"}, basic("ann", "pw"), "although MLflow's comment says otherwise"},
		"UserAlone":         {map[string]string{"MLFLOW_TRACKING_USERNAME": "ann", "MLFLOW_TRACKING_TOKEN": "tok"}, "Bearer tok", "half of Basic is none"},
		"File":              {map[string]string{"HOME": file}, basic("file", "fi=le:pw"), "~/.mlflow/credentials"},
		"FileBeatsToken":    {map[string]string{"HOME": file, "MLFLOW_TRACKING_TOKEN": "tok"}, basic("file", "fi=le:pw"), "it is Basic"},
		"EnvBeatsFile":      {map[string]string{"HOME": file, "MLFLOW_TRACKING_USERNAME": "ann", "MLFLOW_TRACKING_PASSWORD": "pw"}, basic("ann", "pw"), ""},
		"FileFillsIn":       {map[string]string{"HOME": file, "MLFLOW_TRACKING_USERNAME": "ann"}, basic("ann", "fi=le:pw"), "each half by itself"},
		"NoFile":            {map[string]string{"HOME": "/nonexistent", "MLFLOW_TRACKING_TOKEN": "tok"}, "Bearer tok", ""},
		"FileOfNoUse":       {map[string]string{"HOME": home(t, "just text"), "MLFLOW_TRACKING_TOKEN": "tok"}, "Bearer tok", ""},
		"PluginAndToken":    {map[string]string{"MLFLOW_TRACKING_AUTH": "kubernetes", "MLFLOW_TRACKING_TOKEN": "tok"}, "Bearer tok", "what can be done is"},
		"SigV4OffIsNoSigV4": {map[string]string{"MLFLOW_TRACKING_AWS_SIGV4": "False", "MLFLOW_TRACKING_TOKEN": "tok"}, "Bearer tok", "Python's spelling"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			seen, url := headers(t)
			env := map[string]string{"MLFLOW_TRACKING_URI": url}
			for k, v := range tc.env {
				env[k] = v
			}
			_, err := resolve(t, fromEnv(t, env), champion)
			require.NoError(t, err)
			require.Equal(t, tc.want, seen().Get("Authorization"), tc.reason)
		})
	}
}

func TestCredentialsFileIsBounded(t *testing.T) {
	big := home(t, strings.Repeat("x", 100<<10))
	cfg, err := mlflow.ConfigFromEnv(func(k string) string { return map[string]string{"HOME": big, "MLFLOW_TRACKING_URI": "http://a"}[k] })
	require.NoError(t, err)
	_, err = mlflow.New(cfg)
	require.ErrorIs(t, err, mlflow.ErrConfig)
	require.ErrorContains(t, err, ".mlflow/credentials")
}

// The registry may be another server, and MLflow has one set of credentials.
func TestTrackingAndRegistryShareCredentials(t *testing.T) {
	tracking, trackingURL := newRegistry(t, fake.Options{Token: "tok"})
	tracking.AddRun("abc", "s3://weights/run")
	reg, regURL := newRegistry(t, fake.Options{Token: "tok"})
	_, err := reg.CreateVersion("run", "runs:/abc/model")
	require.NoError(t, err)
	_, err = resolve(t, fromEnv(t, map[string]string{
		"MLFLOW_TRACKING_URI": trackingURL, "MLFLOW_REGISTRY_URI": regURL, "MLFLOW_TRACKING_TOKEN": "tok",
	}), "models:/run/1")
	require.NoError(t, err)
}

func TestSigV4SignsForExecuteAPI(t *testing.T) {
	at := time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC)
	creds := aws.Credentials{AccessKeyID: "AKIDEXAMPLE", SecretAccessKey: "hunter2", SessionToken: "session"}
	var problems []string
	var mu sync.Mutex
	_, url := newRegistry(t, fake.Options{Intercept: func(_ http.ResponseWriter, r *http.Request) bool {
		mu.Lock()
		defer mu.Unlock()
		if problem := wrongSignature(r, creds, at); problem != "" {
			problems = append(problems, problem)
		}
		return false
	}})
	cfg, err := mlflow.ConfigFromEnv(func(k string) string {
		return map[string]string{
			"MLFLOW_TRACKING_URI": url + "/", "MLFLOW_TRACKING_AWS_SIGV4": "true", "AWS_REGION": "eu-west-1",
			"MLFLOW_TRACKING_USERNAME": "ann", "MLFLOW_TRACKING_PASSWORD": "pw", "MLFLOW_WORKSPACE": "team",
		}[k]
	})
	require.NoError(t, err)
	cfg.AWSCredentials = func(context.Context) (aws.Credentials, error) { return creds, nil }
	cfg.Now = func() time.Time { return at }
	require.NotContains(t, fmt.Sprintf("%+v", cfg), "hunter2")
	c := newClient(t, cfg)
	_, err = resolve(t, c, champion)
	require.NoError(t, err)
	_, err = c.Move(t.Context(), championRef(t), promote("2", "1"))
	require.NoError(t, err)
	require.Empty(t, problems)
}

// wrongSignature signs the request again, as a gateway does, and compares.
func wrongSignature(r *http.Request, creds aws.Credentials, at time.Time) string {
	auth := r.Header.Get("Authorization")
	if !strings.HasPrefix(auth, "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20260301/eu-west-1/execute-api/aws4_request") {
		return "not signed for execute-api: " + auth
	}
	body, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(strings.NewReader(string(body)))
	again, err := http.NewRequestWithContext(r.Context(), r.Method, "http://"+r.Host+r.URL.RequestURI(), strings.NewReader(string(body)))
	if err != nil {
		return err.Error()
	}
	_, list, _ := strings.Cut(auth, "SignedHeaders=")
	list, _, _ = strings.Cut(list, ",")
	for name := range strings.SplitSeq(list, ";") {
		if name != "host" && name != "content-length" && name != "x-amz-date" && name != "x-amz-security-token" {
			again.Header.Set(name, r.Header.Get(name))
		}
	}
	if err := v4.NewSigner().SignHTTP(r.Context(), creds, again, sha256Hex(body), "execute-api", "eu-west-1", at); err != nil {
		return err.Error()
	}
	if again.Header.Get("Authorization") != auth {
		return "the signature does not fit the request: " + auth + "\nwant " + again.Header.Get("Authorization")
	}
	return ""
}

func TestSigV4WithoutCredentialsOrRegion(t *testing.T) {
	t.Setenv("AWS_CONFIG_FILE", "/nonexistent")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
	t.Setenv("AWS_REGION", "")
	t.Setenv("AWS_DEFAULT_REGION", "")
	_, url := newRegistry(t, fake.Options{})
	none := func(context.Context) (aws.Credentials, error) { return aws.Credentials{}, fmt.Errorf("no keys here") }
	for words, cfg := range map[string]mlflow.Config{
		"set AWS_REGION": {AWSCredentials: none},
		"no keys here":   {AWSCredentials: none, AWSRegion: "eu-west-1"},
	} {
		cfg.TrackingURI, cfg.SigV4 = url, true
		_, err := resolve(t, newClient(t, cfg), champion)
		require.ErrorIs(t, err, registry.ErrDenied)
		require.ErrorContains(t, err, words)
	}
}

// pair writes a self-signed certificate and its key into one PEM file.
func pair(t *testing.T) (path string, cert *x509.Certificate) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "client"}, NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, key.Public(), key)
	require.NoError(t, err)
	cert, err = x509.ParseCertificate(der)
	require.NoError(t, err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	path = filepath.Join(t.TempDir(), "client.pem")
	content := append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})...)
	require.NoError(t, os.WriteFile(path, content, 0o600))
	return path, cert
}

func TestClientCertificate(t *testing.T) {
	path, cert := pair(t)
	server := fake.New(fake.Options{})
	_, err := server.CreateVersion("llama", "s3://weights/llama/1")
	require.NoError(t, err)
	ts := httptest.NewUnstartedServer(server)
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	ts.TLS = &tls.Config{ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool, MinVersion: tls.VersionTLS12}
	ts.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	ts.StartTLS()
	defer ts.Close()
	env := map[string]string{"MLFLOW_TRACKING_URI": ts.URL, "MLFLOW_TRACKING_INSECURE_TLS": "true", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0"}
	_, err = resolve(t, fromEnv(t, env), "models:/llama/1")
	require.ErrorIs(t, err, registry.ErrUnreachable)
	env["MLFLOW_TRACKING_CLIENT_CERT_PATH"] = path
	_, err = resolve(t, fromEnv(t, env), "models:/llama/1")
	require.NoError(t, err)
}

func TestMaxRetriesAreHonoured(t *testing.T) {
	calls := 0
	var mu sync.Mutex
	_, url := newRegistry(t, fake.Options{Intercept: func(w http.ResponseWriter, _ *http.Request) bool {
		mu.Lock()
		defer mu.Unlock()
		calls++
		w.WriteHeader(http.StatusServiceUnavailable)
		return true
	}})
	_, err := resolve(t, fromEnv(t, map[string]string{"MLFLOW_TRACKING_URI": url, "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1"}), champion)
	require.ErrorIs(t, err, registry.ErrUnreachable)
	require.Equal(t, 2, calls)
}

func TestBadAuthConfiguration(t *testing.T) {
	pemless := filepath.Join(t.TempDir(), "x.pem")
	require.NoError(t, os.WriteFile(pemless, []byte("x"), 0o600))
	tests := map[string]struct {
		env   map[string]string
		words string
	}{
		"Plugin":       {map[string]string{"MLFLOW_TRACKING_AUTH": "kubernetes"}, "Python plugin"},
		"SigV4":        {map[string]string{"MLFLOW_TRACKING_AWS_SIGV4": "perhaps"}, "MLFLOW_TRACKING_AWS_SIGV4"},
		"Retries":      {map[string]string{"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "many"}, "MLFLOW_HTTP_REQUEST_MAX_RETRIES"},
		"ClientCert":   {map[string]string{"MLFLOW_TRACKING_CLIENT_CERT_PATH": pemless}, "MLFLOW_TRACKING_CLIENT_CERT_PATH"},
		"CAIsNoPEM":    {map[string]string{"MLFLOW_TRACKING_SERVER_CERT_PATH": pemless}, "holds no PEM"},
		"InsecureToCA": {map[string]string{"MLFLOW_TRACKING_SERVER_CERT_PATH": pemless, "MLFLOW_TRACKING_INSECURE_TLS": "true"}, "exclude each other"},
		"Registry":     {map[string]string{"MLFLOW_REGISTRY_URI": "databricks-uc"}, "MLFLOW_REGISTRY_URI"},
		"MapForm":      {map[string]string{"PILOTLIGHT_ARTIFACT_MAP": "s3://bucket"}, "PILOTLIGHT_ARTIFACT_MAP"},
		"MapFrom":      {map[string]string{"PILOTLIGHT_ARTIFACT_MAP": "mlflow-artifacts=s3://bucket"}, "want mlflow-artifacts:/="},
		"MapTo":        {map[string]string{"PILOTLIGHT_ARTIFACT_MAP": "mlflow-artifacts:/=/mnt/x"}, "PILOTLIGHT_ARTIFACT_MAP"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			tc.env["MLFLOW_TRACKING_URI"] = "https://a"
			cfg, err := mlflow.ConfigFromEnv(func(k string) string { return tc.env[k] })
			if err == nil {
				_, err = mlflow.New(cfg)
			}
			require.ErrorIs(t, err, mlflow.ErrConfig)
			require.ErrorContains(t, err, tc.words)
		})
	}
}
