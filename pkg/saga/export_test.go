package saga

import "context"

// NewThrottle and FireTimersAt are what RunTimers uses.
func (e *Engine[T]) NewThrottle(rate int) *throttle {
	c := *e
	c.cfg.DueRate = rate
	return c.newThrottle()
}

func (e *Engine[T]) FireTimersAt(ctx context.Context, limit *throttle) (int, error) {
	return e.fireTimers(ctx, limit)
}

// What tests count on.
const (
	Askers      = askers
	SilentAfter = silentAfter
	TimerBatch  = timerBatch
)
