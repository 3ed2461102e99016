package engine

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// The reasons for which an answer of this engine ends.
const (
	finishLength = "length" // max_tokens reached
	finishAbort  = "abort"  // the engine is going down
)

// errAborted ends a wait when the engine goes down.
var errAborted = errors.New("aborted by the engine")

// generate takes a request through queue, prefill and decode, and calls emit
// with the text of each token. It returns why the answer ended, or the error of
// ctx (the client left) or of emit.
func (e *Engine) generate(ctx context.Context, prompt, maxTokens int, emit func(text string) error) (finish string, err error) {
	arrived := time.Now()
	started := arrived
	ended := func(err error) (string, error) {
		if !errors.Is(err, errAborted) {
			return "", err // clients that leave are not counted, as in vLLM
		}
		e.metrics.finished(finishAbort, arrived, started)
		return finishAbort, nil
	}
	err = e.slots.acquire(ctx, e.aborted)
	started = time.Now()
	if err != nil {
		return ended(err)
	}
	defer e.slots.release()
	next := started.Add(time.Duration(float64(prompt) / e.config.PrefillTokensPerSecond * float64(time.Second)))
	if err := sleep(ctx, e.aborted, time.Until(next)); err != nil {
		return ended(err)
	}
	e.metrics.prompt.Add(float64(prompt))
	for i := range maxTokens {
		// Steps are counted from the start, so that slow writes do not add up.
		next = next.Add(e.config.DecodeInterval)
		if err := sleep(ctx, e.aborted, time.Until(next)); err != nil {
			return ended(err)
		}
		e.metrics.generated.Inc()
		if i == 0 {
			e.metrics.firstToken.Observe(time.Since(arrived).Seconds())
		}
		if err := emit(e.token(i)); err != nil {
			return "", err
		}
	}
	e.metrics.finished(finishLength, arrived, started)
	return finishLength, nil
}

// token is the text of the i-th token. The first names model and version.
func (e *Engine) token(i int) string {
	words := [...]string{"the", "small", "flame", "keeps", "the", "engine", "warm", "tonight"}
	word := " " + words[i%len(words)]
	if i == 0 {
		return fmt.Sprintf("%s version %s says:%s", e.config.Model, known(e.LoadedVersion()), word)
	}
	return word
}

// fingerprint names the weights behind an answer: version and the first 12 hex
// digits of the digest.
func (e *Engine) fingerprint() string {
	m := e.loadedModel()
	digest := known(m.Digest)
	return fmt.Sprintf("version=%s;digest=%s", known(m.Version), digest[:min(len(digest), 12)])
}

// sleep waits for d, or until ctx ends (its error) or stop is closed
// (errAborted).
func sleep(ctx context.Context, stop <-chan struct{}, d time.Duration) error {
	t := time.NewTimer(max(d, 0))
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-stop:
		return errAborted
	case <-t.C:
		return nil
	}
}
