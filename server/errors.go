package server

import (
	"strings"

	"connectrpc.com/connect"

	"github.com/caisson-run/caisson/api"
)

// fail turns any error into the one that goes to the caller, with an
// ErrorDetail; nil stays nil.
func fail(err error) error { return api.Encode(err) }

// failAs is fail with a status of Connect that the code does not tell.
func failAs(status connect.Code, err error) error { return api.EncodeAs(status, err) }

// text makes s fit for a message: a path in it may be any bytes.
func text(s string) string { return strings.ToValidUTF8(s, "\ufffd") }
