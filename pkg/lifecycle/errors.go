package lifecycle

import "errors"

var (
	// ErrEnded: a component returned without an error before it was told to stop.
	ErrEnded = errors.New("ended before it was told to stop")
	// ErrStuck: a component did not return after its work context was cancelled.
	ErrStuck = errors.New("did not return after its work was cancelled")
	// ErrStarting: not every component is ready yet.
	ErrStarting = errors.New("still starting")
	// ErrStopping: the group takes no new work.
	ErrStopping = errors.New("stopping")
)
