package proxy

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/caisson-run/caisson/sbxerr"
)

// head is the head of an HTTP/1 request as it is written. net/http takes more than
// RFC 9112 does, and servers differ in which Host they see in that.
type head struct {
	method, target string
	hosts          []string // of its Host headers
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
	h := head{method: start[0], target: start[1]}
	for _, line := range lines[1:] {
		name, value, err := parseField(line)
		if err != nil {
			return head{}, err
		}
		if strings.EqualFold(name, "Host") {
			h.hosts = append(h.hosts, value)
		}
	}
	return h, nil
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
	}
	if named != host {
		return fmt.Errorf("the HTTP request names two hosts, %s and %s", quote(named), quote(host))
	}
	return nil
}

// quote shows hostile text.
func quote(s string) string { return strconv.QuoteToASCII(sbxerr.Clip(s)) }
