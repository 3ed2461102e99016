package pointercmd_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/cmd/internal/modelsource"
	"github.com/pilotlight-dev/pilotlight/fetcher"
	"github.com/pilotlight-dev/pilotlight/fetcher/agent"
	fake "github.com/pilotlight-dev/pilotlight/internal/fake/s3"
	"github.com/pilotlight-dev/pilotlight/registry"
)

func TestPromoteMovesAndRecordsWhoAndWhy(t *testing.T) {
	w := newWorld(t)
	out := w.requireCode(0, "promote", "llama@champion", "--to", "3", "--yes", "--message", "better at tables")
	require.Contains(t, out.stdout, "models:/llama@champion moved from 2 to 3")
	require.Contains(t, out.stdout, w.digest("3"))
	require.Empty(t, out.stderr)
	require.Equal(t, "3", w.backend.version())
	last := w.backend.pos.History[0]
	require.Equal(t, "kim@laptop", last.By)
	require.Equal(t, "better at tables", last.Message)
	require.Equal(t, registry.ActionPromote, last.Action)
	require.Equal(t, w.digest("3"), last.Digest)
}

func TestRollbackGoesToWhatServedBefore(t *testing.T) {
	w := newWorld(t)
	out := w.requireCode(0, "rollback", "llama@champion", "--yes")
	require.Contains(t, out.stdout, "moved from 2 to 1")
	require.Equal(t, registry.ActionRollback, w.backend.pos.History[0].Action)
}

func TestASecondRollbackIsRefusedWithTheCommandsToType(t *testing.T) {
	w := newWorld(t)
	w.requireCode(0, "promote", "llama@champion", "--to", "3", "--yes")
	w.requireCode(0, "rollback", "llama@champion", "--yes")
	out := w.requireCode(2, "rollback", "llama@champion", "--yes")
	require.Contains(t, out.stderr, "to go further back: pilotlight rollback models:/llama@champion --to 1;")
	require.Contains(t, out.stderr, "to return to 3: pilotlight promote models:/llama@champion --to 3")
	require.Equal(t, "2", w.backend.version())

	w.requireCode(0, "rollback", "llama@champion", "--to", "1", "--yes")
	require.Equal(t, "1", w.backend.version())
}

func TestARollbackGoesFurtherBackWhereSomethingElseServedBefore(t *testing.T) {
	w := newWorld(t)
	w.requireCode(0, "promote", "llama@champion", "--to", "3", "--yes")
	w.requireCode(0, "rollback", "llama@champion", "--yes")
	w.deps.Previous = func([]registry.Entry, string) (string, bool) { return "1", true }
	w.requireCode(0, "rollback", "llama@champion", "--yes")
	require.Equal(t, "1", w.backend.version())
}

func TestARollbackAfterAReturnGoesBackAgain(t *testing.T) {
	w := newWorld(t)
	w.requireCode(0, "rollback", "llama@champion", "--yes")
	w.requireCode(0, "promote", "llama@champion", "--to", "2", "--yes")
	w.requireCode(0, "rollback", "llama@champion", "--yes")
	require.Equal(t, "1", w.backend.version())
}

func TestRollbackUndoesAMoveByHandThatAgentsSaw(t *testing.T) {
	w := newWorld(t)
	w.backend.pos.Version = "3" // by hand: nothing records it
	st := serving("3", w.digest("3"), agent.EngineReady)
	st.History = []agent.Entry{
		{Version: "3", Digest: w.digest("3"), At: start.Add(5 * time.Hour)},
		{Version: "2", Digest: w.digest("2"), At: start.Add(time.Hour)},
	}
	w.hosts["pod:9400"] = &engineAgent{status: st}
	out := w.requireCode(0, "rollback", "llama@champion", "--yes", "--agents", "pod")
	require.Contains(t, out.stdout, "moved from 3 to 2")
}

