// Package retry repeats an action that failed for a passing reason, with
// exponential backoff and full jitter, until it succeeds, the error is final,
// the attempts are used up or the context ends.
//
// The package decides only when to try again. Which errors pass is the
// caller's knowledge: it hands in Retryable. Waits always select on the
// context, and the last real error is returned, never a bare "context
// deadline exceeded", so that a log line names the cause.
package retry

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// Defaults of Policy's zero values.
const (
	DefaultBase = 500 * time.Millisecond
	DefaultMax  = 30 * time.Second
)

// Policy says how often and how patiently to repeat. The zero value works:
// unlimited attempts (the context bounds them), 500 ms doubling to 30 s, and
// every error is worth another attempt.
type Policy struct {
	// Base is the upper bound of the first wait; it doubles per attempt.
	Base time.Duration
	// Max bounds a single wait.
	Max time.Duration
	// Attempts bounds the number of calls; 0 means that only the context does.
	Attempts int
	// Retryable tells passing errors from final ones; nil means all pass.
	Retryable func(error) bool
	// OnRetry is told about every failure that will be followed by another
	// attempt; it must not block.
	OnRetry func(attempt int, wait time.Duration, err error)
}

// Wait returns how long to wait after the given attempt (1 is the first):
// a duration drawn uniformly from [half, whole] of min(Max, Base·2^(attempt-1)).
// Half is kept so that a refused server always gets some rest.
func (p Policy) Wait(attempt int) time.Duration {
	base, ceiling := p.Base, p.Max
	if base <= 0 {
		base = DefaultBase
	}
	if ceiling <= 0 {
		ceiling = DefaultMax
	}
	whole := base
	for range attempt - 1 {
		if whole >= ceiling {
			break
		}
		whole *= 2
	}
	whole = min(whole, ceiling)
	half := whole / 2
	return half + rand.N(whole-half+1) //nolint:gosec // jitter needs no secrecy
}

// Do calls fn until it returns nil or a final error. When the context ends
// first, the error wraps both the last failure of fn (if any) and the
// context's cause. fn receives the number of the attempt, starting at 1.
func Do(ctx context.Context, p Policy, fn func(ctx context.Context, attempt int) error) error {
	var last error
	for attempt := 1; ; attempt++ {
		if ctx.Err() != nil {
			return ended(ctx, last)
		}
		err := fn(ctx, attempt)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil && last != nil && cutShort(ctx, err) {
			return ended(ctx, last) // what went wrong before says more
		}
		last = err
		switch {
		case ctx.Err() != nil:
			return ended(ctx, err)
		case p.Retryable != nil && !p.Retryable(err):
			return err
		case p.Attempts > 0 && attempt >= p.Attempts:
			return fmt.Errorf("after %d attempts: %w", attempt, err)
		}
		wait := p.Wait(attempt)
		var hint *afterError
		if errors.As(err, &hint) {
			wait = max(wait, min(hint.wait, p.ceiling()))
		}
		if p.OnRetry != nil {
			p.OnRetry(attempt, wait, err)
		}
		if Sleep(ctx, wait) != nil {
			return ended(ctx, err)
		}
	}
}

func (p Policy) ceiling() time.Duration {
	if p.Max <= 0 {
		return DefaultMax
	}
	return p.Max
}

// cutShort reports whether an attempt failed because the context ended in it.
func cutShort(ctx context.Context, err error) bool {
	return errors.Is(err, context.Cause(ctx)) || errors.Is(err, ctx.Err())
}

// ended joins the last failure with the reason why the context ended.
func ended(ctx context.Context, last error) error {
	cause := context.Cause(ctx)
	if last == nil {
		return cause
	}
	if errors.Is(last, cause) {
		return last
	}
	return fmt.Errorf("%w (gave up: %w)", last, cause)
}

// Sleep waits for d or until the context ends, whose cause it then returns.
func Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}

// After marks err with the wait that the server asked for (Retry-After). Do
// honours it up to the policy's Max; it never shortens a wait.
func After(err error, wait time.Duration) error {
	if err == nil || wait <= 0 {
		return err
	}
	return &afterError{err: err, wait: wait}
}

type afterError struct {
	err  error
	wait time.Duration
}

func (e *afterError) Error() string { return e.err.Error() }
func (e *afterError) Unwrap() error { return e.err }
