package main

import "github.com/throughline/throughline/pkg/messaging"

// Notations of header values, as regular expressions of JSON Schema.
const (
	hex         = "[0-9a-f]"
	uuidV5      = "^" + hex + "{8}-" + hex + "{4}-5" + hex + "{3}-[89ab]" + hex + "{3}-" + hex + "{12}$"
	uuidV7      = "^" + hex + "{8}-" + hex + "{4}-7" + hex + "{3}-[89ab]" + hex + "{3}-" + hex + "{12}$"
	utcTime     = `^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?Z$`
	sequence    = "^[1-9][0-9]{0,18}$"
	clientKey   = "^[ -~]{1,255}$"
	traceParent = "^" + hex + "{2}-" + hex + "{32}-" + hex + "{16}-" + hex + "{2}$"
	someText    = "^.+$"
)

// header is one header of every event.
type header struct {
	name     string
	about    string
	schema   object
	optional bool
}

// headers are the headers that events carry. ce-type and ce-source have one value for each event, which its own
// schema adds.
func headers() []header {
	return []header{
		{name: messaging.HeaderMessageID, schema: object{"pattern": uuidV7},
			about: "The message id again, for the broker's own deduplication within the duplicate window. Do not use it: a copy may be published " +
				"on purpose under another value. Use " + messaging.HeaderCEID + "."},
		{name: messaging.HeaderCEID, schema: object{"pattern": uuidV7},
			about: "The message id, a UUIDv7. It never changes, also when the message is published again: deduplicate by it."},
		{name: messaging.HeaderCEType, schema: object{},
			about: "The full name of the payload's protobuf message."},
		{name: messaging.HeaderCESource, schema: object{},
			about: "The service that publishes the event."},
		{name: messaging.HeaderCESubject, schema: object{"pattern": uuidV5},
			about: "The order id, as in " + messaging.HeaderOrderID + "."},
		{name: messaging.HeaderCETime, schema: object{"pattern": utcTime},
			about: "When the event was written, RFC 3339 in UTC, to the microsecond. It is no order: use " + messaging.HeaderAggregateSeq + "."},
		{name: messaging.HeaderCESpecVersion, schema: object{"const": "1.0"},
			about: "The version of CloudEvents; the headers are its binary mode."},
		{name: messaging.HeaderContentType, schema: object{"const": contentType},
			about: "The encoding of the payload."},
		{name: messaging.HeaderIdempotencyKey, schema: object{"pattern": clientKey},
			about: "The key that the client minted for the order, unchanged: 1 to 255 printable ASCII characters. It is unique per client only."},
		{name: messaging.HeaderOrderID, schema: object{"pattern": uuidV5},
			about: "The order that the event is about."},
		{name: messaging.HeaderAggregateSeq, schema: object{"pattern": sequence},
			about: "Counts the events of one order in one service, from 1, without a gap, as a decimal number below 2^63."},
		{name: messaging.HeaderTraceParent, schema: object{"pattern": traceParent}, optional: true,
			about: "W3C trace context: the trace of the order. There when tracing is on."},
		{name: messaging.HeaderTraceState, schema: object{"pattern": someText}, optional: true,
			about: "W3C trace state, where the trace has one."},
	}
}
