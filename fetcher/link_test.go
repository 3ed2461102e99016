package fetcher_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/fetcher"
	"github.com/pilotlight-dev/pilotlight/registry"
)

// pod is one pod's view of a shared root.
type pod struct {
	*world
	link string
	uid  string
}

func (w *world) pod(uid string) *pod {
	return &pod{world: w, uid: uid, link: filepath.Join(w.t.TempDir(), "pod", "model")}
}

func (p *pod) options() fetcher.Options {
	opts := p.world.options()
	opts.Link, opts.Reader = p.link, p.uid
	return opts
}

// reader has neither a registry nor a store to ask.
func (p *pod) reader() fetcher.Options {
	opts := p.options()
	opts.ReadOnly, opts.Resolver, opts.Connect = true, nil, nil
	return opts
}

func (p *pod) mustRun(opts fetcher.Options) fetcher.Result {
	p.t.Helper()
	res, err := fetcher.Init(p.t.Context(), opts)
	require.NoError(p.t, err)
	return res
}

// requireLoads demands that the pod's engine would load this.
func (p *pod) requireLoads(want map[string][]byte) {
	p.t.Helper()
	require.Equal(p.t, contents(want), readTree(p.t, p.link))
}

func TestThePodsLinkIsFrozenForItsLife(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put("llama/1", model("one"))
	first := w.pod("uid-1")
	res := first.mustRun(first.options())
	require.Equal(t, first.link, res.Link)
	first.requireLoads(model("one"))

	w.put("llama/2", model("two"))
	second := w.pod("uid-2")
	second.mustRun(second.options())
	second.requireLoads(model("two"))
	first.requireLoads(model("one"))

	w.fail(registry.ErrUnreachable) // the pod's sandbox restarts while the registry is down
	lists := w.store.Count("ListObjectsV2")
	res = first.mustRun(first.options())
	require.Equal(t, "1", res.Manifest.Version)
	require.False(t, res.Changed)
	first.requireLoads(model("one"))
	require.Equal(t, lists, w.store.Count("ListObjectsV2"))
	w.requireCurrent(model("two"))
}

func TestAReadOnlyPodSetsOnlyItsLinkAndItsReader(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put("llama/1", model("one"))
	w.mustInit()
	before := snapshot(t, w.root)
	p := w.pod("uid-1")
	res := p.mustRun(p.reader())
	require.Equal(t, "1", res.Manifest.Version)
	p.requireLoads(model("one"))
	after := snapshot(t, w.root)
	require.Contains(t, after, ".readers/uid-1")
	delete(after, ".readers/uid-1")
	delete(after, ".readers")
	require.Equal(t, before, after)
}

func TestAReadOnlyPodWaitsForTheWriter(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put("llama/1", model("one"))
	p := w.pod("uid-1")
	done := make(chan error, 1)
	go func() {
		_, err := fetcher.Init(t.Context(), p.reader())
		done <- err
	}()
	timer := time.AfterFunc(50*time.Millisecond, func() { _, _ = fetcher.Init(t.Context(), w.options()) }) // checked by what follows
	defer timer.Stop()
	require.NoError(t, <-done)
	p.requireLoads(model("one"))
}

func TestAReadOnlyPodDoesNotWaitForEver(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		root  func(w *world)
		words string
	}{
		"NoRoot":     {func(*world) {}, "does not exist"},
		"NothingYet": {func(w *world) { require.NoError(t, os.MkdirAll(w.root, 0o750)) }, "current is not there"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			tc.root(w)
			opts := w.pod("uid-1").reader()
			opts.Deadline = 50 * time.Millisecond
			_, err := fetcher.Init(t.Context(), opts)
			require.ErrorIs(t, err, fetcher.ErrNotPublished)
			require.ErrorContains(t, err, tc.words)
			require.ErrorContains(t, err, "the deadline passed")
		})
	}
}