func TestRollbackWithoutAnyRecordListsWhatThereIs(t *testing.T) {
	w := newWorld(t)
	w.backend.pos.History = nil
	w.backend.versions[0].Status = "FAILED_REGISTRATION"
	out := w.requireCode(3, "rollback", "llama@champion", "--yes")
	require.Contains(t, out.stderr, "choose with pilotlight rollback models:/llama@champion --to VERSION; there are 3 (FAILED_REGISTRATION, 2026-03-01), 1 (2026-03-01)")
	w.requireUnmoved()

	w.backend.versions = w.backend.versions[1:2]
	require.Contains(t, w.requireCode(3, "rollback", "llama@champion", "--yes").stderr, "no other version")
}

func TestWhereItAlreadyIsNothingIsWritten(t *testing.T) {
	w := newWorld(t)
	out := w.requireCode(0, "promote", "llama@champion", "--to", "2", "--yes")
	require.Contains(t, out.stdout, "at 2 already")
	w.requireUnmoved()
	require.Equal(t, "already", decode(t, w.requireCode(0, "promote", "llama@champion", "--to", "2", "--yes", "-o", "json").stdout)["result"])
}

func TestDryRunWritesNothing(t *testing.T) {
	w := newWorld(t)
	w.cluster = newCluster(t, workloadOf("Deployment", "llama", 2, nil))
	out := w.requireCode(0, "rollback", "llama@champion", "--dry-run", "--restart")
	require.Contains(t, out.stdout, "would be moved from 2 to 1, nothing was written")
	require.Contains(t, out.stdout, "would restart: Deployment ai/llama")
	w.requireUnmoved()
	require.Empty(t, w.cluster.pin(deployments, "llama"))
}

func TestNothingMovesToAVersionThatCannotBeServed(t *testing.T) {
	down := fake.Fault{Status: http.StatusServiceUnavailable}
	tests := map[string]struct {
		spoil func(*world)
		args  []string
		code  int
		want  string
	}{
		"ShardMissing": {spoil: func(w *world) { w.store.DeleteObject(bucket, "llama/3/model-00001-of-00002.safetensors") }, code: 4, want: "named by the index are missing"},
		"CutUpload": {spoil: func(w *world) {
			w.store.PutObject(bucket, "llama/3/model-00002-of-00002.safetensors", safetensors("x")[:20], fake.PutOptions{})
		}, code: 4, want: "cut upload"},
		"HostileKey":     {spoil: func(w *world) { w.store.PutObject(bucket, "llama/3/../../x", []byte("x"), fake.PutOptions{}) }, code: 4, want: "unsafe object keys"},
		"NoObjects":      {spoil: func(w *world) { w.backend.places["3"] = "s3://weights/nothing" }, code: 3, want: "no objects"},
		"NotAllowed":     {args: []string{"--allow-location", "s3://other/"}, code: 3, want: "which no --allow-location permits"},
		"Deleted":        {spoil: func(w *world) { w.backend.versions = w.backend.versions[1:] }, code: 3, want: "not found"},
		"StillPending":   {spoil: func(w *world) { w.backend.versions[0].Status = "PENDING_REGISTRATION" }, code: 6, want: "not ready yet"},
		"StoreDown":      {spoil: func(w *world) { w.store.SetFault(func(*http.Request) fake.Fault { return down }) }, args: []string{"--timeout", "50ms"}, code: 7, want: "unreachable"},
		"StoreDenies":    {spoil: func(w *world) { w.store.SetFault(func(*http.Request) fake.Fault { return fake.Fault{Status: 403} }) }, code: 7, want: "grant s3:ListBucket"},
		"RegistryDown":   {spoil: func(w *world) { w.backend.failing = registry.ErrUnreachable }, code: 6, want: "unreachable"},
		"RegistryDenies": {spoil: func(w *world) { w.backend.failing = registry.ErrDenied }, code: 6, want: "refused access"},
		"PointerMissing": {spoil: func(w *world) { w.backend.failing = registry.ErrNotFound }, code: 3, want: "not found"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			if tc.spoil != nil {
				tc.spoil(w)
			}
			out := w.requireCodeInTime(tc.code, append([]string{"promote", "llama@champion", "--to", "3", "--yes"}, tc.args...)...)
			require.Contains(t, out.stderr, tc.want)
			require.Equal(t, 1, strings.Count(out.stderr, "\n"), "one line: %s", out.stderr)
			require.Empty(t, out.stdout)
			w.requireUnmoved()
		})
	}
}

