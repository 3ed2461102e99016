package fetchercmd

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/pilotlight-dev/pilotlight/fetcher"
	"github.com/pilotlight-dev/pilotlight/warmup/prime"
)

// Values of --warm-cache.
const (
	warmAuto = "auto"
	warmOff  = "off"
)

// mostWarmRequests bounds --warm-requests: an engine takes a few hundred at a
// time, and more warm nothing.
const mostWarmRequests = 256

type primeFlags struct {
	cache    string
	requests int
	engine   string
	keyFile  string
}

func (a *app) addPrimeFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&a.prime.cache, "warm-cache", warmAuto, "auto or off: read what is published, and what an engine is about to load, into the page cache, as far as memory allows; never what was just written through it, and never as --writer")
	f.StringVar(&a.prime.engine, "engine-url", "", "base URL of the engine, such as http://127.0.0.1:8000: it is warmed up after each start, and GET /readyz/engine answers 200 from then on")
	f.IntVar(&a.prime.requests, "warm-requests", prime.DefaultRequests, "requests that warm the engine of --engine-url up: a short one, a long one, the rest at the same time; 0 sends none")
	f.StringVar(&a.prime.keyFile, "engine-api-key-file", "", "file with the API key that the engine of --engine-url asks for, read before each warm-up")
}

// checkPrime also derives --engine-health, by which starts are seen.
func (a *app) checkPrime() error {
	p := &a.prime
	switch {
	case p.cache != warmAuto && p.cache != warmOff:
		return fmt.Errorf("%w: --warm-cache %q: want auto or off", fetcher.ErrUsage, p.cache)
	case p.requests < 0 || p.requests > mostWarmRequests:
		return fmt.Errorf("%w: --warm-requests %d: want 0 to %d", fetcher.ErrUsage, p.requests, mostWarmRequests)
	case p.engine == "" && p.keyFile != "":
		return fmt.Errorf("%w: --engine-api-key-file belongs to --engine-url", fetcher.ErrUsage)
	case p.engine == "":
		return nil
	case a.agent.writer:
		return fmt.Errorf("%w: a --writer has no engine: --engine-url belongs to the pods that read", fetcher.ErrUsage)
	}
	u, err := url.Parse(p.engine)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" {
		return fmt.Errorf("%w: --engine-url: want a URL such as http://127.0.0.1:8000", fetcher.ErrUsage)
	}
	if a.agent.engineHealth == "" {
		a.agent.engineHealth = u.JoinPath("health").String()
	}
	return nil
}

// keeper makes what warms page cache and engine.
func (a *app) keeper(metrics prometheus.Registerer) (*prime.Keeper, error) {
	opts := prime.KeeperOptions{Registerer: metrics, Logger: a.log}
	if a.prime.cache == warmAuto && !a.agent.writer {
		opts.Cache = func(ctx context.Context, dir string) (report prime.CacheReport, err error) {
			a.effort.work(func() { report, err = prime.Cache{Dir: dir}.Warm(ctx) })
			return report, err // names the folder
		}
	}
	if a.prime.engine != "" {
		opts.Engine = a.warmEngine
	}
	return prime.NewKeeper(opts) // says what it was doing
}

// warmEngine warms the engine up once. A key that cannot be read is a warm-up
// that fails, not an agent that does.
func (a *app) warmEngine(ctx context.Context) (prime.EngineReport, error) {
	engine := prime.Engine{URL: a.prime.engine, Requests: a.prime.requests}
	if engine.Requests == 0 {
		engine.Requests = -1
	}
	if file := a.prime.keyFile; file != "" {
		key, err := os.ReadFile(file) //nolint:gosec // the user's choice
		if err == nil && len(strings.TrimSpace(string(key))) == 0 {
			err = errors.New("it is empty")
		}
		if err != nil {
			return prime.EngineReport{}, fmt.Errorf("reading --engine-api-key-file: %w", err)
		}
		engine.APIKey = prime.Secret(strings.TrimSpace(string(key)))
	}
	return engine.Warm(ctx) // says what it was doing
}

// engineGate is the readiness probe of the engine, if there is one.
func (a *app) engineGate(keeper *prime.Keeper) http.Handler {
	if a.prime.engine != "" {
		return keeper
	}
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "the agent knows no engine: give it --engine-url", http.StatusNotFound)
	})
}
