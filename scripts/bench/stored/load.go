package stored

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Template is the order whose rows are repeated.
type Template struct {
	// Known are the ids that its rows have, its own first.
	Known []uuid.UUID
	Key   string
}

// seed makes all databases, loaded apart, agree on the ids.
const seed = 20260101

// Load puts n orders beside the template into a database. It may be called for several databases of one template: they then
// hold the same orders. The youngest [Youngest] have all that an order leaves behind, those before them what is kept for good. progress is
// told how many orders each table has been through.
func Load(ctx context.Context, url string, t Template, n int, progress func(table string, orders int)) error {
	return load(ctx, url, t, history{n, Youngest}, progress)
}

func load(ctx context.Context, url string, t Template, h history, progress func(table string, orders int)) (err error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return fmt.Errorf("loading orders: %w", err)
	}
	defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(ctx))) }()
	tables, err := readTables(ctx, conn, t)
	if err != nil {
		return fmt.Errorf("reading what an order leaves behind: %w", err)
	}
	// What has most rows comes first: sorting them for an index takes as much of the disk again, while little else is there.
	slices.SortStableFunc(tables, func(a, b *table) int { return cmp.Compare(b.stamp.count, a.stamp.count) })
	for _, table := range tables {
		if err := table.load(ctx, conn, t, h, progress); err != nil {
			return fmt.Errorf("loading %s: %w", table.name, err)
		}
	}
	for _, table := range tables {
		// Whoever comes next finds every row known to be committed, and every page known to the planner.
		if _, err := conn.Exec(ctx, "VACUUM (FREEZE, ANALYZE) "+table.quoted()); err != nil {
			return fmt.Errorf("cleaning %s: %w", table.name, err)
		}
	}
	return nil
}

// load writes the template and the orders of a history in the place of what the table holds: a table that was emptied in the same
// transaction needs no log where the server is set up for loading.
func (t *table) load(ctx context.Context, conn *pgx.Conn, of Template, h history, progress func(string, int)) (err error) {
	tx, err := conn.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = tx.Rollback(context.WithoutCancel(ctx)) // the connection is about to be closed
		}
	}()
	for _, sql := range t.dropped {
		if _, err := tx.Exec(ctx, sql); err != nil {
			return fmt.Errorf("running %q: %w", sql, err)
		}
	}
	if _, err := tx.Exec(ctx, "TRUNCATE "+t.quoted()); err != nil {
		return err
	}
	plain, restore, err := t.fillPages(ctx, tx)
	if err != nil {
		return err
	}
	_, lapses := retentions()[t.name]
	in := &orders{stamp: t.stamp, template: of, history: h, lapses: lapses, progress: func(k int) { progress(t.name, k) }}
	form := "FORMAT binary"
	if plain {
		// Rows that are written as old ones need not be written again by the cleaning. Partitions cannot have it.
		form += ", FREEZE"
	}
	if _, err := conn.PgConn().CopyFrom(ctx, in, "COPY "+t.quoted()+" ("+t.columnList()+") FROM STDIN ("+form+")"); err != nil {
		return err
	}
	for _, sql := range t.built {
		if _, err := tx.Exec(ctx, sql); err != nil {
			return fmt.Errorf("running %q: %w", sql, err)
		}
	}
	if _, err := tx.Exec(ctx, restore); err != nil {
		return fmt.Errorf("running %q: %w", restore, err)
	}
	if _, err := tx.Exec(ctx, reopenRanges, t.quoted()); err != nil {
		return fmt.Errorf("reopening the last ranges: %w", err)
	}
	return tx.Commit(ctx)
}

// reopenRanges takes the summary away of the last pages of a table in its BRIN indexes. An index that grows with its table has none of them
// yet; one that is built over a table has, and then each new row would write it anew.
const reopenRanges = `
SELECT brin_desummarize_range(i.oid, pg_relation_size(x.indrelid) / current_setting('block_size')::bigint - 1)
  FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid JOIN pg_am a ON a.oid = i.relam
 WHERE x.indrelid = $1::regclass AND a.amname = 'brin' AND i.relkind = 'i' AND pg_relation_size(x.indrelid) > 0`

