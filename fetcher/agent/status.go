package agent

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"time"

	"github.com/pilotlight-dev/pilotlight/fetcher"
	"github.com/pilotlight-dev/pilotlight/internal/atomicfile"
)

// Status is the answer of GET /status. Fields are added to it, never changed.
type Status struct {
	V   int    `json:"v"` // 1
	Ref string `json:"ref"`
	// OnChange is what this agent does when another version than its engine's is
	// published: one of the Actions. A pinned pod's does nothing.
	OnChange Action `json:"onChange"`
	// Published is what `current` names; null before the first publication.
	Published *Published `json:"published"`
	Serving   Serving    `json:"serving"`
	// Pointer is null where the agent asks none: in a read-only pod.
	Pointer *Pointer `json:"pointer"`
	// Watch is what a read-only pod has instead: how watching the volume goes. It
	// says nothing of the pointer, which the writer of the volume asks. Elsewhere
	// it is null.
	Watch *Pointer `json:"watch"`
	// Named is what the pointer named when it last answered, in a pinned pod too;
	// null before it has, and where the agent asks none.
	Named *Named `json:"named"`
	// Prefetched is the folder name of the version that lies ready for the pod
	// after this pinned one; "" if none does.
	Prefetched string `json:"prefetched,omitempty"`
	// History is what was published in this root, newest first.
	History []Entry `json:"history"`
}

// Published is a version and since when it is published.
type Published struct {
	Digest  string    `json:"digest"` // 64 hex digits
	Version string    `json:"version"`
	At      time.Time `json:"at"`
	// Model and Tokenizer are the folders that an engine loads, below
	// `current` or the pod's link.
	Model     string `json:"model"`
	Tokenizer string `json:"tokenizer"`
}

// Serving is what the engine of this pod has loaded, or is loading.
type Serving struct {
	Digest  string `json:"digest"` // "" unknown
	Version string `json:"version"`
	// Since is when the engine was first seen ready with it.
	Since *time.Time  `json:"since"`
	State EngineState `json:"state"`
}

// Pointer is how following the pointer, or watching the volume, goes.
type Pointer struct {
	// OK: the pointer could be asked, and what it names is published or coming.
	OK        bool       `json:"ok"`
	CheckedAt *time.Time `json:"checkedAt"` // null before the first answer
	// Code and Reason say what is wrong, by the exit codes; 0 and "" if OK.
	Code   int    `json:"code"`
	Reason string `json:"reason"`
}

// Named is a version that the pointer named, and when it was last heard to.
type Named struct {
	Version string    `json:"version"`
	At      time.Time `json:"at"`
}

// Entry is one publication.
type Entry struct {
	Digest  string    `json:"digest"`
	Version string    `json:"version"`
	At      time.Time `json:"at"`
	By      string    `json:"by"`
}

// knowledge is what the goroutines tell each other and the status. It is
// guarded by Agent.mu, which is never held across I/O.
type knowledge struct {
	published *Published
	previous  string // digest published before, by what this process saw
	hasAsked  bool
	checked   time.Time
	pointer   error // of asking it
	pull      error // of bringing what it names
	named     Named // the zero value before the pointer has answered
	// prefetched is a folder name, or "".
	prefetched string
	engine     engine
	versions   map[string]string // digest -> version, of what was published or loaded
}

// published returns a copy of what is published, or nil.
func (a *Agent) published() *Published {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.known.published == nil {
		return nil
	}
	p := *a.known.published
	return &p
}

func (a *Agent) previous() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.known.previous
}

// learnPublished notes what `current` names; written is what Observer wants to
// know.
func (a *Agent) learnPublished(m fetcher.Manifest, written bool) {
	p := &Published{Digest: m.Digest, Version: m.Version, At: time.Now().UTC(), Model: fetcher.ModelLink, Tokenizer: fetcher.TokenizerLink}
	if m.Layout != nil {
		p.Model, p.Tokenizer = m.Layout.Model, m.Layout.Tokenizer
	}
	if last := a.opts.Store.State().Published; len(last) > 0 && last[0].Digest == m.Digest {
		p.At, p.Version = last[0].At, last[0].Version
	}
	if before := a.setPublished(p); a.opts.Observer == nil || before != nil && before.Digest == m.Digest {
		return
	} else if before == nil && !written {
		a.opts.Observer.Published(a.loads(), false)
	} else {
		a.opts.Observer.Published(a.opts.Store.CurrentPath(), written)
	}
}

// setPublished returns what was published before, or nil.
func (a *Agent) setPublished(p *Published) (before *Published) {
	a.mu.Lock()
	defer a.mu.Unlock()
	k := &a.known
	before = k.published
	if before != nil && before.Digest != p.Digest {
		k.previous = before.Digest
	}
	k.published = p
	k.name(p.Digest, p.Version)
	a.metrics.publishedNow(a.opts.Ref, p)
	offer(a.sweep)
	return before
}

// loads is a link to what an engine loads that starts now: the pod's own where
// it is set, else `current`; "" while nothing is published.
func (a *Agent) loads() string {
	if a.opts.Link != nil {
		if short, err := a.opts.Link.Version(); err == nil && short != "" {
			return a.opts.Link.Path()
		}
	}
	if a.published() == nil {
		return ""
	}
	return a.opts.Store.CurrentPath()
}

// name remembers the version of a digest; a handful is enough.
func (k *knowledge) name(digest, version string) {
	if k.versions == nil || len(k.versions) > 50 {
		k.versions = map[string]string{}
	}
	k.versions[digest] = version
}

func (a *Agent) learnPointer(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.known.pointer, a.known.checked, a.known.hasAsked = err, time.Now().UTC(), true
	a.metrics.setOK(a.known.pointer == nil && a.known.pull == nil)
}

