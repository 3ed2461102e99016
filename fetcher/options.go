package fetcher

import (
	"context"
	"fmt"
	"log/slog"
	"path"
	"path/filepath"
	"time"

	"github.com/pilotlight-dev/pilotlight/fetcher/transfer"
	"github.com/pilotlight-dev/pilotlight/fetcher/volume"
	"github.com/pilotlight-dev/pilotlight/registry"
)

// Defaults of Options' zero values.
const (
	DefaultDeadline = 30 * time.Minute
	DefaultStall    = transfer.DefaultStall
	// MaxConnections is the most and the default of Options.Connections.
	MaxConnections = transfer.DefaultConnections
)

// Resolver says what a reference means now. Its errors wrap package registry's.
type Resolver interface {
	Resolve(ctx context.Context, ref registry.Ref) (registry.Resolution, error)
}

// Options says what to fetch and where to. Ref, Root, Resolver and Connect are
// required.
type Options struct {
	Ref  registry.Ref
	Root string
	// Resolver is asked once per run (and again while it is unreachable).
	Resolver Resolver
	// Connect returns a client for the store that holds a location; it does
	// not have to contact it.
	Connect func(ctx context.Context, loc registry.Location) (S3API, error)
	// Artifacts reads versions that lie behind a tracking server's artifact proxy;
	// nil means the Resolver, if it can.
	Artifacts Artifacts
	// SubPath is a folder inside the version; only what is below it is
	// fetched, and paths begin there. Empty means all of it.
	SubPath string
	// Include and Exclude are globs that choose among the version's files: those
	// that an Include matches, if there is any, and no Exclude. A choice is part
	// of the digest: another choice is another version. See newFilters for the
	// form.
	Include, Exclude []string
	// Verify says what a version on disk must prove before it is used again;
	// empty means VerifyAuto.
	Verify Verify
	// AnyLayout publishes a tree in which no model is looked for.
	AnyLayout bool
	// Pin is the version that a rollout chose for this pod, a version number
	// or, for a reference to a place, a place. It is fetched instead of what
	// the reference means now. Where a pointer object still names the pinned
	// place, the digest that it records is demanded. Empty means none.
	Pin string
	// Prefetch brings the version to the root's disk and publishes nothing: a later
	// run that wants it has it. Nothing is removed to make room for it.
	Prefetch bool
	// Offline takes a version that is on disk as it is, without listing the
	// store; one that is not on disk is an error then.
	Offline bool
	// AdoptRoot lets a root that served another reference serve this one.
	AdoptRoot bool
	// Retention says which old versions stay; the zero value works.
	Retention Retention
	// Collector removes old versions, in a process that runs more than once on
	// one root; nil means that each run makes its own, from Retention and Link.
	Collector *Collector
	// Link is the pod's own, frozen link, on a volume of the pod; empty means
	// none. See Frozen.
	Link string
	// Reader names the pod in the root, by its uid or name, so that the
	// version that Link names is not collected. Empty means the host's name.
	Reader string
	// ReadOnly publishes nothing: it waits until a writer has, and sets Link.
	ReadOnly bool
	// AllowLocations are the places that a reference may resolve to; empty
	// means any.
	AllowLocations []registry.Location
	// Connections is the most requests at once, up to MaxConnections, which 0
	// means too. How many of them help is found out under way.
	Connections int
	// Memory is what buffers, sockets and dirty pages of the transfer may take, in
	// bytes; 0 means half of what the memory cgroup leaves, at most 1 GiB.
	Memory int64
	// SizeLimit is how much the volume of the root may hold, in bytes, before the
	// kubelet evicts the pod (an emptyDir's sizeLimit); 0 means no limit beyond the
	// file system's.
	SizeLimit int64
	// Bandwidth is the most bytes per second; 0 means no limit.
	Bandwidth int64
	// Durability says how long what is written must last; empty means Auto, by
	// the mount of the root.
	Durability volume.Durability
	// ETags compares files that have no other proof with the ETag of their upload
	// in parts, which takes a second reading of them.
	ETags bool
	// Deadline bounds the whole run, waits included; 0 means DefaultDeadline.
	Deadline time.Duration
	// Stall is how long a store may send nothing before the request is given
	// up and repeated; 0 means DefaultStall.
	Stall time.Duration
	// RetryBase and RetryMax bound the waits between attempts; 0 means 500 ms
	// and 30 s.
	RetryBase, RetryMax time.Duration
	// By names the program in .state.json.
	By string
	// Progress is told what happens; nil means nobody is.
	Progress Progress
	// Logger is written to; nil discards.
	Logger *slog.Logger

	hooks   hooks
	filters []string // Include and Exclude, as the manifest records them
}