func TestAReadOnlyPodObeysItsPin(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put("llama/1", model("one"))
	w.mustInit()
	w.put("llama/2", model("two"))
	w.mustInit()
	p := w.pod("uid-1")
	opts := p.reader()
	opts.Pin = "1"
	p.mustRun(opts)
	p.requireLoads(model("one"))

	late := w.pod("uid-2").reader()
	late.Pin, late.Deadline = "3", 50*time.Millisecond
	_, err := fetcher.Init(t.Context(), late)
	require.ErrorIs(t, err, fetcher.ErrNotPublished)
	require.ErrorContains(t, err, "the pinned version 3 is not there")
}

func TestAReadOnlyPodOfAnotherReference(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put("llama/1", model("one"))
	w.mustInit()
	opts := w.pod("uid-1").reader()
	other, err := registry.ParseRef("models:/mistral@champion")
	require.NoError(t, err)
	opts.Ref = other
	_, err = fetcher.Init(t.Context(), opts)
	require.ErrorIs(t, err, fetcher.ErrUsage)
}

func TestAForeignLinkIsRefusedAndUntouched(t *testing.T) {
	t.Parallel()
	tests := map[string]func(t *testing.T, link string){
		"Folder":       func(t *testing.T, link string) { require.NoError(t, os.MkdirAll(link, 0o750)) },
		"File":         func(t *testing.T, link string) { require.NoError(t, os.WriteFile(link, nil, 0o600)) },
		"OtherLink":    func(t *testing.T, link string) { require.NoError(t, os.Symlink("/opt/llama", link)) },
		"RelativeLink": func(t *testing.T, link string) { require.NoError(t, os.Symlink("versions/0123456789ab", link)) },
	}
	for name, plant := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.put("llama/1", model("one"))
			p := w.pod("uid-1")
			require.NoError(t, os.MkdirAll(filepath.Dir(p.link), 0o750))
			plant(t, p.link)
			before := snapshot(t, filepath.Dir(p.link))
			_, err := fetcher.Init(t.Context(), p.options())
			require.ErrorIs(t, err, fetcher.ErrUsage)
			require.Equal(t, before, snapshot(t, filepath.Dir(p.link)))
			require.Zero(t, w.store.Count("ListObjectsV2"), "found before any traffic")
		})
	}
}

func TestALinkInsideTheRootIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put("llama/1", model("one"))
	opts := w.options()
	opts.Link = filepath.Join(w.root, "mine")
	_, err := fetcher.Init(t.Context(), opts)
	require.ErrorIs(t, err, fetcher.ErrUsage)
	require.ErrorContains(t, err, "a volume of the pod")
	opts.Link, opts.Reader = filepath.Join(t.TempDir(), "model"), "../uid"
	_, err = fetcher.Init(t.Context(), opts)
	require.ErrorIs(t, err, fetcher.ErrUsage)
}

func TestOnlyAThawedLinkMoves(t *testing.T) {
	t.Parallel()
	w, store, shorts := lifetimes(t)
	p := w.pod("uid-1")
	link, err := fetcher.OpenFrozen(store, p.link)
	require.NoError(t, err)
	defer func() { require.NoError(t, link.Close()) }()
	_, err = link.Set(t.Context(), shorts["1"])
	require.NoError(t, err)
	named, err := link.Set(t.Context(), shorts["2"])
	require.NoError(t, err)
	require.Equal(t, shorts["1"], named, "frozen")
	p.requireLoads(model("v1"))

	require.NoError(t, link.Thaw(shorts["4"]))
	p.requireLoads(model("v1"))
	res := p.mustRun(p.options()) // the restarted pod's init
	require.Equal(t, "4", res.Manifest.Version)
	p.requireLoads(model("v4"))
	mark, err := link.Thawed()
	require.NoError(t, err)
	require.Empty(t, mark, "frozen again")
	require.Equal(t, []string{"model"}, entries(t, filepath.Dir(p.link)))
}

func TestALinkWhoseVersionIsGoneIsSetAnew(t *testing.T) {
	t.Parallel()
	w, _, shorts := lifetimes(t)
	p := w.pod("uid-1")
	opts := p.options()
	opts.Pin = "1"
	p.mustRun(opts)
	require.NoError(t, os.RemoveAll(filepath.Join(w.root, "versions", shorts["1"])))
	p.mustRun(p.options())
	p.requireLoads(model("v4"))
}
