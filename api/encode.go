package api

import (
	"net/http"
	"strings"

	"connectrpc.com/connect"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
)

// statusClientClosed is the status of a call that its caller cancelled.
const statusClientClosed = 499

// Encode turns any error into the one that a daemon answers with, which has an
// ErrorDetail; nil stays nil.
func Encode(err error) error {
	if err == nil {
		return nil
	}
	return EncodeAs(statusOf(Explain(err).Code), err)
}

// EncodeAs is Encode with a status of Connect that the code does not tell.
func EncodeAs(status connect.Code, err error) error {
	e := *Explain(err)
	e.Message, e.Cause, e.Remedy = clipped(e.Message), clipped(e.Cause), clipped(e.Remedy)
	out := connect.NewError(status, &e)
	detail, err := connect.NewErrorDetail(e.detail())
	if err == nil { // it only fails for what is not UTF-8
		out.AddDetail(detail)
	}
	out.Meta().Set(CodeHeader, string(e.Code))
	return out
}

// Detail is the message that tells of an error.
func Detail(err error) *caissonv1.ErrorDetail { return Explain(err).detail() }

func (e *Error) detail() *caissonv1.ErrorDetail {
	return &caissonv1.ErrorDetail{
		Code: string(e.Code), Message: clipped(e.Message), Cause: clipped(e.Cause), Remedy: clipped(e.Remedy),
		Class: string(e.Class), Retryable: e.Retryable, RequestId: e.RequestID,
	}
}

// maxText bounds each text of an error, in bytes. What writes messages clips what
// it quotes and counts its reasons; this holds where one forgot.
const maxText = 4 << 10

// clipped is text for an error: what is too long for anybody is cut.
func clipped(s string) string { return strings.ToValidUTF8(sbxerr.ClipTo(s, maxText), "\ufffd") }

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
	case http.StatusUnauthorized:
		return connect.CodeUnauthenticated
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
