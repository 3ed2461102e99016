package transfer

import (
	"context"
	"fmt"
	"io"
	"time"
)

// watchdog cancels an attempt in which the store sends nothing for a while. It
// runs only while we wait for the store: a slow disk is not the store's fault.
type watchdog struct {
	limit  time.Duration
	timer  *time.Timer
	cancel context.CancelCauseFunc
}

// newWatchdog returns a context for one attempt and its running watchdog.
func newWatchdog(ctx context.Context, limit time.Duration) (context.Context, *watchdog) {
	ctx, cancel := context.WithCancelCause(ctx)
	stalled := fmt.Errorf("%w: %w for %v", ErrUnreachable, errStalled, limit)
	return ctx, &watchdog{limit: limit, cancel: cancel, timer: time.AfterFunc(limit, func() { cancel(stalled) })}
}

// read reads once from the store under the watch.
func (w *watchdog) read(r io.Reader, p []byte) (int, error) {
	w.timer.Reset(w.limit)
	n, err := r.Read(p)
	w.timer.Stop()
	return n, err // io.EOF must stay itself
}

func (w *watchdog) stop() {
	w.timer.Stop()
	w.cancel(nil)
}
