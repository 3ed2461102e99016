package fetchercmd_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/cmd/internal/fetchercmd"
	"github.com/pilotlight-dev/pilotlight/internal/exitcode"
	fakemlflow "github.com/pilotlight-dev/pilotlight/internal/fake/mlflow"
	fakes3 "github.com/pilotlight-dev/pilotlight/internal/fake/s3"
)

const (
	keyID    = "AKIDEXAMPLE"
	secret   = "not-a-real-secret" //nolint:gosec // a fake server's secret
	password = "hunter2-password"
)

// system is a registry and a store that both demand credentials.
type system struct {
	t        *testing.T
	registry *fakemlflow.Server
	store    *fakes3.Server
	env      map[string]string
	root     string
}

func newSystem(t *testing.T) *system {
	t.Helper()
	s := &system{
		t:        t,
		registry: fakemlflow.New(fakemlflow.Options{Username: "ann", Password: password}),
		store:    fakes3.New(fakes3.Options{Credentials: map[string]string{keyID: secret}}),
		root:     filepath.Join(t.TempDir(), "models"),
	}
	reg, store := httptest.NewServer(s.registry), httptest.NewServer(s.store)
	t.Cleanup(reg.Close)
	t.Cleanup(store.Close)
	s.env = map[string]string{
		"MLFLOW_TRACKING_URI": reg.URL, "MLFLOW_TRACKING_USERNAME": "ann", "MLFLOW_TRACKING_PASSWORD": password,
		"MLFLOW_S3_ENDPOINT_URL": store.URL, "AWS_ACCESS_KEY_ID": keyID, "AWS_SECRET_ACCESS_KEY": secret,
	}
	for _, version := range []string{"1", "2"} {
		s.store.PutObject("weights", "llama/"+version+"/config.json", []byte("version "+version), fakes3.PutOptions{})
		s.store.PutObject("weights", "llama/"+version+"/model.bin", nil, fakes3.PutOptions{})
		_, err := s.registry.CreateVersion("llama", "s3://weights/llama/"+version)
		require.NoError(t, err)
	}
	require.NoError(t, s.registry.SetAlias("llama", "champion", "1"))
	return s
}

// run executes the program and returns its exit code and output.
func (s *system) run(args ...string) (code int, stdout, stderr string) {
	s.t.Helper()
	var out, err bytes.Buffer
	code = fetchercmd.Main(s.t.Context(), args, func(k string) string { return s.env[k] }, &out, &err)
	for _, text := range []string{out.String(), err.String()} {
		require.NotContains(s.t, text, secret)
		require.NotContains(s.t, text, password)
	}
	return code, out.String(), err.String()
}

func (s *system) init(more ...string) (code int, stderr string) {
	s.t.Helper()
	args := append([]string{"init", "--model", "llama@champion", "--root", s.root, "--log-format", "text"}, more...)
	code, _, stderr = s.run(args...)
	return code, stderr
}

func (s *system) serving() string {
	s.t.Helper()
	data, err := os.ReadFile(filepath.Join(s.root, "current", "config.json"))
	require.NoError(s.t, err)
	return string(data)
}

func TestInitThenMoveThenRollBack(t *testing.T) {
	s := newSystem(t)
	code, stderr := s.init()
	require.Equal(t, exitcode.OK, code, stderr)
	require.Equal(t, "version 1", s.serving())
	require.Contains(t, lastLine(stderr), "megabytes_per_second")
	require.Contains(t, lastLine(stderr), "retries=0")

	require.NoError(t, s.registry.SetAlias("llama", "champion", "2"))
	code, _ = s.init()
	require.Equal(t, exitcode.OK, code)
	require.Equal(t, "version 2", s.serving())

	gets := s.store.Count("GetObject")
	require.NoError(t, s.registry.SetAlias("llama", "champion", "1"))
	code, stderr = s.init()
	require.Equal(t, exitcode.OK, code)
	require.Equal(t, "version 1", s.serving())
	require.Equal(t, gets, s.store.Count("GetObject"))
	require.Contains(t, lastLine(stderr), "reused=true")
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

// failure breaks one thing. The code says what, one line says where and what to
// do, and the termination message says it to machines.
type failure struct {
	breakIt func(s *system)
	args    []string
	want    int
	words   []string
}

func requireFailures(t *testing.T, tests map[string]failure) {
	t.Helper()
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSystem(t)
			if tc.breakIt != nil {
				tc.breakIt(s)
			}
			args := tc.args
			if args == nil {
				args = []string{"init", "--model", "llama@champion", "--root", "ROOT"}
			}
			message := filepath.Join(t.TempDir(), "message")
			for i, a := range args {
				args[i] = strings.Replace(a, "ROOT", s.root, 1)
			}
			withMessage := append([]string{}, args...)
			if len(args) > 1 {
				withMessage = append([]string{args[0], "--termination-message", message}, args[1:]...)
			}
			code, stdout, stderr := s.run(withMessage...)
			require.Equal(t, tc.want, code, stderr)
			require.Empty(t, stdout)
			line := lastLine(stderr)
			for _, word := range tc.words {
				require.Contains(t, line, word)
			}
			require.NotContains(t, stderr, "goroutine ")
			if len(args) > 2 {
				requireTermination(t, message, tc.want)
			}
		})
	}
}

