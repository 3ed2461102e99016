package fetchercmd_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/cmd/internal/fetchercmd"
	"github.com/pilotlight-dev/pilotlight/internal/exitcode"
)

// output is what a program under way writes.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// follower is an agent under way.
type follower struct {
	*system
	out  output
	stop context.CancelFunc
	done chan int
	url  string
}

var listening = regexp.MustCompile(`"the agent listens","address":"([^"]+)"`)

func (s *system) agent(args ...string) *follower {
	s.t.Helper()
	ctx, stop := context.WithCancel(s.t.Context())
	f := &follower{system: s, stop: stop, done: make(chan int, 1)}
	all := append([]string{"agent", "--model", "llama@champion", "--root", s.root, "--listen", "127.0.0.1:0", "--log-format", "json"}, args...)
	go func() {
		f.done <- fetchercmd.Main(ctx, all, func(k string) string { return s.env[k] }, io.Discard, &f.out)
	}()
	f.eventually("the port", func() bool {
		found := listening.FindStringSubmatch(f.out.String())
		if found != nil {
			f.url = "http://" + found[1]
		}
		return found != nil
	})
	return f
}

func (f *follower) eventually(what string, holds func() bool) {
	f.t.Helper()
	require.Eventually(f.t, holds, 30*time.Second, 10*time.Millisecond, "%s: %s", what, &f.out)
}

func (f *follower) end() {
	f.t.Helper()
	f.stop()
	require.Equal(f.t, exitcode.OK, <-f.done, f.out.String())
	require.NotContains(f.t, f.out.String(), secret)
	require.NotContains(f.t, f.out.String(), password)
}

func (f *follower) ask(method, path string) (int, string) {
	f.t.Helper()
	req, err := http.NewRequestWithContext(f.t.Context(), method, f.url+path, nil)
	require.NoError(f.t, err)
	client := &http.Client{Timeout: 5 * time.Second}
	resp, err := client.Do(req)
	require.NoError(f.t, err)
	body, err := io.ReadAll(resp.Body)
	require.NoError(f.t, err)
	require.NoError(f.t, resp.Body.Close())
	return resp.StatusCode, string(body)
}

// status is the part of /status that the tests look at.
type status struct {
	V         int
	Ref       string
	Published *struct{ Digest, Version, Model string }
	Serving   struct{ Digest, Version, State string }
	Pointer   *struct {
		OK     bool
		Code   int
		Reason string
	}
	History []struct{ Version string }
}

func (f *follower) status() status {
	f.t.Helper()
	code, body := f.ask("GET", "/status")
	require.Equal(f.t, http.StatusOK, code)
	var st status
	require.NoError(f.t, json.Unmarshal([]byte(body), &st))
	return st
}

func (f *follower) publishes(version string) {
	f.t.Helper()
	f.eventually("version "+version, func() bool {
		st := f.status()
		return st.Published != nil && st.Published.Version == version
	})
}

func TestAgentFollowsTheAlias(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	f := s.agent("--poll", "1s")
	f.publishes("1")
	require.Equal(t, "version 1", s.serving())
	code, _ := f.ask("GET", "/readyz")
	require.Equal(t, http.StatusOK, code)

	require.NoError(t, s.registry.SetAlias("llama", "champion", "2"))
	f.publishes("2")
	require.Equal(t, "version 2", s.serving())

	gets := s.store.Count("GetObject")
	require.NoError(t, s.registry.SetAlias("llama", "champion", "1"))
	f.publishes("1")
	require.Equal(t, gets, s.store.Count("GetObject"), "rolled back without a download")
	st := f.status()
	require.Equal(t, 1, st.V)
	require.Equal(t, "models:/llama@champion", st.Ref)
	require.Equal(t, "unknown", st.Serving.State)
	require.Len(t, st.History, 3)
	_, metrics := f.ask("GET", "/metrics")
	for _, name := range []string{"pilotlight_agent_pointer_ok 1", `pilotlight_fetcher_runs_total{result="reused"} 1`, "go_goroutines", `pilotlight_agent_published_info{digest=`} {
		require.Contains(t, metrics, name)
	}
	f.end()
}

func TestAgentIsNudgedByPostAndSignal(t *testing.T) {
	s := newSystem(t)
	f := s.agent("--poll", "1h")
	f.publishes("1")
	code, _ := f.ask("POST", "/nudge")
	require.Equal(t, http.StatusAccepted, code)
	require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGHUP))
	f.eventually("two nudges", func() bool {
		_, metrics := f.ask("GET", "/metrics")
		return strings.Contains(metrics, "pilotlight_agent_nudges_total 2")
	})
	f.end()
}

