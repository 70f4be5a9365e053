// Package jsonpb is the JSON form of our public messages: deterministic in answers, strict in requests.
//
// protojson serves neither end. It changes its white space between binaries on purpose, so that an answer could not be
// repeated byte for byte; it writes 64-bit integers as strings; and it accepts what two readers may understand
// differently. Here one message has one rendering, and one text has one reading or none.
//
// # Answers
//
// Marshal writes members in the order of field numbers, under their json_name, without white space:
//
//   - A field without presence is always there, with its zero value when it is unset (0, "", [], {}), so that a client
//     sees one shape. A field with presence (a message, an optional field, a member of a oneof) is left out when unset.
//   - int64 and uint64 are JSON numbers. A value beyond ±(2^53−1), which a reader in another language would round, is an
//     error rather than a wrong amount.
//   - An enum is the name of its value without the type's prefix: ORDER_STATUS_CONFIRMED is "CONFIRMED". A number that
//     this release has no name for is "UNRECOGNIZED": a newer service may be asked through an older gateway.
//   - google.protobuf.Timestamp is RFC 3339 in UTC with six digits of a second, which is what Postgres keeps; finer
//     digits are cut.
//   - google.protobuf.Duration is seconds with six digits and an s: "1.250000s". It is written only: no request has one.
//   - A double is the shortest decimal that reads back the same, and bytes are base64 (RFC 4648 section 4, padded). Both are
//     written only, and for operators: no public message has one, and money is never a double.
//   - Members of a map are sorted by key, bytewise.
//   - Strings carry only the escapes that JSON demands. A string that is not valid UTF-8 is an error.
//
// # Requests
//
// Unmarshal refuses, with the path of the member: members that the message does not have, or has in other case;
// duplicate members; null; values of another type; integers with a fraction or an exponent, or beyond ±(2^53−1);
// invalid UTF-8, unpaired surrogates and NUL characters; a byte-order mark; and anything but white space after the
// value. No number passes through a float.
//
// # What is not supported
//
// Single-precision numbers, extensions, groups, maps with keys other than strings, and well-known types other than
// Timestamp and, in answers, Duration: no message that is shown has them. Both functions answer with an error for such a field;
// Unmarshal for what is written only, too.
//
// The package imports nothing of ours, and knows no message by name but these two.
package jsonpb
