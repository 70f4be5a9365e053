package outbox

import (
	"github.com/google/uuid"

	"github.com/throughline/throughline/pkg/keys"
	"github.com/throughline/throughline/pkg/messaging"
)

// Aggregate is the part of a business row that keeps the events about it in sequence. The writer loads it with the row,
// lets [Aggregate.Append] count, and stores it by compare-and-set in the transaction that writes the messages.
type Aggregate struct {
	ID uuid.UUID
	// EventSeq is the sequence number of the last event; 0 before the first.
	EventSeq int64
	// LastMessageID is the last row of the last chain; the zero id before the first.
	LastMessageID uuid.UUID
}

// Chain is what one transaction writes about one aggregate, in the sequence in which it is published.
type Chain struct {
	Messages []messaging.Message
	// Proven says that everything earlier about the aggregate is known to be out, so that the chain may be handed off.
	// Otherwise its rows are left to the sweep.
	Proven bool
}

// Begin starts the chain of a transaction. lastSeen is the Last-Seen of the message being handled, or the zero id if it is
// not a message that is handled.
func (a *Aggregate) Begin(lastSeen uuid.UUID) Chain {
	return Chain{Proven: a.LastMessageID == uuid.Nil || a.LastMessageID == lastSeen}
}

// Append puts a message at the end of the chain, and gives it its id and, if it is an event, its sequence number.
// Events of one transaction go before its command or reply: that is what makes the answer to it a proof.
func (a *Aggregate) Append(c *Chain, m messaging.Message) messaging.Message {
	m.ID = keys.NewMessageID()
	m.CreatedAt = keys.MessageTime(m.ID)
	m.AggregateID = a.ID
	if m.Kind == messaging.Event {
		a.EventSeq++
		m.AggregateSeq = a.EventSeq
	}
	a.LastMessageID = m.ID
	c.Messages = append(c.Messages, m)
	return m
}
