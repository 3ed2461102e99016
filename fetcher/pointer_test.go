package fetcher_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/fetcher"
	"github.com/pilotlight-dev/pilotlight/registry"
)

// peeking is a world whose registry can be asked for a version alone.
type peeking struct {
	*world
	mu              sync.Mutex
	peeks, resolves int
	id              string
	asked           []string
}

func (p *peeking) Peek(ctx context.Context, ref registry.Ref) (name, version, id string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.peeks++
	p.asked = append(p.asked, ref.String())
	res, err := p.answer(ctx, ref)
	return res.Name, res.Version, p.id, err
}

func (p *peeking) Resolve(ctx context.Context, ref registry.Ref) (registry.Resolution, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.resolves++
	p.asked = append(p.asked, ref.String())
	return p.answer(ctx, ref)
}

// answer resolves models:/llama/7 to the version of that number, and all else
// to where the world's pointer leads.
func (p *peeking) answer(ctx context.Context, ref registry.Ref) (registry.Resolution, error) {
	res, err := p.world.Resolve(ctx, ref)
	if err == nil && ref.Kind == registry.KindVersion {
		res.Version, res.Location.Prefix = ref.Selector, "llama/"+ref.Selector
	}
	return res, err
}

func (p *peeking) counts() (peeks, resolves, lists, gets int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.peeks, p.resolves, p.store.Count("ListObjectsV2"), p.store.Count("GetObject")
}

func (p *peeking) options() fetcher.Options {
	opts := p.world.options()
	opts.Resolver = p
	return opts
}

func (p *peeking) mustRun(opts fetcher.Options) fetcher.Result {
	p.t.Helper()
	res, err := fetcher.Init(p.t.Context(), opts)
	require.NoError(p.t, err)
	return res
}

func newPeeking(t *testing.T) *peeking {
	w := newWorld(t)
	w.put("llama/2", model("two"))
	w.put("llama/1", model("one"))
	return &peeking{world: w, id: "1767225600000"}
}

func TestARecordedVersionCostsOneQuestionAndOneListing(t *testing.T) {
	t.Parallel()
	p := newPeeking(t)
	p.mustRun(p.options())
	peeks, resolves, lists, gets := p.counts()
	require.Equal(t, []int{1, 1, 1}, []int{peeks, resolves, lists})

	p.requireUntouched(func() { p.mustRun(p.options()) })
	peeks2, resolves2, lists2, gets2 := p.counts()
	require.Equal(t, []int{1, 0, 1, 0}, []int{peeks2 - peeks, resolves2 - resolves, lists2 - lists, gets2 - gets})
}

func TestOfflineSkipsTheListing(t *testing.T) {
	t.Parallel()
	p := newPeeking(t)
	offline := p.options()
	offline.Offline = true
	_, err := fetcher.Init(t.Context(), offline)
	require.ErrorIs(t, err, fetcher.ErrStoreUnreachable, "nothing is recorded yet")
	require.ErrorContains(t, err, "--offline")

	first := p.mustRun(p.options())
	p.point("llama/2")
	p.mustRun(p.options())
	p.point("llama/1")
	_, _, lists, gets := p.counts()
	res := p.mustRun(offline)
	require.True(t, res.Changed)
	require.Equal(t, first.Manifest.Digest, res.Manifest.Digest)
	p.requireCurrent(model("one"))
	_, _, lists2, gets2 := p.counts()
	require.Equal(t, []int{lists, gets}, []int{lists2, gets2}, "rolled back without the store")

	require.NoError(t, os.Remove(filepath.Join(p.root, "current", "config.json")))
	p.point("llama/2")
	p.mustRun(offline)
	p.point("llama/1")
	_, err = fetcher.Init(t.Context(), offline)
	require.ErrorIs(t, err, fetcher.ErrIntegrity, "a damaged version is not published")
	p.requireCurrent(model("two"))
}

func TestANumberThatIsGivenOutAgainIsAnotherVersion(t *testing.T) {
	t.Parallel()
	p := newPeeking(t)
	p.mustRun(p.options())
	p.put("elsewhere/1", model("new")) // the model was deleted and registered anew
	p.id = "1767999999999"
	p.mustRun(p.options())
	p.requireCurrent(model("new"))
}

func TestAPinBeatsThePointer(t *testing.T) {
	t.Parallel()
	p := newPeeking(t)
	opts := p.options()
	opts.Pin = "2"
	res := p.mustRun(opts)
	require.Equal(t, "2", res.Manifest.Version)
	require.Equal(t, "models:/llama@champion", res.Manifest.Ref, "the root still serves the pointer")
	p.requireCurrent(model("two"))
	require.NotContains(t, p.asked, "models:/llama@champion", "the pointer is not even asked")

	p.mustRun(p.options())
	p.requireCurrent(model("one"))

	opts.Offline = true
	peeks, resolves, lists, _ := p.counts()
	p.mustRun(opts)
	p.requireCurrent(model("two"))
	peeks2, resolves2, lists2, _ := p.counts()
	require.Equal(t, []int{peeks, resolves, lists}, []int{peeks2, resolves2, lists2}, "a recorded pin needs nobody")
}

