package stored

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// table is one table and the rows that an order leaves in it.
type table struct {
	name    string
	columns []column
	stamp   *stamp
	// dropped and built are the statements that take its indexes away and bring them back.
	dropped, built []string
}

func (t *table) quoted() string { return pgx.Identifier{t.name}.Sanitize() }

func (t *table) columnList() string {
	names := make([]string, len(t.columns))
	for i, c := range t.columns {
		names[i] = pgx.Identifier{c.name}.Sanitize()
	}
	return strings.Join(names, ", ")
}

const (
	// selectColumns lists all columns that are stored as they are given. Rows find their partitions by themselves.
	selectColumns = `
SELECT c.relname, a.attname, a.atttypid, a.attidentity <> ''
  FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
 WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
 ORDER BY c.relname, a.attnum`

	// selectIndexes lists what has to be built anew: constraints with an index, and other indexes. Those of partitions stay: what
	// is kept by time is ordered by time.
	selectIndexes = `
SELECT coalesce(k.conname, i.relname), k.oid IS NOT NULL, coalesce(pg_get_constraintdef(k.oid), pg_get_indexdef(i.oid))
  FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid LEFT JOIN pg_constraint k ON k.conindid = i.oid AND k.contype IN ('p', 'u')
 WHERE x.indrelid = $1::regclass AND i.relkind = 'i'
 ORDER BY i.oid`
)

// readTables finds the tables that an order leaves rows in.
func readTables(ctx context.Context, conn *pgx.Conn, of Template) ([]*table, error) {
	rows, err := conn.Query(ctx, selectColumns)
	if err != nil {
		return nil, fmt.Errorf("listing columns: %w", err)
	}
	type found struct {
		Table, Column string
		Type          uint32
		Identity      bool
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[found])
	if err != nil {
		return nil, fmt.Errorf("listing columns: %w", err)
	}
	numbered := make(map[string]bool)
	for _, f := range all {
		numbered[f.Column] = numbered[f.Column] || f.Identity
	}
	var tables []*table
	for _, f := range all {
		if slices.Contains(passing, f.Table) {
			continue
		}
		if n := len(tables); n == 0 || tables[n-1].name != f.Table {
			tables = append(tables, &table{name: f.Table})
		}
		t := tables[len(tables)-1]
		t.columns = append(t.columns, column{f.Column, f.Type, numbered[f.Column] && f.Type == pgtype.Int8OID})
	}
	var kept []*table
	for _, t := range tables {
		if err := t.read(ctx, conn, of, tables); err != nil {
			return nil, fmt.Errorf("reading %s: %w", t.name, err)
		}
		if t.stamp.count > 0 {
			kept = append(kept, t)
		}
	}
	return kept, nil
}

// read takes the order's rows and the definitions of the indexes.
func (t *table) read(ctx context.Context, conn *pgx.Conn, of Template, tables []*table) error {
	var out bytes.Buffer
	sql := "COPY (SELECT " + t.columnList() + " FROM " + t.quoted() + " WHERE " + t.ofOrder(of, tables) + ") TO STDOUT BINARY"
	if _, err := conn.PgConn().CopyTo(ctx, &out, sql); err != nil {
		return err
	}
	var err error
	if t.stamp, err = newStamp(out.Bytes(), t.columns, of.Known, of.Key); err != nil {
		return err
	}
	rows, err := conn.Query(ctx, selectIndexes, t.quoted())
	if err != nil {
		return err
	}
	type index struct {
		Name       string
		Constraint bool
		Definition string
	}
	indexes, err := pgx.CollectRows(rows, pgx.RowToStructByPos[index])
	if err != nil {
		return err
	}
	for _, x := range indexes {
		name := pgx.Identifier{x.Name}.Sanitize()
		if x.Constraint {
			t.dropped = append(t.dropped, "ALTER TABLE "+t.quoted()+" DROP CONSTRAINT "+name)
			t.built = append(t.built, "ALTER TABLE "+t.quoted()+" ADD CONSTRAINT "+name+" "+x.Definition)
			continue
		}
		t.dropped = append(t.dropped, "DROP INDEX "+name)
		t.built = append(t.built, x.Definition)
	}
	for _, c := range t.columns {
		if !c.numbered {
			continue
		}
		column := pgx.Identifier{c.name}.Sanitize()
		t.built = append(t.built, fmt.Sprintf("SELECT setval(s, (SELECT max(%s) FROM %s)) FROM (SELECT pg_get_serial_sequence('%s', '%s')) AS q (s) WHERE s IS NOT NULL",
			column, t.quoted(), t.quoted(), c.name))
	}
	return nil
}

// ofOrder is the condition that a row is the template's: it has one of its ids, or the number of a row that has.
func (t *table) ofOrder(of Template, tables []*table) string {
	ids := make([]string, len(of.Known))
	for i, id := range of.Known {
		ids[i] = "'" + id.String() + "'"
	}
	list := " IN (" + strings.Join(ids, ", ") + ")"
	var either []string
	for _, c := range t.columns {
		name := pgx.Identifier{c.name}.Sanitize()
		if c.oid == pgtype.UUIDOID {
			either = append(either, name+list)
		}
		if !c.numbered {
			continue
		}
		for _, other := range tables {
			if other == t || !slices.ContainsFunc(other.columns, func(o column) bool { return o.name == c.name }) {
				continue
			}
			for _, o := range other.columns {
				if o.oid == pgtype.UUIDOID {
					either = append(either, name+" IN (SELECT "+name+" FROM "+other.quoted()+" WHERE "+pgx.Identifier{o.name}.Sanitize()+list+")")
				}
			}
		}
	}
	if len(either) == 0 {
		return "false"
	}
	return strings.Join(either, " OR ")
}
