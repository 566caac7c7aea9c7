// Package openapi holds the description of the plain HTTP routes, as OpenAPI 3.1. It is
// made from the annotations in api/caisson/v1 (make generate).
package openapi

import _ "embed"

// JSON is the document.
//
//go:embed openapi.json
var JSON []byte
