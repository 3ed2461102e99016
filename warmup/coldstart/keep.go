package coldstart

import (
	"context"
	"log/slog"
	"maps"
	"time"
)

// Store keeps entries across restarts.
type Store interface {
	// Load returns what it can read. Entries that are there but make no sense
	// are left out and reported as damaged (ErrEntry), each by its name; they
	// are lost, and the next Save clears them. An error means that there may
	// be entries that could not be reached.
	Load(ctx context.Context) (entries map[Key]Entry, damaged []error, err error)

	// Save merges the given entries into what is there.
	Save(ctx context.Context, entries map[Key]Entry) error
}

// Memory is something beside a Learner that is kept in the same Store, each
// part of it in the State of an Entry.
type Memory interface {
	// Owns tells this Memory's entries from those of the Learner and of others.
	Owns(k Key) bool

	// Restore takes in what the Store had; what is known already is newer. It
	// returns what makes no sense to it, each by its name (ErrEntry).
	Restore(entries map[Key]Entry) (damaged []error)

	// Changed returns what is to be written, and counts it as written.
	Changed() map[Key]Entry

	// Failed takes that back.
	Failed(entries map[Key]Entry)
}

// Keeper writes the changes of a Learner, and of what else is kept with it, to
// a Store. Call Restore, then Run.
type Keeper struct {
	Learner *Learner
	Others  []Memory
	Store   Store
	Every   time.Duration // between writes; default 30 s
	Logger  *slog.Logger  // nil: discard

	restored bool   // the whole Store has been read
	said     string // what is wrong with the Store, as last said
}

// Patience bounds each reading and each writing of a Store: the scaler does not
// begin to serve, and does not end, later than that because of it.
const Patience = 5 * time.Second

// Run writes changes every so often, and once more when ctx has ended. A Store
// that cannot be written to is tried again. As long as Restore has not reached
// all of the Store, Run repeats it and writes nothing: it would replace what
// was learned before with the little that was learned since.
func (k *Keeper) Run(ctx context.Context) {
	every := k.Every
	if every <= 0 {
		every = 30 * time.Second
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			k.save(context.WithoutCancel(ctx))
			return
		case <-tick.C:
			k.save(ctx)
		}
	}
}

// Restore fills the Learner from the Store, within Patience. It reports what
// could not be read and goes on without it.
func (k *Keeper) Restore(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	k.restore(ctx)
}

func (k *Keeper) restore(ctx context.Context) {
	entries, damaged, err := k.Store.Load(ctx)
	for _, m := range k.Others {
		theirs := map[Key]Entry{}
		for key, e := range entries {
			if m.Owns(key) {
				theirs[key] = e
				delete(entries, key)
			}
		}
		damaged = append(damaged, m.Restore(theirs)...)
	}
	k.Learner.Restore(entries)
	for _, d := range damaged {
		k.log().Warn("something learned before cannot be read, and is learned anew", "error", d)
	}
	k.restored = err == nil
	k.say(err, "what was learned before could not be reached, trying again", len(entries))
}

// say reports what is wrong with the Store, once for as long as it stays the same.
func (k *Keeper) say(err error, text string, targets int) {
	if err == nil {
		k.said = ""
		return
	}
	if k.said != err.Error() {
		k.said = err.Error()
		k.log().Warn(text, "targets", targets, "error", err)
	}
}

func (k *Keeper) save(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	if !k.restored {
		k.restore(ctx)
	}
	if !k.restored {
		return
	}
	changed := k.Learner.changed()
	for _, m := range k.Others {
		maps.Copy(changed, m.Changed())
	}
	if len(changed) == 0 {
		return
	}
	err := k.Store.Save(ctx, changed)
	if err != nil {
		k.Learner.failed(changed)
		for _, m := range k.Others {
			m.Failed(changed)
		}
	}
	k.say(err, "what was learned could not be written, trying again", len(changed))
}

func (k *Keeper) log() *slog.Logger {
	if k.Logger == nil {
		return slog.New(slog.DiscardHandler)
	}
	return k.Logger
}
