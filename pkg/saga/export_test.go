package saga

import "context"

// FireTimers takes one batch of timers, as RunTimers does again and again.
func (e *Engine[T]) FireTimers(ctx context.Context) (int, error) { return e.fireTimers(ctx) }

// What tests count on.
const (
	Askers      = askers
	SilentAfter = silentAfter
)
