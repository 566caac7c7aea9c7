package agentsandbox

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
	"time"

	"connectrpc.com/connect"

	"github.com/caisson-run/caisson/api"
	"github.com/caisson-run/caisson/api/sbxerr"
)

// failure is how an error is told by REST and by gRPC.
type failure struct {
	status int
	code   string
	grpc   connect.Code
}

var (
	denied      = failure{http.StatusForbidden, "PERMISSION_DENIED", connect.CodePermissionDenied}
	invalid     = failure{http.StatusBadRequest, "INVALID_ARGUMENT", connect.CodeInvalidArgument}
	absent      = failure{http.StatusNotFound, "NOT_FOUND", connect.CodeNotFound}
	conflict    = failure{http.StatusConflict, "CONFLICT", connect.CodeFailedPrecondition}
	large       = failure{http.StatusRequestEntityTooLarge, "RESOURCE_EXHAUSTED", connect.CodeResourceExhausted}
	full        = failure{http.StatusInsufficientStorage, "RESOURCE_EXHAUSTED", connect.CodeResourceExhausted}
	slow        = failure{http.StatusRequestTimeout, "DEADLINE_EXCEEDED", connect.CodeDeadlineExceeded}
	gone        = failure{http.StatusServiceUnavailable, "CANCELLED", connect.CodeCanceled}
	unavailable = failure{http.StatusServiceUnavailable, "UNAVAILABLE", connect.CodeUnavailable}
	internal    = failure{http.StatusInternalServerError, "INTERNAL", connect.CodeInternal}
)

// failures are in the order in which they are looked for.
var failures = []struct {
	err error
	failure
}{
	{errOutside, denied}, {sbxerr.FileRights, denied},
	{errLinks, invalid}, {errDirectory, invalid}, {sbxerr.FilePath, invalid}, {sbxerr.FileKind, invalid}, {errPart, invalid}, {sbxerr.Config, invalid},
	{sbxerr.FileAbsent, absent}, {sbxerr.FileExists, conflict},
	{errTooMany, large}, {errOutput, large}, {sbxerr.FileTooBig, large},
	{sbxerr.FileSpace, full}, {sbxerr.Busy, unavailable},
	{os.ErrDeadlineExceeded, slow}, {sbxerr.Deadline, slow}, {context.DeadlineExceeded, slow}, {sbxerr.Canceled, gone}, {context.Canceled, gone},
}

func failureOf(err error) failure {
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		return large
	}
	for _, f := range failures {
		if errors.Is(err, f.err) {
			return f.failure
		}
	}
	if e := api.Explain(err); e.Class == sbxerr.ClassSandbox || e.Retryable {
		return unavailable
	}
	return internal
}

// grpcError is err for ProcessService.
func grpcError(err error) error { return connect.NewError(failureOf(err).grpc, text(err)) }

// text is err without the names of this program's parts.
func text(err error) error {
	for _, f := range failures {
		if _, code := f.err.(sbxerr.Code); !code && errors.Is(err, f.err) {
			return f.err
		}
	}
	e := api.Explain(err)
	if e.Remedy == "" {
		return e
	}
	return errors.New(e.Error() + ": " + e.Remedy)
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the client is gone then
}

// stall is how long a client may neither send nor take a byte of a body.
var stall = 30 * time.Second

// body reads a request with a deadline for each part of it, and without one when it was had: the
// server would take that for the end of the client.
type body struct {
	io.ReadCloser
	control *http.ResponseController
}

func bodyOf(w http.ResponseWriter, r *http.Request, most int64) *body {
	return &body{http.MaxBytesReader(w, r.Body, most), http.NewResponseController(w)}
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	_ = b.control.SetReadDeadline(time.Now().Add(stall)) // each connection here has deadlines
	n, err := b.ReadCloser.Read(p)
	if err == nil || errors.Is(err, io.EOF) {
		_ = b.control.SetReadDeadline(time.Time{})
	}
	return n, err
}

// answer writes a file with a deadline for each part of it.
type answer struct {
	http.ResponseWriter
	control *http.ResponseController
	written int64
}

// Write implements io.Writer.
func (a *answer) Write(p []byte) (int, error) {
	_ = a.control.SetWriteDeadline(time.Now().Add(stall))
	n, err := a.ResponseWriter.Write(p)
	a.written += int64(n)
	if err == nil {
		_ = a.control.SetWriteDeadline(time.Time{})
	}
	return n, err
}

func answerOf(w http.ResponseWriter) *answer {
	return &answer{ResponseWriter: w, control: http.NewResponseController(w)}
}

var errPart = errors.New(`the form needs a part "file"`)

// part returns the part "file" of a form and its whole file name: FileName cuts that off.
func part(r *http.Request, content io.ReadCloser) (name string, file io.Reader, err error) {
	r.Body = content
	form, err := r.MultipartReader()
	if err != nil {
		return "", nil, errPart
	}
	for {
		p, err := form.NextPart()
		if errors.Is(err, io.EOF) {
			return "", nil, errPart
		}
		if err != nil {
			return "", nil, err
		}
		if p.FormName() != "file" {
			continue
		}
		_, parameters, err := mime.ParseMediaType(p.Header.Get("Content-Disposition"))
		if err != nil {
			return "", nil, errPart
		}
		return parameters["filename"], p, nil
	}
}
