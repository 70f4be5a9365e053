package main

import (
	"fmt"
	"strings"

	"github.com/throughline/throughline/pkg/messaging"
	"github.com/throughline/throughline/scripts/internal/topology"
)

// description is the text at the top of the document, in Markdown: the rules for those who consume.
func description(stream topology.Events) string {
	return strings.NewReplacer(
		"{stream}", stream.Stream,
		"{age}", days(stream),
		"{window}", messaging.DuplicateWindow.String(),
		"{all}", messaging.EventPrefix+">",
		"{id}", messaging.HeaderCEID,
		"{type}", messaging.HeaderCEType,
		"{source}", messaging.HeaderCESource,
		"{order}", messaging.HeaderOrderID,
		"{seq}", messaging.HeaderAggregateSeq,
	).Replace(text)
}

func days(stream topology.Events) string {
	const day = 24
	if h := stream.MaxAge.Hours(); h == float64(int(h)) && int(h)%day == 0 {
		return fmt.Sprintf("%d days", int(h)/day)
	}
	return stream.MaxAge.String()
}

const text = `What has happened to orders, payments and shipments, published on NATS JetStream for anybody who is interested. The operations are
those of a consumer: it only receives.

## Payload

Protobuf, binary. Header ` + "`{type}`" + ` names the message; the .proto files are the contract, and ` + "`x-protobuf`" + ` says for each message
and field where it is in them. The schemas here describe the same messages in their JSON form. A field that is absent has its zero value.
New fields, headers and events are added at any time: ignore what you do not know. Nothing is taken away or given another meaning.

## Delivery: at least once

An event is written in the same database transaction as the change that it tells about, so it is published if and only if that has happened.
It is published at least once; it may be published again, and JetStream may deliver it again, at any later time.

## Deduplication: by {id}, never by {seq}

A repeat has the same ` + "`{id}`" + `, whatever else differs. Keep the ids that you have dealt with, in the transaction of their effect, for longer
than events stay in the stream, and acknowledge a repeat without doing anything. The broker's own duplicate window ({window}) only saves
bandwidth. A sequence number that is not above the last one says nothing: the event may still be one that you have not dealt with.

## Order: per order and service

` + "`{seq}`" + ` counts the events of one order (` + "`{order}`" + `) in one service (` + "`{source}`" + `), from 1, without a gap, and the stream has the first sight of
each in that sequence. There is no order between orders, nor between services: a payment's event may be seen before the order's own.
A repeat may come at any time after its first sight. Several instances that share a consumer, and a message that is delivered again after an
error, can change the order in which you handle what the stream has in sequence: where it matters to you, keep the last sequence number
dealt with per order and service, and put off, with a delayed negative acknowledgement, an event that is ahead of it by more than one.

## Retention

Stream ` + "`{stream}`" + `, subjects ` + "`{all}`" + `, by age: an event is kept for {age}, whoever has read it. Who is away for longer misses events, and who is new finds only
those; ask the HTTP API for what came before. A full stream refuses new events, and the publisher keeps them until it is taken: none is thrown away.

## How to consume

With a durable pull consumer of your own, with explicit acknowledgement, no limit on deliveries, and as filter the subjects that you want:

` + "```sh" + `
nats consumer add {stream} my-service --pull --deliver all --ack explicit --max-deliver=-1 --wait 30s --filter 'evt.order.>'
` + "```" + `

Acknowledge a message after your own commit. Where you cannot deal with it now, ask for it again with a delay that grows. Consumers do not see each
other; nobody but you may delete yours. Publishing on these subjects is for the services alone.`
