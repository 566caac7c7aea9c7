package policy

import (
	"errors"
	"net/url"
	"slices"
	"strings"
)

// refusedMethods never pass a route: TRACE would echo the credential, and CONNECT would open
// a tunnel.
var refusedMethods = []string{"TRACE", "TRACK", "CONNECT"}

// pattern is the segments of a path. The segment * is any one, and ** at the end any number.
type pattern []string

const (
	anySegment  = "*"
	anySegments = "**"
)

func parsePattern(text string) (pattern, error) {
	if err := CheckPath(text); err != nil {
		return nil, err
	}
	p := pattern(strings.Split(text, "/")[1:])
	for i, segment := range p {
		switch {
		case segment == anySegments && i < len(p)-1:
			return nil, errors.New("has ** before its end")
		case segment != anySegment && segment != anySegments && strings.Contains(segment, "*"):
			return nil, errors.New("has a * that is not a whole segment, as in /v1/*/files or /v1/**")
		case strings.Contains(segment, "%"):
			return nil, errors.New("holds a percent sign: write it decoded")
		}
	}
	return p, nil
}

func (p pattern) matches(segments []string) bool {
	for i, want := range p {
		switch {
		case want == anySegments:
			return true
		case i >= len(segments) || want != anySegment && want != segments[i] || want == anySegment && segments[i] == "":
			return false
		}
	}
	return len(p) == len(segments)
}

// CheckPath refuses a path, as it is on the wire, that servers may read as another one.
func CheckPath(escaped string) error {
	_, err := segmentsOf(escaped)
	return err
}

// segmentsOf returns the decoded segments of a path.
func segmentsOf(escaped string) ([]string, error) {
	rest, absolute := strings.CutPrefix(escaped, "/")
	if !absolute {
		return nil, errors.New("does not begin with a slash")
	}
	segments := strings.Split(rest, "/")
	for i, s := range segments {
		decoded, err := url.PathUnescape(s)
		switch {
		case err != nil:
			return nil, errors.New("has a percent sign without two hexadecimal digits")
		case decoded == "" && i < len(segments)-1:
			return nil, errors.New("has an empty segment, as in //x")
		case decoded == "." || decoded == "..":
			return nil, errors.New("has a segment of one or two dots")
		case strings.ContainsAny(decoded, `/\;`):
			return nil, errors.New(`has an encoded slash, a backslash or a semicolon`)
		case strings.ContainsFunc(decoded, func(c rune) bool { return c < ' ' || c == 0x7f }):
			return nil, errors.New("has a control character")
		}
		segments[i] = decoded
	}
	return segments, nil
}

// Passes says why the route does not pass on a request with this method and path, which is as
// on the wire.
func (r *Routed) Passes(method, escaped string) error {
	if slices.Contains(refusedMethods, method) || len(r.Methods) > 0 && !slices.Contains(r.Methods, method) {
		return errors.New("the route does not allow the method")
	}
	segments, err := segmentsOf(escaped)
	if err != nil {
		return errors.Join(errors.New("the path is not in its plain form"), err)
	}
	if len(r.paths) > 0 && !slices.ContainsFunc(r.paths, func(p pattern) bool { return p.matches(segments) }) {
		return errors.New("the route does not allow the path")
	}
	return nil
}
