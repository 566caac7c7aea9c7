package server

import (
	"net/http"
	"strings"

	"connectrpc.com/connect"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/sbxerr"
)

// statusClientClosed is the status of a call that its caller cancelled.
const statusClientClosed = 499

// fail turns any error into the one that goes to the caller, with an
// ErrorDetail; nil stays nil.
func fail(err error) error {
	if err == nil {
		return nil
	}
	return failAs(statusOf(api.Explain(err).Code), err)
}

// failAs is fail with a status of Connect that the code does not tell.
func failAs(status connect.Code, err error) error {
	e := *api.Explain(err)
	e.Message, e.Cause, e.Remedy = clipped(e.Message), clipped(e.Cause), clipped(e.Remedy)
	out := connect.NewError(status, &e)
	detail, err := connect.NewErrorDetail(&caissonv1.ErrorDetail{
		Code: string(e.Code), Message: e.Message, Cause: e.Cause, Remedy: e.Remedy,
		Class: string(e.Class), Retryable: e.Retryable, RequestId: e.RequestID,
	})
	if err == nil { // it only fails for what is not UTF-8
		out.AddDetail(detail)
	}
	out.Meta().Set(api.CodeHeader, string(e.Code))
	return out
}

// maxText bounds each text of an error, in bytes. What writes messages clips what
// it quotes and counts its reasons; this holds where one forgot.
const maxText = 4 << 10

// clipped is text for an error: what is too long for anybody is cut.
func clipped(s string) string { return text(sbxerr.ClipTo(s, maxText)) }

// text makes s fit for a message: a path in it may be any bytes.
func text(s string) string { return strings.ToValidUTF8(s, "\ufffd") }

// statusOf chooses Connect's code by the HTTP status that the table of codes
// names. Connect knows fewer statuses, so some get the nearest.
func statusOf(code sbxerr.Code) connect.Code {
	if code == sbxerr.Exists {
		return connect.CodeAlreadyExists
	}
	row, _ := sbxerr.Describe(code)
	switch row.HTTP {
	case http.StatusBadRequest, http.StatusUnprocessableEntity:
		return connect.CodeInvalidArgument
	case http.StatusForbidden:
		return connect.CodePermissionDenied
	case http.StatusNotFound:
		return connect.CodeNotFound
	case http.StatusConflict:
		return connect.CodeAborted
	case http.StatusTooManyRequests, http.StatusRequestEntityTooLarge:
		return connect.CodeResourceExhausted
	case statusClientClosed:
		return connect.CodeCanceled
	case http.StatusBadGateway, http.StatusServiceUnavailable:
		return connect.CodeUnavailable
	case http.StatusGatewayTimeout:
		return connect.CodeDeadlineExceeded
	}
	return connect.CodeInternal
}