func TestAnUnchangedPointerListsNothing(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	code, stderr := s.init()
	require.Equal(t, exitcode.OK, code, stderr)
	lists := s.store.Count("ListObjectsV2")
	asked := s.registry.Calls("GET", "registered-models/alias")
	f := s.agent("--poll", "1s")
	f.eventually("three questions", func() bool { return s.registry.Calls("GET", "registered-models/alias") >= asked+3 })
	require.Equal(t, lists, s.store.Count("ListObjectsV2"))
	f.end()
}

func TestAgentKeepsTheLastGoodVersion(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	errorFile := filepath.Join(t.TempDir(), "error.json")
	f := s.agent("--poll", "1s", "--error-file", errorFile)
	f.publishes("1")
	require.NoError(t, s.registry.DeleteVersion("llama", "1"))
	f.eventually("the broken pointer", func() bool { st := f.status(); return st.Pointer != nil && !st.Pointer.OK })
	st := f.status()
	require.Equal(t, exitcode.PointerBroken, st.Pointer.Code)
	require.Contains(t, st.Pointer.Reason, "deleted version")
	f.eventually("the error file", func() bool { _, err := os.Stat(errorFile); return err == nil })
	require.Equal(t, "version 1", s.serving())
	f.end()
}

func TestAgentGivesUpWithTheCodeOfTheFailure(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	s.registry.SetDown(true)
	f := s.agent("--max-failures", "1")
	require.Equal(t, exitcode.RegistryUnreachable, <-f.done, f.out.String())
}

func TestAgentAsksForARestartAndInitMovesTheLink(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	link := filepath.Join(t.TempDir(), "model")
	code, stderr := s.init("--link", link)
	require.Equal(t, exitcode.OK, code, stderr)
	f := s.agent("--poll", "1s", "--link", link, "--reader", "uid-1", "--on-change", "exit")
	f.publishes("1")
	require.NoError(t, s.registry.SetAlias("llama", "champion", "2"))
	require.Equal(t, exitcode.RestartPod, <-f.done, f.out.String())
	require.Equal(t, "version 1", loads(t, link), "until the containers are gone")
	code, stderr = s.init("--link", link)
	require.Equal(t, exitcode.OK, code, stderr)
	require.Equal(t, "version 2", loads(t, link))
}

func loads(t *testing.T, link string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(link, ".pilotlight", "model", "config.json"))
	require.NoError(t, err)
	return string(data)
}

func TestAgentReportsWhatTheEngineServes(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	link := filepath.Join(t.TempDir(), "model")
	f := s.agent("--link", link, "--reader", "uid-1", "--engine-health", "http://127.0.0.1:1/health")
	f.eventually("the link", func() bool { return f.status().Serving.Version == "1" })
	f.eventually("a refusal", func() bool { return f.status().Serving.State == "loading" })
	f.end()
}

func TestWriterAndReaders(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	link := filepath.Join(t.TempDir(), "model")
	codes := make(chan int, 1)
	go func() {
		code, _ := s.init("--read-only", "--link", link, "--reader", "uid-1")
		codes <- code
	}()
	writer := s.agent("--writer", "--poll", "1s")
	require.Equal(t, exitcode.OK, <-codes)
	require.Equal(t, "version 1", loads(t, link))

	reader := s.agent("--read-only", "--poll", "1s", "--link", link, "--reader", "uid-1")
	require.NoError(t, s.registry.SetAlias("llama", "champion", "2"))
	writer.publishes("2")
	reader.publishes("2")
	st := reader.status()
	require.Equal(t, "1", st.Serving.Version, "frozen")
	require.Nil(t, st.Pointer)
	reader.end()
	writer.end()
}