// Result is what a successful run did.
type Result struct {
	Manifest Manifest
	// Path is the published link, and Link the pod's own, if it has one. Below
	// either, ModelLink and TokenizerLink name what an engine loads.
	Path, Link string
	// Reused: the version was complete on disk, nothing was downloaded.
	Reused bool
	// Changed: `current` was moved by this run.
	Changed bool
	// Downloaded is in bytes, without the attempts that failed; Linked is what
	// another version on the volume had already.
	Downloaded, Linked int64
	Retries            int64
	Duration           time.Duration
	// Transfer says what the download was like; zero when there was none.
	Transfer transfer.Stats
}

// ModelPath is what an engine loads: below the pod's link, or else below the
// published one. It is the same for every version.
func (r Result) ModelPath() string { return r.below(ModelLink) }

// TokenizerPath is where the engine's tokenizer is; the model's own folder, by
// another name, if it was not stored apart.
func (r Result) TokenizerPath() string { return r.below(TokenizerLink) }

func (r Result) below(name string) string {
	base := r.Link
	if base == "" {
		base = r.Path
	}
	return filepath.Join(base, name)
}

func (o Options) withDefaults() (Options, error) {
	switch {
	case o.Ref == registry.Ref{}:
		return o, fmt.Errorf("%w: no model given", ErrUsage)
	case !o.ReadOnly && (o.Resolver == nil || o.Connect == nil):
		return o, fmt.Errorf("%w: no resolver or no object store given", ErrUsage)
	case o.Connections < 0 || o.Connections > MaxConnections:
		return o, fmt.Errorf("%w: %d connections: want 1 to %d", ErrUsage, o.Connections, MaxConnections)
	case o.Memory < 0 || o.Bandwidth < 0 || o.SizeLimit < 0:
		return o, fmt.Errorf("%w: a negative amount of memory, bandwidth or space", ErrUsage)
	case o.Deadline < 0 || o.Stall < 0:
		return o, fmt.Errorf("%w: a negative duration", ErrUsage)
	case o.Prefetch && (o.ReadOnly || o.Link != ""):
		return o, fmt.Errorf("%w: a run that only prefetches publishes nothing and sets no link", ErrUsage)
	case o.ReadOnly && o.Link == "":
		return o, fmt.Errorf("%w: a read-only run sets the pod's link: give its path (--link)", ErrUsage)
	}
	if _, err := o.wanted(); err != nil {
		return o, err
	}
	var err error
	if o.filters, err = newFilters(o.Include, o.Exclude); err != nil {
		return o, err
	}
	if o.Verify, err = ParseVerify(string(o.Verify)); err != nil {
		return o, err
	}
	retention, err := o.Retention.withDefaults()
	if err != nil {
		return o, err
	}
	o.Retention = retention
	if o.SubPath != "" {
		clean := path.Clean(o.SubPath)
		if !filepath.IsLocal(o.SubPath) || checkKey(clean) != "" {
			return o, fmt.Errorf("%w: sub-path %q: want a folder inside the version, such as model", ErrUsage, o.SubPath)
		}
		o.SubPath = clean
	}
	if o.Artifacts == nil {
		o.Artifacts, _ = o.Resolver.(Artifacts)
	}
	if o.Deadline == 0 {
		o.Deadline = DefaultDeadline
	}
	if o.Stall == 0 {
		o.Stall = DefaultStall
	}
	if o.Progress == nil {
		o.Progress = noProgress{}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.hooks.freeBytes == nil {
		o.hooks.freeBytes = freeBytes
	}
	return o, nil
}
