package ceiling

import (
	"context"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// part is a piece of the product that has a thread of its own, and therefore batches of its own.
type part struct {
	name string
	// function is how the part shows in a call stack.
	function string
}

// The parts. What is sent from elsewhere is sent for one order alone, and has the name of the empty part.
var parts = []part{
	{"place", "/placeorder.(*Placer).Run."},
	{"intake", "/participant.(*Runner).ApplyCommands"},
	{"record", "/participant.(*Runner).recordLoop"},
	{"replies", "/saga.(*Engine[...]).ApplyReplies"},
	{partRemove, "/outbox.(*Relay).removeLoop"},
}

// partRemove is the one part that an order does not wait for.
const partRemove = "remove"

// call is one statement with its arguments.
type call struct {
	sql  string
	args []any
}

// transaction is what was sent to a database in one go.
type transaction struct {
	database string
	part     string
	at       time.Time
	calls    []call
}

// Recorder notes all that services send to their databases.
type Recorder struct {
	mu    sync.Mutex
	notes []transaction
}

// Tracer notes what is sent to the database of that name. Give it to the pool of one service.
func (r *Recorder) Tracer(database string) pgx.QueryTracer { return &tracer{r, database} }

// Reset forgets everything.
func (r *Recorder) Reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.notes = nil
}

func (r *Recorder) note(t transaction) {
	t.at, t.part = time.Now(), partOf()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.notes = append(r.notes, t)
}

// tracer implements pgx.QueryTracer and pgx.BatchTracer.
type tracer struct {
	recorder *Recorder
	database string
}

var _ pgx.BatchTracer = (*tracer)(nil)

func (t *tracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	t.recorder.note(transaction{database: t.database, calls: []call{{data.SQL, copyOf(data.Args)}}})
	return ctx
}

func (t *tracer) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (t *tracer) TraceBatchStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	calls := make([]call, len(data.Batch.QueuedQueries))
	for i, q := range data.Batch.QueuedQueries {
		calls[i] = call{q.SQL, copyOf(q.Arguments)}
	}
	t.recorder.note(transaction{database: t.database, calls: calls})
	return ctx
}

func (t *tracer) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (t *tracer) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

// partOf finds which part of the product is calling.
func partOf() string {
	callers := make([]uintptr, 64)
	frames := runtime.CallersFrames(callers[:runtime.Callers(3, callers)])
	for {
		frame, more := frames.Next()
		for _, p := range parts {
			if strings.Contains(frame.Function, p.function) {
				return p.name
			}
		}
		if !more {
			return ""
		}
	}
}

// copyOf keeps arguments as they are now: their owner may use the arrays again.
func copyOf(args []any) []any {
	kept := make([]any, len(args))
	for i, a := range args {
		kept[i] = a
		if a == nil {
			continue
		}
		v := reflect.ValueOf(a)
		if v.Kind() != reflect.Slice {
			continue
		}
		c := reflect.MakeSlice(v.Type(), v.Len(), v.Len())
		reflect.Copy(c, v)
		if lists, ok := c.Interface().([][]byte); ok {
			for k, b := range lists {
				lists[k] = append([]byte{}, b...)
			}
		}
		kept[i] = c.Interface()
	}
	return kept
}
