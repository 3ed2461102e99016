package mlflow_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/internal/s3conf"
	"github.com/pilotlight-dev/pilotlight/test/integration/process"
)

const (
	bucket    = "weights"
	keyID     = "integration"
	secretKey = "not-a-secret-of-anybody"
)

// tool returns the program or folder that make integration names in a variable.
func tool(t *testing.T, variable string) string {
	t.Helper()
	path := os.Getenv(variable)
	if path == "" {
		t.Skipf("%s is not set: use make integration", variable)
	}
	return path
}

// environment is what the programs of these tests see: nothing of the caller's
// that could lead them elsewhere.
func environment(more map[string]string) []string {
	env := map[string]string{
		"PATH": os.Getenv("PATH"), "HOME": os.Getenv("HOME"), "TMPDIR": os.TempDir(), "LANG": "C.UTF-8",
		"NO_PROXY": "*", "AWS_EC2_METADATA_DISABLED": "true", "AWS_DEFAULT_REGION": "us-east-1",
		"AWS_ACCESS_KEY_ID": keyID, "AWS_SECRET_ACCESS_KEY": secretKey,
		"AWS_CONFIG_FILE": os.DevNull, "AWS_SHARED_CREDENTIALS_FILE": os.DevNull,
		"MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true", "GIT_PYTHON_REFRESH": "quiet",
		"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
	}
	maps.Copy(env, more)
	var out []string
	for _, key := range slices.Sorted(maps.Keys(env)) {
		out = append(out, key+"="+env[key])
	}
	return out
}

// store is an S3 server with a bucket.
type store struct {
	url    string
	client *s3conf.Client
}

func connect(t *testing.T, url string) store {
	t.Helper()
	client, err := s3conf.New(t.Context(), s3conf.Options{
		Endpoint: url, Region: "us-east-1", AccessKeyID: keyID, SecretAccessKey: secretKey, Workers: 8,
	})
	require.NoError(t, err)
	return store{url: url, client: client}
}

// startStore starts versitygw.
func startStore(t *testing.T) store {
	t.Helper()
	binary, addr := tool(t, "PILOTLIGHT_VERSITYGW"), process.FreeAddress(t)
	process.Start(t, process.Options{
		Path: binary, Args: []string{"--port", addr, "--health", "/health", "posix", t.TempDir()},
		Env:   environment(map[string]string{"ROOT_ACCESS_KEY": keyID, "ROOT_SECRET_KEY": secretKey}),
		Ready: "http://" + addr + "/health",
	})
	s := connect(t, "http://"+addr)
	_, err := s.client.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: aws.String(bucket)})
	require.NoError(t, err)
	return s
}

// put uploads files below a prefix.
func (s store) put(t *testing.T, prefix string, files map[string][]byte) {
	t.Helper()
	for name, data := range files {
		_, err := s.client.PutObject(t.Context(), &s3.PutObjectInput{Bucket: aws.String(bucket), Key: aws.String(prefix + "/" + name), Body: bytes.NewReader(data)})
		require.NoError(t, err)
	}
}

// tracking is a tracking server and how to reach it.
type tracking struct {
	url, user, password string
	store               store
	database            string // the file; empty for the fake
	artifactMap         string // where the files behind its proxy lie
}

// serverOptions says which server people run.
type serverOptions struct {
	args []string // besides the address and the database
	env  map[string]string
}

// startMLflow starts a server whose database is new.
func startMLflow(t *testing.T, s store, opts serverOptions) tracking {
	t.Helper()
	venv, addr, dir := tool(t, "PILOTLIGHT_MLFLOW"), process.FreeAddress(t), t.TempDir()
	host, port, _ := strings.Cut(addr, ":")
	env := map[string]string{
		"MLFLOW_S3_ENDPOINT_URL": s.url, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
		"MLFLOW_WEBHOOK_ALLOWED_SCHEMES": "http,https", "MLFLOW_WEBHOOK_ALLOW_PRIVATE_IPS": "true", "MLFLOW_WEBHOOK_CACHE_TTL": "1",
	}
	maps.Copy(env, opts.env)
	args := append([]string{
		"-m", "mlflow", "server", "--host", host, "--port", port, "--workers", "1",
		"--backend-store-uri", "sqlite:///" + filepath.Join(dir, "mlflow.db"),
	}, opts.args...)
	began := time.Now()
	process.Start(t, process.Options{
		Path: filepath.Join(venv, "bin", "python"), Args: args, Env: environment(env), Dir: dir,
		Ready: "http://" + addr + "/health", Within: 2 * time.Minute,
	})
	t.Logf("mlflow server was ready after %.1f s", time.Since(began).Seconds())
	return tracking{url: "http://" + addr, store: s, database: filepath.Join(dir, "mlflow.db")}
}

// variables point a client of MLflow or the fetcher at the server.
func (tr tracking) variables() map[string]string {
	env := map[string]string{"MLFLOW_TRACKING_URI": tr.url, "MLFLOW_S3_ENDPOINT_URL": tr.store.url}
	if tr.artifactMap != "" {
		env["PILOTLIGHT_ARTIFACT_MAP"] = tr.artifactMap
	}
	if tr.user != "" {
		env["MLFLOW_TRACKING_USERNAME"], env["MLFLOW_TRACKING_PASSWORD"] = tr.user, tr.password
	}
	return env
}

// call makes one REST call with a JSON body and demands success.
func (tr tracking) call(t *testing.T, method, path string, in, out any) {
	t.Helper()
	tr.do(t.Context(), t, method, path, in, out)
}

func (tr tracking) do(ctx context.Context, t *testing.T, method, path string, in, out any) {
	t.Helper()
	body, err := json.Marshal(in)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, tr.url+"/api/2.0/mlflow/"+path, bytes.NewReader(body))
	require.NoError(t, err)
	req.Header.Set("Content-Type", "application/json")
	if tr.user != "" {
		req.SetBasicAuth(tr.user, tr.password)
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	require.NoError(t, err)
	answer, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusOK, resp.StatusCode, "%s %s: %s", method, path, answer)
	if out != nil {
		require.NoError(t, json.Unmarshal(answer, out))
	}
}

// setLive points the alias `live` at a version.
func (tr tracking) setLive(t *testing.T, version string) {
	t.Helper()
	tr.setAlias(t, model, "live", version)
}

// output runs a program to its end, bounded, and returns what it printed and its
// exit code.
func output(t *testing.T, within time.Duration, env []string, name string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env, cmd.WaitDelay = env, 5*time.Second
	var out, err bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &err
	failed := cmd.Run()
	require.NoError(t, ctx.Err(), "%s took too long: %s", name, &err)
	if failed != nil {
		var exit *exec.ExitError
		require.ErrorAs(t, failed, &exit, "starting %s", name)
	}
	return out.String(), err.String(), cmd.ProcessState.ExitCode()
}