func TestExitCodesOfUsage(t *testing.T) {
	requireFailures(t, map[string]failure{
		"NoFlags":      {nil, []string{"init"}, exitcode.Usage, []string{"--model and --root"}},
		"UnknownFlag":  {nil, []string{"init", "--modle", "x"}, exitcode.Usage, []string{"--modle", "--help"}},
		"UnknownVerb":  {nil, []string{"fetch"}, exitcode.Usage, []string{`"fetch"`}},
		"BadDuration":  {nil, []string{"init", "--deadline", "soon"}, exitcode.Usage, []string{"--deadline"}},
		"BadModel":     {nil, []string{"init", "--model", "llama", "--root", "ROOT"}, exitcode.Usage, []string{"--model", "models:/name@alias"}},
		"BadFormat":    {nil, []string{"init", "--model", "a@b", "--root", "ROOT", "--log-format", "xml"}, exitcode.Usage, []string{"auto, text or json"}},
		"BadEndpoint":  {nil, []string{"init", "--model", "a@b", "--root", "ROOT", "--s3-endpoint", "minio:9000"}, exitcode.Usage, []string{"http://host"}},
		"BadAllow":     {nil, []string{"init", "--model", "a@b", "--root", "ROOT", "--allow-location", "weights"}, exitcode.Usage, []string{"--allow-location"}},
		"NoRegistry":   {func(s *system) { delete(s.env, "MLFLOW_TRACKING_URI") }, nil, exitcode.Usage, []string{"MLFLOW_TRACKING_URI"}},
		"UnityCatalog": {nil, []string{"init", "--model", "models:/a.b.c@champion", "--root", "ROOT"}, exitcode.Usage, []string{"Unity Catalog"}},
		"ForeignVersions": {func(s *system) {
			require.NoError(s.t, os.MkdirAll(s.root, 0o750))
			require.NoError(s.t, os.Symlink("elsewhere", filepath.Join(s.root, "versions")))
		}, nil, exitcode.Usage, []string{"versions is a link", "--root"}},
		"BadVerify":     {nil, []string{"init", "--model", "a@b", "--root", "ROOT", "--verify", "perhaps"}, exitcode.Usage, []string{"auto, size or full"}},
		"BadGlob":       {nil, []string{"init", "--model", "a@b", "--root", "ROOT", "--include", "[a-"}, exitcode.Usage, []string{"[a-"}},
		"BadAddressing": {nil, []string{"init", "--model", "a@b", "--root", "ROOT", "--s3-addressing", "sideways"}, exitcode.Usage, []string{"auto, path or virtual"}},
		"NoKeyFile":     {nil, []string{"init", "--model", "a@b", "--root", "ROOT", "--sse-c-key-file", "/nonexistent"}, exitcode.Usage, []string{"--sse-c-key-file", "/nonexistent"}},
		"BadPayer":      {func(s *system) { s.env["PILOTLIGHT_S3_REQUESTER_PAYS"] = "perhaps" }, nil, exitcode.Usage, []string{"PILOTLIGHT_S3_REQUESTER_PAYS", "true or false"}},
		"BadAuthority":  {func(s *system) { s.env["AWS_CA_BUNDLE"] = "/nonexistent" }, nil, exitcode.Usage, []string{"AWS_CA_BUNDLE"}},
		"ForeignRoot":   {func(s *system) { require.NoError(s.t, os.MkdirAll(filepath.Join(s.root, "current"), 0o750)) }, nil, exitcode.Usage, []string{"current", "--root"}},
	})
}

