package rest

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/caisson-run/caisson/api"
	"github.com/caisson-run/caisson/api/sbxerr"
)

// statusError is an error with a status that its code does not tell.
type statusError struct {
	status int
	header http.Header
	err    error
}

// Error implements error.
func (e *statusError) Error() string { return e.err.Error() }

// Unwrap returns the error itself.
func (e *statusError) Unwrap() error { return e.err }

// refuse is a request that cannot be read.
func refuse(format string, args ...any) error {
	return sbxerr.WithRemedy(sbxerr.APIUsage, "rest.request", fmt.Errorf(format, args...),
		"docs/reference/routes.md lists the routes with their fields")
}

// Refuse answers a request that does not come to its route, with err and a status.
func Refuse(w http.ResponseWriter, status int, err error) {
	writeError(w, &statusError{status, nil, err})
}

// writeError answers with err.
func writeError(w http.ResponseWriter, err error) {
	e := named(w, err)
	row, _ := sbxerr.Describe(e.Code)
	status := row.HTTP
	var own *statusError
	if errors.As(err, &own) {
		status = own.status
		for name, values := range own.header {
			w.Header()[name] = values
		}
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set(api.CodeHeader, string(e.Code))
	w.WriteHeader(status)
	_, _ = w.Write(append(errorJSON(e), '\n')) // a caller that has gone needs no answer
}

// named is err with the ID of the request that w answers.
func named(w http.ResponseWriter, err error) *api.Error {
	e := *api.Explain(err)
	e.RequestID = w.Header().Get(api.RequestIDHeader)
	return &e
}

func errorJSON(e *api.Error) []byte {
	data, err := json.Marshal(map[string]*api.Error{"error": e})
	if err != nil { // strings and a boolean
		panic(err)
	}
	return data
}
