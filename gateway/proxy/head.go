package proxy

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// head is the head of an HTTP/1 request as it is written. net/http takes more than
// RFC 9112 does, and servers differ in which Host they see in that.
type head struct {
	method, target, version string
	hosts                   []string // of its Host headers
	lengths, encodings      []string // of Content-Length and Transfer-Encoding
}

const lineEnd = "\r\n"

// parseHead reads a head up to its empty line.
func parseHead(text string) (head, error) {
	text, whole := strings.CutSuffix(text, lineEnd+lineEnd)
	lines := strings.Split(text, lineEnd)
	if !whole || strings.ContainsAny(strings.Join(lines, ""), lineEnd) {
		return head{}, errors.New("a line ends with something else than CR LF (RFC 9112, 2.2)")
	}
	start := strings.Split(lines[0], " ")
	if len(start) != 3 {
		return head{}, errors.New("its first line is not METHOD TARGET VERSION (RFC 9112, 3)")
	}
	if version := start[2]; version != "HTTP/1.1" && version != "HTTP/1.0" {
		return head{}, fmt.Errorf("its version is %s, and not HTTP/1.0 or HTTP/1.1", quote(version)) // of which each server thinks its own
	}
	h := head{method: start[0], target: start[1], version: start[2]}
	for _, line := range lines[1:] {
		name, value, err := parseField(line)
		if err != nil {
			return head{}, err
		}
		h.note(http.CanonicalHeaderKey(name), value)
	}
	return h, nil
}

// note keeps what is looked at of a field.
func (h *head) note(name, value string) {
	switch name {
	case "Host":
		h.hosts = append(h.hosts, value)
	case "Content-Length":
		h.lengths = append(h.lengths, value)
	case "Transfer-Encoding":
		h.encodings = append(h.encodings, value)
	}
}

// parseField reads a field line. White space at its begin or before the colon hides
// the name of the field from some servers, and not from others.
func parseField(line string) (name, value string, err error) {
	name, value, _ = strings.Cut(line, ":")
	switch {
	case strings.HasPrefix(line, " ") || strings.HasPrefix(line, "\t"):
		return "", "", errors.New("a header is folded (RFC 9112, 5.2)")
	case strings.TrimRight(name, " \t") != name:
		return "", "", fmt.Errorf("the header %s has white space before its colon (RFC 9112, 5.1)", quote(name))
	case !httpguts.ValidHeaderFieldName(name):
		return "", "", fmt.Errorf("%s is no name of a header (RFC 9110, 5.1)", quote(name))
	case !httpguts.ValidHeaderFieldValue(value):
		return "", "", fmt.Errorf("the header %s holds a control character (RFC 9110, 5.5)", quote(name))
	}
	return name, strings.Trim(value, " \t"), nil
}

// checkTarget refuses a target that names another host than the Host header does, or
// is in none of the forms of RFC 9112, 3.2.
func (h head) checkTarget(host string) error {
	named := h.target // authority-form
	switch {
	case h.method == http.MethodConnect:
	case strings.HasPrefix(h.target, "/"), h.method == http.MethodOptions && h.target == "*":
		return nil
	default: // absolute-form
		scheme, rest, found := strings.Cut(h.target, "://")
		if !found || !strings.EqualFold(scheme, "http") {
			return fmt.Errorf("no HTTP request: its target %s is neither a path nor http://HOST/ (RFC 9112, 3.2)", quote(h.target))
		}
		named, _, _ = strings.Cut(rest, "/")
		named, host = strings.TrimSuffix(named, ":80"), strings.TrimSuffix(host, ":80") // which http means anyway
	}
	if !strings.EqualFold(named, host) {
		return fmt.Errorf("the HTTP request names two hosts, %s and %s", quote(named), quote(host))
	}
	return nil
}

// checkBody refuses a body whose end servers may see elsewhere (RFC 9112, 6.3 and 11.2).
func (h head) checkBody() error {
	switch {
	case len(h.encodings) > 0 && len(h.lengths) > 0:
		return errors.New("the HTTP request has a Content-Length and a Transfer-Encoding (RFC 9112, 6.3)")
	case len(h.encodings) > 1 || len(h.encodings) == 1 && !strings.EqualFold(h.encodings[0], "chunked"):
		return fmt.Errorf("the HTTP request has the Transfer-Encoding %s, and not chunked", quote(strings.Join(h.encodings, ", ")))
	case len(h.encodings) == 1 && h.version == "HTTP/1.0":
		return errors.New("the HTTP/1.0 request has a Transfer-Encoding (RFC 9112, 6.1)")
	case len(h.lengths) > 1:
		return fmt.Errorf("the HTTP request has %d Content-Length headers", len(h.lengths))
	case len(h.lengths) == 0:
		return nil
	}
	if _, err := strconv.ParseUint(h.lengths[0], 10, 62); err != nil || strings.HasPrefix(h.lengths[0], "+") {
		return fmt.Errorf("the HTTP request has the Content-Length %s", quote(h.lengths[0]))
	}
	return nil
}

// quote shows hostile text.
func quote(s string) string { return strconv.QuoteToASCII(sbxerr.Clip(s)) }
