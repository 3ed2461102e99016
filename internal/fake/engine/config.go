package engine

import (
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"
)

// Why an engine did not start, or ended on its own. For errors.Is.
var (
	// ErrNoShards: the model folder holds no *.safetensors file.
	ErrNoShards = errors.New("no safetensors file in the model folder")
	// ErrBadShard: a shard's header is broken or does not fit its size.
	ErrBadShard = errors.New("broken safetensors file")
	// ErrMixedVersions: the shards name different versions.
	ErrMixedVersions = errors.New("mixed versions")
	// ErrStartFailed: Config.FailStart asked for it.
	ErrStartFailed = errors.New("engine failed to start, as configured")
	// ErrExited: Config.ExitAfter asked for it.
	ErrExited = errors.New("engine exited, as configured")
)

// Config describes an engine. The zero value is a small, fast, idle model
// without weights.
type Config struct {
	// Model is the served name: the API's model field and the metrics' label
	// model_name. "": llama.
	Model string
	// ModelDir is the folder with the weights, e.g. /models/current; it may be
	// a symbolic link. "": no weights, version and digest unknown.
	ModelDir string

	// StartDelay is how long a start takes at least. With a ModelDir it is
	// spread evenly over its files.
	StartDelay time.Duration
	// StartJitter adds between 0 and itself, at random.
	StartJitter time.Duration
	// Rand gives the jitter, in [0, 1). nil: math/rand/v2.
	Rand func() float64

	// Slots is how many requests run at once. 0: 16.
	Slots int
	// PrefillTokensPerSecond is how fast each request's prompt is processed.
	// 0: 8000.
	PrefillTokensPerSecond float64
	// DecodeInterval is the time per generated token. 0: 25 ms.
	DecodeInterval time.Duration
	// GaugeLag is how old the values of num_requests_running and
	// num_requests_waiting are (vLLM: 3 to 20 s). Before the first GaugeLag has
	// passed they are 0.
	GaugeLag time.Duration
	// ShutdownTimeout is vLLM's --shutdown-timeout: how long running requests
	// may go on after the end was asked for. 0: they are aborted at once.
	ShutdownTimeout time.Duration

	// FailStart makes the start fail with ErrStartFailed after its delay.
	FailStart bool
	// HangStart makes the start never end.
	HangStart bool
	// ExitAfter makes Run cut all connections and return ErrExited this long
	// after the engine became ready. 0: never.
	ExitAfter time.Duration

	// Logger receives start, readiness, drain and end. nil: discarded.
	Logger *slog.Logger
}

// withDefaults fills in what was left zero or makes no sense.
func (c Config) withDefaults() Config {
	if c.Model == "" {
		c.Model = "llama"
	}
	if c.Rand == nil {
		c.Rand = rand.Float64
	}
	if c.Slots <= 0 {
		c.Slots = 16
	}
	if c.PrefillTokensPerSecond <= 0 {
		c.PrefillTokensPerSecond = 8000
	}
	if c.DecodeInterval <= 0 {
		c.DecodeInterval = 25 * time.Millisecond
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}
