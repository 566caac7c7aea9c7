package rest

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
)

// route is one annotation of a call.
type route struct {
	*caissonv1.Route
	segments  []string // of the path
	status    int      // of success
	service   string   // full name
	method    string   // of the service
	procedure string
	call      protoreflect.MethodDescriptor
}

// routes are those of all calls, literal segments before fields.
func routes() []*route {
	var list []*route
	protoregistry.GlobalFiles.RangeFilesByPackage(caissonv1.File_caisson_v1_caisson_proto.Package(), func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			methods := f.Services().Get(i).Methods()
			for j := range methods.Len() {
				list = append(list, routesOf(methods.Get(j))...)
			}
		}
		return true
	})
	slices.SortFunc(list, func(a, b *route) int { return cmp.Compare(a.Path, b.Path) }) // "{" is after all letters
	return list
}

func routesOf(m protoreflect.MethodDescriptor) []*route {
	var list []*route
	for _, r := range proto.GetExtension(m.Options(), caissonv1.E_Route).([]*caissonv1.Route) {
		list = append(list, &route{
			Route: r, call: m, segments: strings.Split(r.Path, "/"), status: cmp.Or(int(r.Status), http.StatusOK),
			service: string(m.Parent().FullName()), method: string(m.Name()),
			procedure: fmt.Sprintf("/%s/%s", m.Parent().FullName(), m.Name()),
		})
	}
	return list
}

// stream says whether requests or answers are a stream.
// bidi reports whether requests and answers flow at once.
func (r *route) bidi() bool { return r.call.IsStreamingClient() && r.call.IsStreamingServer() }

func (r *route) stream() bool { return r.call.IsStreamingClient() || r.call.IsStreamingServer() }

// spec is what Connect knows of the call.
func (r *route) spec() connect.Spec {
	s := connect.Spec{Schema: r.call, Procedure: r.procedure}
	if r.call.IsStreamingClient() {
		s.StreamType |= connect.StreamTypeClient
	}
	if r.call.IsStreamingServer() {
		s.StreamType |= connect.StreamTypeServer
	}
	return s
}

// takesJSON says whether a request of the route has a JSON body.
func (r *route) takesJSON() bool {
	return r.Body == "" && r.Method != http.MethodGet && r.Method != http.MethodDelete
}

// match is a route and the fields that its path holds.
type match struct {
	route  *route
	fields map[string]string
}

// find returns the route of a request. The path is taken as it was sent: what is
// escaped in it is no slash of ours, and nothing of it is cleaned.
func find(all []*route, r *http.Request) (match, error) {
	found, methods := lookUp(all, r)
	if found.route != nil {
		fields, err := unescape(found.fields)
		return match{found.route, fields}, err
	}
	if len(methods) > 0 {
		slices.Sort(methods)
		return match{}, &statusError{http.StatusMethodNotAllowed, http.Header{"Allow": {strings.Join(slices.Compact(methods), ", ")}},
			refuse("%s is not a method of %q, use %s", sbxerr.Clip(r.Method), sbxerr.Clip(r.URL.Path), strings.Join(slices.Compact(methods), " or "))}
	}
	return match{}, &statusError{http.StatusNotFound, nil, noRoute(all, r.URL.Path)}
}

// lookUp returns the route of a request, with its fields still escaped. Without one it
// returns the methods that the path has.
func lookUp(all []*route, r *http.Request) (found match, methods []string) {
	segments := strings.Split(r.URL.EscapedPath(), "/")
	for _, one := range all {
		fields, ok := matchSegments(one.segments, segments)
		switch {
		case !ok:
		case one.Method != r.Method:
			methods = append(methods, one.Method)
		default:
			return match{one, fields}, nil
		}
	}
	return match{}, methods
}

func noRoute(all []*route, path string) error {
	var patterns []string
	for _, r := range all {
		patterns = append(patterns, r.Path)
	}
	near := sbxerr.Nearest(path, patterns)
	if near == "" {
		return refuse("there is no route %q", sbxerr.Clip(path))
	}
	return refuse("there is no route %q, did you mean %q?", sbxerr.Clip(path), near)
}

// matchSegments returns the fields of a path, still escaped.
func matchSegments(pattern, path []string) (map[string]string, bool) {
	fields := map[string]string{}
	for i, p := range pattern {
		name, field := strings.CutPrefix(p, "{")
		name = strings.TrimSuffix(name, "}")
		rest, all := strings.CutSuffix(name, "...")
		switch {
		case i >= len(path):
			return nil, false
		case all:
			fields[rest] = strings.Join(path[i:], "/")
			return fields, fields[rest] != "" || rest == pathField
		case !field && p != path[i], field && path[i] == "":
			return nil, false
		case field:
			fields[name] = path[i]
		}
	}
	return fields, len(pattern) == len(path)
}

// pathField is the name of fields that hold an absolute path.
const pathField = "path"

func unescape(fields map[string]string) (map[string]string, error) {
	for name, value := range fields {
		plain, err := url.PathUnescape(value)
		if err != nil {
			return nil, refuse("%q in the path is not escaped as RFC 3986 asks: %v", sbxerr.Clip(value), err)
		}
		if name == pathField {
			plain = "/" + plain
		}
		fields[name] = plain
	}
	return fields, nil
}