func TestExitCodesOfPointers(t *testing.T) {
	requireFailures(t, map[string]failure{
		"NoSuchAlias":   {func(s *system) { s.alias("") }, []string{"init", "--model", "llama@nobody", "--root", "ROOT"}, exitcode.PointerBroken, []string{"llama@nobody", "not found"}},
		"DeletedTarget": {func(s *system) { require.NoError(s.t, s.registry.DeleteVersion("llama", "1")) }, nil, exitcode.PointerBroken, []string{"deleted version", "set the alias"}},
		"Proxied":       {func(s *system) { s.alias("mlflow-artifacts://elsewhere/1/x") }, nil, exitcode.PointerBroken, []string{"artifact proxy"}},
		"NotServed":     {func(s *system) { s.alias("mlflow-artifacts:/1/x") }, nil, exitcode.PointerBroken, []string{"mlflow-artifacts:/1/x", "--no-serve-artifacts"}},
		"NotAllowed":    {nil, []string{"init", "--model", "llama@champion", "--root", "ROOT", "--allow-location", "s3://elsewhere"}, exitcode.PointerBroken, []string{"s3://weights/llama/1", "--allow-location"}},
		"EmptyPrefix":   {func(s *system) { s.alias("s3://weights/none") }, nil, exitcode.PointerBroken, []string{"s3://weights/none/", "no objects"}},
		"NoBucket":      {func(s *system) { s.alias("s3://nowhere/x") }, nil, exitcode.PointerBroken, []string{"nowhere", "no such bucket"}},
		"NoPointer":     {nil, []string{"init", "--model", "pointer+s3://weights/live", "--root", "ROOT"}, exitcode.PointerBroken, []string{"pointer+s3://weights/live", "not found"}},
		"NotAPointer":   {nil, []string{"init", "--model", "pointer+s3://weights/llama/1/config.json", "--root", "ROOT"}, exitcode.PointerBroken, []string{"not a pointer"}},
	})
}

func TestExitCodesOfContentAndServers(t *testing.T) {
	requireFailures(t, map[string]failure{
		"Corrupt": {func(s *system) {
			s.store.SetFault(func(*http.Request) fakes3.Fault { return fakes3.Fault{Corrupt: true} })
		}, nil, exitcode.Integrity, []string{"config.json", "crc64nvme"}},
		"HostileKey":    {func(s *system) { s.store.PutObject("weights", "llama/1/../../x", nil, fakes3.PutOptions{}) }, nil, exitcode.Integrity, []string{"../../x", "rename or delete"}},
		"RegistryDown":  {func(s *system) { s.registry.SetDown(true) }, deadline(), exitcode.RegistryUnreachable, []string{"http://127.0.0.1", "503"}},
		"RegistryLogin": {func(s *system) { s.env["MLFLOW_TRACKING_PASSWORD"] = "wrong" }, nil, exitcode.RegistryUnreachable, []string{"401", "MLFLOW_TRACKING_USERNAME"}},
		"Pending":       {func(s *system) { require.NoError(s.t, s.registry.SetStatus("llama", "1", fakemlflow.StatusPending)) }, deadline(), exitcode.RegistryUnreachable, []string{"being registered"}},
		"StoreDown":     {func(s *system) { s.env["MLFLOW_S3_ENDPOINT_URL"] = "http://127.0.0.1:1" }, deadline(), exitcode.StoreUnreachable, []string{"s3://weights/llama/1", "refused"}},
		"StoreKey":      {func(s *system) { s.env["AWS_ACCESS_KEY_ID"] = "AKIDNOBODY" }, nil, exitcode.StoreUnreachable, []string{"InvalidAccessKeyId", "AWS_ACCESS_KEY_ID"}},
		"StoreSecret":   {func(s *system) { s.env["AWS_SECRET_ACCESS_KEY"] = "wrong" }, nil, exitcode.StoreUnreachable, []string{"SignatureDoesNotMatch", "AWS_SECRET_ACCESS_KEY"}},
	})
}

func deadline() []string {
	return []string{"init", "--model", "llama@champion", "--root", "ROOT", "--deadline", "5s"}
}

// alias points champion at a new version with the given source.
func (s *system) alias(source string) {
	s.t.Helper()
	if source == "" {
		return
	}
	version, err := s.registry.CreateVersion("llama", source)
	require.NoError(s.t, err)
	require.NoError(s.t, s.registry.SetAlias("llama", "champion", version))
}

func requireTermination(t *testing.T, path string, want int) {
	t.Helper()
	data, err := os.ReadFile(path) //nolint:gosec // a file of this test
	require.NoError(t, err)
	var got struct {
		Code        int
		Reason, Ref string
	}
	require.NoError(t, json.Unmarshal(data, &got))
	require.Equal(t, want, got.Code)
	require.NotEmpty(t, got.Reason)
	require.Less(t, len(data), 4096, "the kubelet reads no more")
}

func TestOneLineForOneError(t *testing.T) {
	s := newSystem(t)
	code, _, stderr := s.run("init", "--model", "llama@nobody", "--root", s.root, "--log-format", "text")
	require.Equal(t, exitcode.PointerBroken, code)
	require.Equal(t, 1, strings.Count(stderr, "\n"), stderr)
	require.Regexp(t, `^pilotlight-fetcher: .*\(exit 3\)\n$`, stderr)

	code, _, stderr = s.run("init", "--model", "llama@nobody", "--root", s.root, "--log-format", "json")
	require.Equal(t, exitcode.PointerBroken, code)
	var line struct {
		Level, Error string
		Code         int
	}
	require.NoError(t, json.Unmarshal([]byte(stderr), &line), "one JSON line for machines")
	require.Equal(t, "ERROR", line.Level)
	require.Equal(t, exitcode.PointerBroken, line.Code)
}