// fillPages makes pages be filled to the last byte. It tells whether the table is plain, without partitions, and gives the statement that ends
// it. Loaded rows are as long as rows get. Pages that they leave a gap in would take new rows, which are shorter in the beginning, and each such
// page would be written to the log as a whole.
func (t *table) fillPages(ctx context.Context, tx pgx.Tx) (plain bool, restore string, err error) {
	const selectFill = `
SELECT c.relkind = 'r', (SELECT option_value FROM pg_options_to_table(c.reloptions) WHERE option_name = 'fillfactor')
  FROM pg_class c WHERE c.oid = $1::regclass`
	var fill *string
	if err := tx.QueryRow(ctx, selectFill, t.quoted()).Scan(&plain, &fill); err != nil {
		return false, "", fmt.Errorf("reading the fill factor: %w", err)
	}
	if !plain || fill == nil {
		return plain, "SELECT", nil
	}
	if _, err := tx.Exec(ctx, "ALTER TABLE "+t.quoted()+" SET (fillfactor = 100)"); err != nil {
		return false, "", fmt.Errorf("setting the fill factor: %w", err)
	}
	return plain, "ALTER TABLE " + t.quoted() + " SET (fillfactor = " + *fill + ")", nil
}

// orders is the rows of the orders of a history and their template, to be read by COPY.
type orders struct {
	stamp    *stamp
	template Template
	history  history
	// lapses tells that the rows are kept for a time.
	lapses   bool
	progress func(int)

	next    int
	random  *rand.ChaCha8
	pending bytes.Buffer
	over    bool
}

// chunk is how much is made at one time, in bytes.
const chunk = 1 << 20

// Read implements io.Reader.
func (o *orders) Read(p []byte) (int, error) {
	if o.pending.Len() == 0 {
		if o.over {
			return 0, io.EOF
		}
		o.fill()
	}
	return o.pending.Read(p)
}

func (o *orders) fill() {
	b := o.pending.AvailableBuffer()
	if o.random == nil {
		var s [32]byte
		binary.BigEndian.PutUint64(s[:], seed)
		o.random = rand.NewChaCha8(s)
		b = append(append(b, signature...), make([]byte, copyHeader-len(signature))...)
		// The template's own rows come back as they were.
		b = o.stamp.appendTo(b, &identity{ids: o.template.Known, key: []byte(o.template.Key)})
	}
	for len(b) < chunk && o.next < o.history.n {
		// Who is left out is drawn, too: the next one is then the same in all tables.
		who := o.template.another(o.next, o.history, o.random)
		if !o.lapses || o.next >= o.history.former() {
			b = o.stamp.appendTo(b, &who)
		}
		o.next++
		const seldom, parts = 100_000, 10
		if o.next%max(seldom, o.history.n/parts) == 0 {
			o.progress(o.next)
		}
	}
	if o.next == o.history.n {
		b = append(b, 0xff, 0xff)
		o.over = true
	}
	o.pending.Write(b)
}

// another is who the order i of a history is. All tables of all databases ask in the same sequence, and so agree.
func (t *Template) another(i int, h history, random *rand.ChaCha8) identity {
	who := identity{ids: make([]uuid.UUID, len(t.Known)), number: int64(i) + 1, back: h.back(i)}
	const ordered, timeBytes = 7, 6
	for k, id := range t.Known {
		var fresh uuid.UUID
		_, _ = random.Read(fresh[:]) // never fails
		if id.Version() == ordered {
			// Its time is that of the template's, moved; what follows keeps the ids of an order in their sequence.
			var ms [8]byte
			copy(ms[8-timeBytes:], id[:timeBytes])
			binary.BigEndian.PutUint64(ms[:], binary.BigEndian.Uint64(ms[:])-uint64(who.back.Milliseconds()))
			copy(fresh[:], ms[8-timeBytes:])
			copy(fresh[timeBytes:8], id[timeBytes:8])
		} else {
			fresh[6] = fresh[6]&0x0f | id[6]&0xf0
			fresh[8] = fresh[8]&0x3f | 0x80
		}
		who.ids[k] = fresh
	}
	who.key = fmt.Appendf(nil, "%0*d", len(t.Key), i)
	who.key = slices.Clip(who.key[len(who.key)-len(t.Key):])
	return who
}
