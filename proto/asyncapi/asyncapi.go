// Package asyncapi holds the AsyncAPI 3 document of the events, for those who consume them. It is generated from the
// protos.
package asyncapi

import _ "embed"

// YAML is the document. Treat it as read-only.
//
//go:embed asyncapi.yaml
var YAML []byte