func TestRegistryThatComesUpLate(t *testing.T) {
	s := newSystem(t)
	s.registry.SetDown(true)
	timer := time.AfterFunc(100*time.Millisecond, func() { s.registry.SetDown(false) })
	defer timer.Stop()
	code, stderr := s.init()
	require.Equal(t, exitcode.OK, code, stderr)
}

func TestFixedPlaceNeedsNoRegistry(t *testing.T) {
	s := newSystem(t)
	for _, k := range []string{"MLFLOW_TRACKING_URI", "MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD"} {
		delete(s.env, k)
	}
	code, _, stderr := s.run("init", "--model", "s3://weights/llama/2", "--root", s.root)
	require.Equal(t, exitcode.OK, code, stderr)
	require.Equal(t, "version 2", s.serving())
}

func TestEndpointFlagBeatsTheEnvironment(t *testing.T) {
	s := newSystem(t)
	url := s.env["MLFLOW_S3_ENDPOINT_URL"]
	s.env["MLFLOW_S3_ENDPOINT_URL"] = "http://127.0.0.1:1"
	code, stderr := s.init("--s3-endpoint", url)
	require.Equal(t, exitcode.OK, code, stderr)
}

// TestFlagsOfStoresAndFiles fetches objects that were encrypted with a key of the
// customer's, and not all of them.
func TestFlagsOfStoresAndFiles(t *testing.T) {
	s := newSystem(t)
	key := strings.Repeat("k", 32)
	for name, data := range map[string]string{"config.json": "version 1", "model.bin": "weights", "notes.txt": "left out"} {
		s.store.PutObject("weights", "llama/1/"+name, []byte(data), fakes3.PutOptions{CustomerKey: []byte(key)})
	}
	code, stderr := s.init()
	require.Equal(t, exitcode.StoreUnreachable, code, stderr)
	file := filepath.Join(t.TempDir(), "key")
	require.NoError(t, os.WriteFile(file, []byte(key), 0o600))
	code, stderr = s.init("--sse-c-key-file", file, "--exclude", "*.txt", "--s3-requester-pays", "--s3-addressing", "path", "--size-limit", "1Gi")
	require.Equal(t, exitcode.OK, code, stderr)
	require.NotContains(t, stderr, key)
	require.Equal(t, "version 1", s.serving())
	require.NoFileExists(t, filepath.Join(s.root, "current", "notes.txt"))

	s.env["PILOTLIGHT_SSE_C_KEY"] = base64.StdEncoding.EncodeToString([]byte(key))
	code, stderr = s.init("--verify", "full")
	require.Equal(t, exitcode.OK, code, stderr)
	require.FileExists(t, filepath.Join(s.root, "current", "notes.txt"), "another choice is another version")
}

func TestDryRunPrintsThePlan(t *testing.T) {
	s := newSystem(t)
	code, stdout, stderr := s.run("init", "--model", "llama@champion", "--root", s.root, "--dry-run")
	require.Equal(t, exitcode.OK, code, stderr)
	require.Contains(t, stdout, "location  s3://weights/llama/1")
	require.Contains(t, stdout, "download 2 objects, 9 bytes")
	require.NoDirExists(t, s.root)
}

func TestHelpAndVersion(t *testing.T) {
	s := newSystem(t)
	code, stdout, _ := s.run("--version")
	require.Equal(t, exitcode.OK, code)
	require.Regexp(t, `^pilotlight-fetcher \S+ \(commit`, stdout)
	for _, args := range [][]string{{"--help"}, {"init", "--help"}, {}} {
		code, stdout, _ = s.run(args...)
		require.Equal(t, exitcode.OK, code)
		require.Contains(t, stdout, "Exit codes:")
	}
}

func TestInterruptionIsNotAnExitClass(t *testing.T) {
	s := newSystem(t)
	ctx, cancel := context.WithCancel(t.Context())
	var once sync.Once
	s.store.SetFault(func(*http.Request) fakes3.Fault {
		once.Do(cancel)
		return fakes3.Fault{Break: fakes3.BreakStall}
	})
	var out, err bytes.Buffer
	code := fetchercmd.Main(ctx, []string{"init", "--model", "llama@champion", "--root", s.root}, func(k string) string { return s.env[k] }, &out, &err)
	require.Equal(t, exitcode.Unexpected, code)
	require.Contains(t, lastLine(err.String()), "interrupted")
}
