package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"

	"github.com/throughline/throughline/pkg/messaging"
	"github.com/throughline/throughline/scripts/bench/cluster"
)

// lagInterval is how often outboxes are read: several times while a row, which lives for a second, is there.
const lagInterval = 300 * time.Millisecond

// flushTimeout is how long the broker may take to know of a subscription.
const flushTimeout = 5 * time.Second

// selectCommitted gives when messages were committed. The server takes that time before it flushes the log, so the flush
// is a part of the lag.
const selectCommitted = `/* bench */ SELECT message_id, pg_xact_commit_timestamp(xmin) FROM outbox`

// watchLag watches for a while how long after the commit of its transaction a message arrives at the broker's clients. It is
// told by the same clock, since all is on one machine. Messages that wait for another of their chain to be acknowledged have
// that wait in their lag.
func (b *bench) watchLag(ctx context.Context, s *system, d time.Duration) (_ []time.Duration, err error) {
	nc, err := nats.Connect(s.broker)
	if err != nil {
		return nil, fmt.Errorf("connecting to the broker: %w", err)
	}
	defer nc.Close()
	var mu sync.Mutex
	published := make(map[string]time.Time)
	for _, subject := range []string{messaging.CommandPrefix + ">", messaging.ReplyPrefix + ">", messaging.EventPrefix + ">"} {
		_, err := nc.Subscribe(subject, func(m *nats.Msg) {
			now := time.Now()
			mu.Lock()
			defer mu.Unlock()
			if id := m.Header.Get(nats.MsgIdHdr); published[id].IsZero() {
				published[id] = now
			}
		})
		if err != nil {
			return nil, fmt.Errorf("watching messages: %w", err)
		}
	}
	if err := nc.FlushTimeout(flushTimeout); err != nil {
		return nil, fmt.Errorf("watching messages: %w", err)
	}
	from := time.Now()
	committed := make(map[uuid.UUID]time.Time)
	pools := make([]*pgxpool.Pool, 0, len(cluster.Services()))
	defer func() {
		for _, pool := range pools {
			pool.Close()
		}
	}()
	for _, service := range cluster.Services() {
		pool, err := pgxpool.New(ctx, b.cluster.OwnerURL(s.watched, service))
		if err != nil {
			return nil, fmt.Errorf("watching outboxes: %w", err)
		}
		pools = append(pools, pool)
	}
	for time.Since(from) < d {
		if err := pause(ctx, lagInterval); err != nil {
			return nil, err
		}
		for _, pool := range pools {
			if err := readCommitted(ctx, pool, committed); err != nil {
				return nil, err
			}
		}
	}
	mu.Lock()
	defer mu.Unlock()
	var lags []time.Duration
	for id, at := range committed {
		if seen := published[id.String()]; !seen.IsZero() && at.After(from) {
			lags = append(lags, seen.Sub(at))
		}
	}
	if len(lags) == 0 {
		return nil, errors.New("no message was seen in an outbox and at the broker")
	}
	return lags, nil
}

func readCommitted(ctx context.Context, pool *pgxpool.Pool, into map[uuid.UUID]time.Time) error {
	rows, err := pool.Query(ctx, selectCommitted)
	if err != nil {
		return fmt.Errorf("reading an outbox: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var (
			id uuid.UUID
			at time.Time
		)
		if err := rows.Scan(&id, &at); err != nil {
			return fmt.Errorf("reading an outbox: %w", err)
		}
		into[id] = at
	}
	return rows.Err()
}