func TestUsageIsRefusedBeforeAnythingIsAsked(t *testing.T) {
	tests := map[string]struct {
		args []string
		want string
	}{
		"NoReference":        {[]string{"promote", "--to", "3"}, "want one REF"},
		"TwoReferences":      {[]string{"rollback", "a@b", "c@d"}, "got 2 arguments"},
		"NoModel":            {[]string{"promote", "llama", "--to", "3"}, "not a model reference"},
		"AVersionIsFixed":    {[]string{"promote", "llama/7", "--to", "3"}, "not a pointer that moves"},
		"APlaceIsFixed":      {[]string{"rollback", "s3://weights/llama"}, "not a pointer that moves"},
		"PromoteWhereTo":     {[]string{"promote", "llama@champion", "--yes"}, "promote needs --to VERSION"},
		"VersionNotANumber":  {[]string{"promote", "llama@champion", "--to", "latest", "--yes"}, "want a number"},
		"NobodyToAsk":        {[]string{"rollback", "llama@champion"}, "add --yes"},
		"WakeWithoutWait":    {[]string{"rollback", "llama@champion", "--yes", "--wake", "--activator", "http://a"}, "--wake is for --wait"},
		"WakeWhom":           {[]string{"rollback", "llama@champion", "--yes", "--wake", "--wait"}, "needs --activator"},
		"WakeWhich":          {[]string{"rollback", "pointer+s3://weights/p", "--yes", "--wake", "--wait", "--activator", "http://a"}, "--wake-model"},
		"UnknownFlag":        {[]string{"rollback", "llama@champion", "--force"}, "unknown flag"},
		"UnknownOutput":      {[]string{"history", "llama@champion", "-o", "xml"}, "must be table, json or yaml"},
		"NegativeTimeout":    {[]string{"history", "llama@champion", "--timeout", "-1s"}, "--timeout"},
		"InitOfAnAlias":      {[]string{"pointer", "init", "llama@champion", "--location", "s3://weights/a", "--version", "1"}, "not a pointer object"},
		"InitWithoutPlace":   {[]string{"pointer", "init", "pointer+s3://weights/p", "--version", "1"}, "needs --location"},
		"AgentsAreNotURLs":   {[]string{"status", "llama@champion", "--agents", "http://a:9400"}, "want host:port"},
		"StatusOfTwo":        {[]string{"status", "a@b", "c@d"}, "at most one REF"},
		"StatusWithoutWhere": {[]string{"status"}, "no cluster"},
		"RestartNowhere":     {[]string{"rollback", "llama@champion", "--yes", "--restart"}, "no cluster"},
		"BadAllowedPlace":    {[]string{"rollback", "llama@champion", "--yes", "--allow-location", "weights"}, "--allow-location"},
		"LocationOfAnAlias":  {[]string{"promote", "llama@champion", "--to", "3", "--yes", "--location", "s3://weights/x"}, "--location is for pointer objects"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			out := w.requireCode(2, tc.args...)
			require.Contains(t, out.stderr, tc.want)
			w.requireUnmoved()
		})
	}
}

func TestAConflictWritesNothing(t *testing.T) {
	t.Run("SeenBeforeTheMove", func(t *testing.T) {
		w := newWorld(t)
		w.backend.onRead = func(n int) {
			if n == 2 {
				w.backend.mu.Lock()
				w.backend.pos.Version = "3"
				w.backend.mu.Unlock()
			}
		}
		out := w.requireCode(9, "rollback", "llama@champion", "--yes")
		require.Contains(t, out.stderr, "was moved from 2 to 3 by somebody else in the meantime, nothing was written")
		require.Equal(t, "3", w.backend.version())
		require.Zero(t, w.backend.moves)
	})
	t.Run("ThereAndBackInTheMeantime", func(t *testing.T) {
		w := newWorld(t)
		w.backend.onRead = func(n int) {
			w.backend.mu.Lock()
			w.backend.pos.Tag = fmt.Sprint(n)
			w.backend.mu.Unlock()
		}
		w.requireCode(9, "rollback", "llama@champion", "--yes")
		w.requireUnmoved()
	})
	t.Run("SeenByTheMove", func(t *testing.T) {
		w := newWorld(t)
		w.backend.onMove = func() error { return registry.ErrConflict }
		w.requireCode(9, "rollback", "llama@champion", "--yes")
		w.requireUnmoved()
	})
}

