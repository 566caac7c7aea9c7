package route

import (
	"cmp"
	"errors"
	"maps"
	"net/http"
	"net/http/httputil"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/policy"
)

// carriers are the headers by which clients authenticate. None of a client's own gets out.
var carriers = []string{
	"authorization", "proxy-authorization", "cookie", "x-api-key", "api-key", "x-goog-api-key", "x-auth-token", "private-token", "job-token", "x-amz-security-token",
}

// carrierKeys are the parameters of queries by which clients authenticate.
var carrierKeys = []string{"key", "api_key", "access_token", "token"}

// scopedName is the name of a package as npm asks for it. Registries take it with a plain slash
// too, which is read in one way.
var scopedName = regexp.MustCompile(`/(@[^/%]+)%2[fF]([^/%]+)`)

// check refuses what the route does not pass on, and brings the path into its plain form.
func check(r *http.Request, at policy.Place, route *policy.Routed) error {
	const op = "route.request"
	host, port, found := strings.Cut(r.Host, ":")
	if !found {
		port = strconv.Itoa(policy.RoutePort)
	}
	if said, err := policy.ParseWireName(host); err != nil || said != at.Host || port != strconv.Itoa(int(at.Port)) {
		return sbxerr.WithRemedy(sbxerr.EgressMismatch, op, errors.New("the connection was made to "+at.URL()+", but the request names another host"),
			"send the request to "+at.URL()+"/")
	}
	if err := strip(r.URL, at); err != nil {
		return sbxerr.WithRemedy(sbxerr.EgressRoute, op, err, "send the request to "+at.URL()+"/")
	}
	r.URL.RawPath = scopedName.ReplaceAllString(r.URL.EscapedPath(), "/$1/$2")
	if err := route.Passes(r.Method, r.URL.EscapedPath()); err != nil {
		return sbxerr.WithRemedy(sbxerr.EgressRoute, op, err, "")
	}
	if _, err := query(r.URL.RawQuery, ""); err != nil {
		return sbxerr.Wrap(sbxerr.EgressRoute, op, err)
	}
	if by := shown(r, route); by != "" && route.Keyless {
		return sbxerr.WithRemedy(sbxerr.EgressRoute, op, errors.New("the request has a key of the client's, in "+by+", and this route takes none"),
			"send no key: the gateway adds that of the route")
	}
	if route.Registry { // a blob of another repository would come into this one
		for _, name := range []string{"mount", "from"} {
			r.URL.RawQuery, _ = query(r.URL.RawQuery, name)
		}
	}
	return nil
}

// strip takes what paths have before the route's out of u.
func strip(u *url.URL, at policy.Place) (err error) {
	if at.Below == "" {
		return nil
	}
	below, ok := strings.CutPrefix(u.EscapedPath(), at.Below)
	if !ok || below != "" && below[0] != '/' {
		return errors.New("the route is below " + at.Below)
	}
	u.RawPath = cmp.Or(below, "/")
	u.Path, err = url.PathUnescape(u.RawPath)
	return err
}

// carries reports whether clients authenticate by a header, own among them. Servers may read
// underscores as hyphens.
func carries(name, own string) bool {
	plain := func(s string) string { return strings.ToLower(strings.ReplaceAll(s, "_", "-")) }
	return slices.Contains(carriers, plain(name)) || own != "" && plain(name) == plain(own)
}

// shown is by what r authenticates, but for the key of presets that is none; empty: by nothing.
func shown(r *http.Request, route *policy.Routed) string {
	own := ""
	if route.Placement == policy.Header || route.Placement == policy.Query {
		own = route.Parameter
	}
	for _, name := range slices.Sorted(maps.Keys(r.Header)) {
		for _, value := range r.Header[name] {
			if key := strings.TrimPrefix(value, "Bearer "); carries(name, own) && key != "" && key != policy.NoKey {
				return "the header " + sbxerr.Clip(name)
			}
		}
	}
	if kept, _ := query(r.URL.RawQuery, own); kept != r.URL.RawQuery {
		return "the query"
	}
	return ""
}

// upgrades reports whether r asks for a WebSocket. All other upgrades would be tunnels past
// the rules of the route.
func upgrades(r *http.Request) bool {
	return r.Method == http.MethodGet && strings.EqualFold(r.Header.Get("Upgrade"), "websocket") && len(r.Header.Values("Upgrade")) == 1
}

// plain takes from a request that it asks for another protocol.
func plain(h http.Header) {
	h.Del("Upgrade")
	h.Del("Http2-Settings")
}

// rewrite makes of the client's request the one that the upstream gets.
func (l *lane) rewrite(p *httputil.ProxyRequest) {
	base, in, out := l.route.Base, p.In.URL, p.Out
	out.URL.Scheme, out.URL.Host, out.Host = base.Scheme, base.Host, base.Host
	out.URL.Path, out.URL.RawPath = base.Path+in.Path, base.EscapedPath()+in.EscapedPath()
	own := ""
	if l.placed.parameter != "" {
		own = l.route.Parameter
	}
	out.URL.RawQuery, _ = query(in.RawQuery, own) // check had no error of it
	if own != "" {
		out.URL.RawQuery = strings.TrimPrefix(out.URL.RawQuery+"&", "&") + url.QueryEscape(own) + "=" + l.placed.parameter
	}
	for name := range out.Header {
		if carries(name, l.placed.header) {
			delete(out.Header, name)
		}
		if slices.ContainsFunc(l.route.Strip, func(unwanted string) bool { return strings.EqualFold(unwanted, name) }) {
			delete(out.Header, name)
		}
	}
	if _, said := out.Header["User-Agent"]; !said {
		out.Header.Set("User-Agent", "") // else there is one of Go
	}
	out.Header.Set("Accept-Encoding", "gzip") // all that can be looked through
	out.Header.Del("Range")                   // by parts of an echo, the credential could be read
	out.Header.Del("Sec-Websocket-Extensions")
	out.Header.Del("Grpc-Accept-Encoding")
	if l.placed.header != "" {
		out.Header[l.placed.header] = []string{l.placed.text}
	}
}

// query takes the parameters that authenticate out of a raw query, own among them. The others
// stay as they are, to the byte.
func query(raw, own string) (string, error) {
	if raw == "" {
		return "", nil
	}
	var kept []string
	for part := range strings.SplitSeq(raw, "&") {
		key, _, _ := strings.Cut(part, "=")
		decoded, err := url.QueryUnescape(key)
		if err != nil {
			return "", errors.New("the name of a parameter of the query has a percent sign without two hexadecimal digits")
		}
		if slices.Contains(carrierKeys, strings.ToLower(decoded)) || own != "" && strings.EqualFold(decoded, own) {
			continue
		}
		kept = append(kept, part)
	}
	return strings.Join(kept, "&"), nil
}
