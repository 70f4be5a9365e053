package participant

import (
	"context"
	"testing"

	"github.com/google/uuid"
)

// A sibling that had not ended when the step was claimed is read again: it may have ended since.
func TestSiblingThatEndsMeanwhile(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	action, begun, look := newGate(), make(chan struct{}), make(chan struct{})
	states := make(chan State, 1)
	r := d.runner(action.step(hold), Step{Name: "look", Perform: func(ctx context.Context, call *Call) Outcome {
		close(begun)
		<-look
		sibling, _, err := call.Sibling(ctx, hold)
		if err != nil {
			return Unknown{Err: err}
		}
		states <- sibling.State
		return Done{}
	}})
	order := uuid.New()
	d.apply(r, command(order, hold))
	action.call(d)
	d.apply(r, command(order, "look"))
	<-begun
	action.answer <- held
	d.finish(r)
	close(look)
	d.finish(r)
	if got := <-states; got != StateDone {
		t.Errorf("sibling: got %s, want done", got)
	}
}
