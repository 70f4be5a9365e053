// Package openapi holds the OpenAPI 3.1 document of the public HTTP API. It is generated from the protos.
package openapi

import _ "embed"

// YAML is the document. Treat it as read-only.
//
//go:embed openapi.yaml
var YAML []byte