func TestAnUnforeseenErrorIsCodeOne(t *testing.T) {
	w := newWorld(t)
	w.backend.onMove = func() error { return errors.New("a surprise") }
	require.Contains(t, w.requireCode(1, "rollback", "llama@champion", "--yes").stderr, "a surprise (exit 1)")
}

func TestAMoveWhoseAnswerIsLostIsNotCalledEitherWay(t *testing.T) {
	w := newWorld(t)
	w.backend.onMove = func() error { return fmt.Errorf("%w: %w", registry.ErrUncertain, registry.ErrUnreachable) }
	require.Contains(t, w.requireCode(6, "rollback", "llama@champion", "--yes").stderr, "whether models:/llama@champion was moved to 1 is not known, look at pilotlight history")
}

func TestARegistryThatCannotMoveSaysSo(t *testing.T) {
	w := newWorld(t)
	w.resolver = fetcher.Fixed{Version: "2"}
	require.Contains(t, w.requireCode(3, "rollback", "llama@champion", "--yes").stderr, "this registry cannot move pointers")
}

func TestOnATerminalItAsks(t *testing.T) {
	tests := map[string]struct {
		answer string
		code   int
	}{
		"Yes": {"y\n", 0}, "YesInFull": {"YES\n", 0}, "No": {"n\n", 2}, "Enter": {"\n", 2}, "EndOfFile": {"", 2},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.deps.StdinTTY, w.deps.StderrTTY, w.stdin = true, true, tc.answer
			out := w.requireCode(tc.code, "rollback", "llama@champion")
			require.Contains(t, out.stderr, "Move models:/llama@champion from 2 to 1 (s3://weights/llama/1, 4 files, ")
			if tc.code != 0 {
				require.Contains(t, out.stderr, "not confirmed, nothing was written")
				w.requireUnmoved()
			}
		})
	}
}

func TestAQuestionThatNobodySeesIsNotAsked(t *testing.T) {
	w := newWorld(t)
	w.deps.StdinTTY, w.stdin = true, "y\n"
	require.Contains(t, w.requireCode(2, "rollback", "llama@champion").stderr, "there is no terminal to ask on")
	w.requireUnmoved()
}

func TestCtrlCBeforeTheMoveWritesNothing(t *testing.T) {
	w := newWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	w.backend.onRead = func(n int) { cancel() }
	out := w.runCtx(ctx, "rollback", "llama@champion", "--yes")
	require.Equal(t, 1, out.code, out.stderr)
	w.requireUnmoved()
}

func TestARegistryThatIsTooSlowIsUnreachable(t *testing.T) {
	w := newWorld(t)
	w.backend.onRead = func(int) { time.Sleep(20 * time.Millisecond) }
	require.Contains(t, w.requireCodeInTime(6, "rollback", "llama@champion", "--yes", "--timeout", "10ms").stderr, "see --timeout")
}

func TestPointerObjectsRecordPlaceAndDigest(t *testing.T) {
	const ref = "pointer+s3://weights/llama/production"
	w := newWorld(t)
	w.backend.pos = registry.Position{}
	init := []string{"pointer", "init", ref, "--location", "s3://weights/llama/1", "--version", "v1"}
	require.Contains(t, w.requireCode(0, append(init, "--dry-run")...).stdout, "would be created")
	require.False(t, w.backend.made)
	require.Contains(t, w.requireCode(2, init...).stderr, "add --yes")
	require.Contains(t, w.requireCode(0, append(init, "--yes")...).stdout, w.digest("1"))
	require.Contains(t, w.requireCode(9, append(init, "--yes")...).stderr, "exists already")

	// A new version needs its place, once.
	require.Contains(t, w.requireCode(2, "promote", ref, "--to", "v2", "--yes").stderr, "say where its files are with --location")
	w.requireCode(0, "promote", ref, "--to", "v2", "--yes", "--location", "s3://weights/llama/2")
	w.requireCode(0, "rollback", ref, "--yes")
	require.Equal(t, "v1", w.backend.version())
	require.Equal(t, "s3://weights/llama/1", w.backend.pos.Location.String())
	require.Contains(t, w.requireCode(2, "promote", ref, "--to", "v2", "--yes", "--location", "s3://weights/llama/3").stderr, "is recorded at s3://weights/llama/2")

	// A version that was overwritten is not the one that served.
	w.store.PutObject(bucket, "llama/2/config.json", []byte("{}"), fake.PutOptions{})
	require.Contains(t, w.requireCode(4, "promote", ref, "--to", "v2", "--yes").stderr, "is not what it was")

	out := w.requireCode(0, "pointer", "show", ref)
	require.Contains(t, out.stdout, "s3://weights/llama/1")
	require.Contains(t, out.stdout, "kim@laptop")
}

