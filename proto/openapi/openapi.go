// Package openapi holds the OpenAPI 3.1 document of the public HTTP API, and the same as a page for people. Both are generated from
// the protos.
package openapi

import _ "embed"

// YAML is the document. Treat it as read-only.
//
//go:embed openapi.yaml
var YAML []byte

// HTML is the page. It has no script and loads nothing; it links to /openapi.yaml. Treat it as read-only.
//
//go:embed reference.html
var HTML []byte
