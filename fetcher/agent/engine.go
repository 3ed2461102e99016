package agent

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"syscall"
	"time"
)

// probeEvery is how often the engine's health is asked, and probeTimeout how
// long for an answer. A start takes tens of seconds at least.
const (
	probeEvery   = time.Second
	probeTimeout = time.Second
)

// health is what one probe found.
type health int

const (
	unclear health = iota // no answer in time, or another one: a busy or broken engine
	refused               // nobody listens: the engine is not up
	healthy               // 200
)

// EngineState is what an engine is doing, as the status names it.
type EngineState string

// The states of an engine.
const (
	EngineReady   EngineState = "ready"
	EngineLoading EngineState = "loading"
	EngineUnknown EngineState = "unknown"
)

// engine knows which version the engine serves. With a link of its own that is
// what the link names, which is frozen while an engine lives. Without one it is
// what `current` named from the first refusal to the first 200 after it; if
// `current` moved in between, nobody knows.
type engine struct {
	state  EngineState
	loads  string // digest while loading, served once ready; "" unknown
	since  time.Time
	down   bool // refused at the last clear probe
	probed bool // at least one clear probe
}

// see takes one probe into account; names is the digest that the link, or
// `current`, names now, and frozen says that it is the link.
func (e *engine) see(h health, names string, frozen bool, now time.Time) {
	switch h {
	case refused:
		if !e.down {
			e.loads, e.since = names, time.Time{}
		} else if e.loads != names && !frozen {
			e.loads = ""
		}
		e.state, e.down, e.probed = EngineLoading, true, true
	case healthy:
		if e.down && !frozen && e.loads != names || !e.probed && !frozen {
			e.loads = "" // it moved during the load, or it was up before we were
		}
		if frozen {
			e.loads = names
		}
		if e.since.IsZero() {
			e.since = now
		}
		e.state, e.down, e.probed = EngineReady, false, true
	default:
		e.state = EngineUnknown
	}
}

// probeEngine asks the engine's health until the context ends.
func (a *Agent) probeEngine(ctx context.Context) error {
	client := &http.Client{
		Timeout:       probeTimeout,
		Transport:     &http.Transport{DialContext: (&net.Dialer{Timeout: probeTimeout}).DialContext, MaxIdleConnsPerHost: 1},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	defer client.CloseIdleConnections()
	ticker := time.NewTicker(probeEvery)
	defer ticker.Stop()
	for {
		a.learnEngine(ctx, probe(ctx, client, a.opts.EngineHealth))
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

func probe(ctx context.Context, client *http.Client, url string) health {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return unclear
	}
	resp, err := client.Do(req)
	if errors.Is(err, syscall.ECONNREFUSED) {
		return refused
	}
	if err != nil {
		return unclear
	}
	_, _ = io.CopyN(io.Discard, resp.Body, 4096) // so that the connection can be used again
	_ = resp.Body.Close()
	if resp.StatusCode == http.StatusOK {
		return healthy
	}
	return unclear
}