func TestPinsThatCannotBe(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, pin := range []string{"seven", "../7", "7 ", "models:/other/7", "@champion", "s3://weights/x"} {
		opts := w.options()
		opts.Pin = pin
		_, err := fetcher.Init(t.Context(), opts)
		require.ErrorIs(t, err, fetcher.ErrUsage, pin)
		require.ErrorContains(t, err, "a version number")
	}
	ref, err := registry.ParseRef("s3://weights/llama/1")
	require.NoError(t, err)
	w.put("llama/2", model("two"))
	opts := w.options()
	opts.Ref, opts.Pin = ref, "7"
	_, err = fetcher.Init(t.Context(), opts)
	require.ErrorIs(t, err, fetcher.ErrUsage)
	opts.Pin = "s3://weights/llama/2"
	_, err = fetcher.Init(t.Context(), opts)
	require.NoError(t, err)
	w.requireCurrent(model("two"))
}

func TestLookTouchesNoStore(t *testing.T) {
	t.Parallel()
	p := newPeeking(t)
	first, err := fetcher.Look(t.Context(), p.options())
	require.NoError(t, err)
	require.Equal(t, fetcher.Pointer{Name: "llama", Version: "1", ID: p.id}, first)
	p.point("llama/2")
	second, err := fetcher.Look(t.Context(), p.options())
	require.NoError(t, err)
	require.NotEqual(t, first, second)
	peeks, resolves, lists, _ := p.counts()
	require.Equal(t, []int{2, 0, 0}, []int{peeks, resolves, lists})

	p.fail(fmt.Errorf("%w: starting", registry.ErrUnreachable))
	start := time.Now()
	_, err = fetcher.Look(t.Context(), p.options())
	require.ErrorIs(t, err, registry.ErrUnreachable)
	require.Less(t, time.Since(start), 5*time.Second, "it asks once")
}

func TestOneRootServesOneReference(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put("llama/1", model("one"))
	w.mustInit()
	other, err := registry.ParseRef("models:/mistral@champion")
	require.NoError(t, err)
	opts := w.options()
	opts.Ref = other
	lists := w.store.Count("ListObjectsV2")
	w.requireUntouched(func() {
		_, err := fetcher.Init(t.Context(), opts)
		require.ErrorIs(t, err, fetcher.ErrUsage)
		require.ErrorContains(t, err, "serves models:/llama@champion")
		require.ErrorContains(t, err, "use another --root")
	})
	require.Equal(t, lists, w.store.Count("ListObjectsV2"), "found before any traffic")

	opts.AdoptRoot = true
	_, err = fetcher.Init(t.Context(), opts)
	require.NoError(t, err)
	_, err = w.init()
	require.ErrorIs(t, err, fetcher.ErrUsage, "now it serves the other one")
}

func TestTwoReferencesRaceForAFreshRoot(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put("llama/1", model("one"))
	refs := []string{"models:/llama@champion", "models:/mistral@champion", "models:/qwen@champion", "models:/phi@champion"}
	errs := make([]error, len(refs))
	var wg sync.WaitGroup
	for i, text := range refs {
		ref, err := registry.ParseRef(text)
		require.NoError(t, err)
		wg.Go(func() {
			opts := w.options()
			opts.Ref = ref
			_, errs[i] = fetcher.Init(t.Context(), opts)
		})
	}
	wg.Wait()
	won := 0
	for _, err := range errs {
		if err == nil {
			won++
			continue
		}
		require.ErrorIs(t, err, fetcher.ErrUsage)
	}
	require.Equal(t, 1, won)
	w.requireCurrent(model("one"))
}

func TestARubbishStateIsWrittenAnew(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put("llama/1", model("one"))
	require.NoError(t, os.MkdirAll(w.root, 0o750))
	require.NoError(t, os.WriteFile(filepath.Join(w.root, ".state.json"), []byte("{half"), 0o600))
	w.mustInit()
	require.Equal(t, "models:/llama@champion", openStore(t, w.root).State().Ref)
}

// BenchmarkRollback moves between two versions on disk: a question, a listing
// and a rename, fsyncs and the survey of old versions included.
func BenchmarkRollback(b *testing.B) {
	w := newWorld(b)
	for _, v := range []string{"llama/1", "llama/2"} {
		w.put(v, model(v))
		w.mustInit()
	}
	for i := 0; b.Loop(); i++ {
		w.point(fmt.Sprintf("llama/%d", i%2+1))
		require.True(b, w.mustInit().Changed)
	}
}

// A version on disk was found where it may not be read from any more, while the
// registry now says another place: after a map of the artifact proxy was given,
// for one.
func TestAPlaceThatIsAllowedNoMoreIsAskedForAgain(t *testing.T) {
	t.Parallel()
	p := newPeeking(t)
	p.point("llama/1")
	p.mustRun(p.options())
	p.put("elsewhere/1", model("one"))
	opts := p.options()
	for allow, ok := range map[string]bool{"s3://weights/elsewhere": true, "s3://weights/nowhere": false} {
		loc, err := registry.ParseLocation(allow)
		require.NoError(t, err)
		opts.AllowLocations = []registry.Location{loc}
		_, resolves, _, _ := p.counts()
		got, err := fetcher.DryRun(t.Context(), opts)
		_, resolves2, _, _ := p.counts()
		require.Equal(t, 1, resolves2-resolves)
		if !ok {
			require.ErrorIs(t, err, registry.ErrBroken)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, "s3://weights/elsewhere/1", got.Manifest.Location)
	}
}