func TestInitSaysWhenARegistryMakesNoPointers(t *testing.T) {
	w := newWorld(t)
	w.deps.Open = func(registry.Ref, modelsource.Connect) (fetcher.Resolver, error) {
		return struct{ moverOnly }{moverOnly{w.backend}}, nil
	}
	out := w.requireCode(3, "pointer", "init", "pointer+s3://weights/p", "--location", "s3://weights/llama/1", "--version", "v1", "--yes")
	require.Contains(t, out.stderr, "cannot be made here")
}

// moverOnly hides Init.
type moverOnly struct{ b *backend }

func (m moverOnly) Resolve(ctx context.Context, r registry.Ref) (registry.Resolution, error) {
	return m.b.Resolve(ctx, r)
}

func (m moverOnly) Read(ctx context.Context, r registry.Ref) (registry.Position, error) {
	return m.b.Read(ctx, r)
}

func (m moverOnly) Move(ctx context.Context, r registry.Ref, c registry.Change) (registry.Position, error) {
	return m.b.Move(ctx, r, c)
}

func (m moverOnly) Versions(ctx context.Context, r registry.Ref) ([]registry.Version, error) {
	return m.b.Versions(ctx, r)
}

// A rollback after a rollback is refused, and the way further back that it names
// leads back: never to what was rolled away.
func TestASecondRollbackNamesWhatLiesFurtherBack(t *testing.T) {
	promote, back := registry.ActionPromote, registry.ActionRollback
	type move struct{ action, to string }
	cases := map[string]struct {
		moves   []move // after 1 -> 2
		further string
		back    string
	}{
		"OneStep":        {[]move{{promote, "3"}, {back, "2"}}, "1", "3"},
		"ToTheFirst":     {[]move{{promote, "3"}, {back, "2"}, {back, "1"}}, "", "2"},
		"OverOne":        {[]move{{promote, "3"}, {promote, "4"}, {back, "2"}}, "1", "4"},
		"OverOneToFirst": {[]move{{promote, "3"}, {promote, "4"}, {back, "3"}, {back, "1"}}, "", "3"},
		"ForwardAgain":   {[]move{{back, "1"}, {promote, "3"}, {promote, "4"}, {back, "3"}}, "1", "4"},
		"BackAndForth":   {[]move{{promote, "3"}, {promote, "2"}, {back, "3"}}, "1", "2"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.upload("4", model("v4"))
			for _, m := range tc.moves {
				w.backend.apply(registry.Change{To: m.to, Action: m.action})
			}
			out := w.requireCode(2, "rollback", "llama@champion", "--yes")
			require.Contains(t, out.stderr, "pilotlight promote models:/llama@champion --to "+tc.back)
			if tc.further == "" {
				require.Contains(t, out.stderr, "nothing is known to have served before it")
				require.Contains(t, out.stderr, "rollback models:/llama@champion --to VERSION")
				return
			}
			require.Contains(t, out.stderr, "to go further back: pilotlight rollback models:/llama@champion --to "+tc.further+";")
		})
	}
}

func TestAVersionIsWrittenAsTheRegistryWritesIt(t *testing.T) {
	for to, says := range map[string]string{"03": "want 3", "0003": "want 3", "0": "begin at 1", "+3": "want a number", "3.0": "want a number"} {
		w := newWorld(t)
		require.Contains(t, w.requireCode(2, "promote", "llama@champion", "--to", to, "--yes").stderr, says)
		w.requireUnmoved()
	}
}