// learnNamed notes an answer of the pointer. A fixed place names no version.
func (a *Agent) learnNamed(version string) {
	if version == "" {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.known.named = Named{Version: version, At: time.Now().UTC()}
}

func (a *Agent) learnPull(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.known.pull = err
	a.metrics.setOK(a.known.pointer == nil && a.known.pull == nil)
}

// learnEngine takes a probe of the engine into account.
func (a *Agent) learnEngine(ctx context.Context, h health) {
	digest, version, frozen := a.loadable(ctx)
	a.mu.Lock()
	before := a.known.engine
	a.known.engine.see(h, digest, frozen, time.Now().UTC())
	if digest != "" {
		a.known.name(digest, version)
	}
	now := a.known.engine
	loads := a.known.versions[now.loads]
	a.mu.Unlock()
	if now.state != before.state {
		a.log.InfoContext(ctx, "the engine's state changed", "state", string(now.state), "version", loads)
		a.metrics.engineNow(now.state)
	}
	switch o := a.opts.Observer; {
	case o == nil:
	case now.down && !before.down:
		o.EngineDown(a.loads())
	case now.probed && !now.down && (before.down || !before.probed):
		o.EngineUp(before.down)
	}
}

// loadable says what an engine that starts now would load: what the pod's link
// names, else what is published.
func (a *Agent) loadable(ctx context.Context) (digest, version string, frozen bool) {
	if a.opts.Link == nil {
		if p := a.published(); p != nil {
			return p.Digest, p.Version, false
		}
		return "", "", false
	}
	short, err := a.opts.Link.Version()
	if err != nil || short == "" {
		return "", "", true
	}
	a.mu.Lock()
	for digest, version := range a.known.versions {
		if shortOf(digest) == short {
			a.mu.Unlock()
			return digest, version, true
		}
	}
	a.mu.Unlock()
	m, err := a.opts.Store.Manifest(short)
	if err != nil {
		a.log.DebugContext(ctx, "could not read the version that the pod's link names", "error", err)
		return "", "", true
	}
	return m.Digest, m.Version, true
}

// Status returns what is known now.
func (a *Agent) Status(ctx context.Context) Status {
	st := Status{V: 1, Ref: a.opts.Ref, Published: a.published(), History: []Entry{}}
	for _, p := range a.opts.Store.State().Published {
		st.History = append(st.History, Entry{Digest: p.Digest, Version: p.Version, At: p.At, By: p.By})
	}
	digest, version, frozen := a.loadable(ctx)
	a.mu.Lock()
	defer a.mu.Unlock()
	e := a.known.engine
	st.Serving = Serving{State: EngineUnknown, Digest: e.loads, Version: a.known.versions[e.loads]}
	if frozen {
		st.Serving.Digest, st.Serving.Version = digest, version
	}
	if e.state != "" {
		st.Serving.State = e.state
	}
	if !e.since.IsZero() {
		since := e.since
		st.Serving.Since = &since
	}
	st.Prefetched = a.known.prefetched
	if named := a.known.named; named.Version != "" {
		st.Named = &named
	}
	if a.opts.Puller != nil {
		st.Pointer = a.pointer()
	} else {
		st.Watch = a.pointer()
	}
	if st.OnChange = a.opts.OnChange.Action; st.OnChange == "" {
		st.OnChange = None
	}
	return st
}

// pointer renders how following goes; the lock is held.
func (a *Agent) pointer() *Pointer {
	k := a.known
	p := &Pointer{OK: k.hasAsked && k.pointer == nil && k.pull == nil}
	if k.hasAsked {
		checked := k.checked
		p.CheckedAt = &checked
	}
	for _, err := range []error{k.pointer, k.pull} {
		if err != nil {
			p.Code, p.Reason = a.opts.Code(err), oneLine(err.Error())
			break
		}
	}
	if !k.hasAsked {
		p.Reason = "not asked yet"
	}
	return p
}

// failureFile is the content of ErrorFile.
type failureFile struct {
	Code   int       `json:"code"`
	Reason string    `json:"reason"`
	Ref    string    `json:"ref"`
	At     time.Time `json:"at"`
}

func (a *Agent) writeErrorFile(ctx context.Context, err error) {
	if a.opts.ErrorFile == "" {
		return
	}
	data, merr := json.Marshal(failureFile{Code: a.opts.Code(err), Reason: oneLine(err.Error()), Ref: a.opts.Ref, At: time.Now().UTC()})
	if merr == nil {
		merr = writeFile(a.opts.ErrorFile, append(data, '\n'))
	}
	if merr != nil {
		a.log.WarnContext(ctx, "could not write the error file", "error", merr)
	}
}

func (a *Agent) clearErrorFile() {
	if a.opts.ErrorFile == "" {
		return
	}
	if err := os.Remove(a.opts.ErrorFile); err != nil && !os.IsNotExist(err) {
		a.log.Warn("could not remove the error file", "error", err)
	}
}

// touch tells others by a file's time and content that something changed.
func (a *Agent) touch(ctx context.Context) {
	p := a.published()
	if a.opts.TouchFile == "" || p == nil {
		return
	}
	if err := writeFile(a.opts.TouchFile, []byte(p.Digest+"\n")); err != nil {
		a.log.WarnContext(ctx, "could not write the touch file", "error", err)
	}
}

func writeFile(name string, data []byte) error {
	dir, err := os.OpenRoot(filepath.Dir(name))
	if err != nil {
		return err // names the folder
	}
	err = atomicfile.Write(dir, filepath.Base(name), data, atomicfile.Options{})
	if cerr := dir.Close(); err == nil {
		err = cerr
	}
	return err // names the file
}