func TestAgentsThatCannotBe(t *testing.T) {
	requireFailures(t, map[string]failure{
		"TwoRoles":     {nil, []string{"agent", "--model", "a@b", "--root", "ROOT", "--writer", "--read-only", "--link", "/x"}, exitcode.Usage, []string{"exclude each other"}},
		"WriterLink":   {nil, []string{"agent", "--model", "a@b", "--root", "ROOT", "--writer", "--link", "/x"}, exitcode.Usage, []string{"no engine"}},
		"WriterExit":   {nil, []string{"agent", "--model", "a@b", "--root", "ROOT", "--writer", "--on-change", "exit"}, exitcode.Usage, []string{"no engine"}},
		"ReaderNoLink": {nil, []string{"agent", "--model", "a@b", "--root", "ROOT", "--read-only"}, exitcode.Usage, []string{"--link"}},
		"FastPoll":     {nil, []string{"agent", "--model", "a@b", "--root", "ROOT", "--poll", "1ms"}, exitcode.Usage, []string{"--poll"}},
		"OtherAction":  {nil, []string{"agent", "--model", "a@b", "--root", "ROOT", "--on-change", "reboot"}, exitcode.Usage, []string{"none, exec, webhook or exit"}},
		"NoProgram":    {nil, []string{"agent", "--model", "a@b", "--root", "ROOT", "--on-change", "exec"}, exitcode.Usage, []string{"no program"}},
		"BadHealth":    {nil, []string{"agent", "--model", "a@b", "--root", "ROOT", "--engine-health", "8000"}, exitcode.Usage, []string{"health"}},
		"BadPort":      {nil, []string{"agent", "--model", "a@b", "--root", "ROOT", "--listen", "127.0.0.1:99999"}, exitcode.Usage, []string{"--listen"}},
		"ForeignRoot":  {func(s *system) { require.NoError(s.t, os.MkdirAll(filepath.Join(s.root, "current"), 0o750)) }, []string{"agent", "--model", "a@b", "--root", "ROOT", "--listen", "127.0.0.1:0"}, exitcode.Usage, []string{"current", "--root"}},
	})
}

func TestInitsThatCannotBe(t *testing.T) {
	requireFailures(t, map[string]failure{
		"ReadOnlyNoLink": {nil, []string{"init", "--model", "a@b", "--root", "ROOT", "--read-only"}, exitcode.Usage, []string{"--link"}},
		"ReadOnlyWaits":  {nil, []string{"init", "--model", "a@b", "--root", "ROOT", "--read-only", "--link", "ROOT-pod/model", "--deadline", "50ms"}, exitcode.StoreUnreachable, []string{"nothing is published", "does not exist"}},
		"KeepNone":       {nil, []string{"init", "--model", "a@b", "--root", "ROOT", "--keep", "0"}, exitcode.Usage, []string{"--keep"}},
		"BadPin":         {nil, []string{"init", "--model", "a@b", "--root", "ROOT", "--version-pin", "x"}, exitcode.Usage, []string{"pinned version", "number"}},
		"BadPinVariable": {func(s *system) { s.env["PILOTLIGHT_MODEL_VERSION"] = "x" }, nil, exitcode.Usage, []string{"pinned version"}},
		"OfflineAndNew":  {nil, []string{"init", "--model", "llama@champion", "--root", "ROOT", "--offline"}, exitcode.StoreUnreachable, []string{"--offline"}},
		"DryRunReadOnly": {nil, []string{"init", "--model", "a@b", "--root", "ROOT", "--read-only", "--link", "ROOT-pod/model", "--dry-run"}, exitcode.Usage, []string{"--dry-run"}},
		"NoWeights":      {func(s *system) { s.store.DeleteObject("weights", "llama/1/model.bin") }, nil, exitcode.Integrity, []string{"no weights", "--any-layout"}},
		"OtherReference": {func(s *system) {
			code, _ := s.init()
			require.Equal(s.t, exitcode.OK, code)
		}, []string{"init", "--model", "s3://weights/llama/2", "--root", "ROOT"}, exitcode.Usage, []string{"serves models:/llama@champion", "--adopt-root"}},
	})
}

func TestInitObeysThePinAndSaysWhereTheModelIs(t *testing.T) {
	s := newSystem(t)
	s.env["PILOTLIGHT_MODEL_VERSION"] = "2"
	code, stdout, stderr := s.run("init", "--model", "llama@champion", "--root", s.root, "--log-format", "text")
	require.Equal(t, exitcode.OK, code, stderr)
	require.Equal(t, "version 2", s.serving())
	current := filepath.Join(s.root, "current", ".pilotlight")
	require.Equal(t, fmt.Sprintf("model      %s\ntokenizer  %s\n", filepath.Join(current, "model"), filepath.Join(current, "tokenizer")), stdout)
	require.True(t, strings.Contains(lastLine(stderr), "model="+filepath.Join(current, "model")))
}
