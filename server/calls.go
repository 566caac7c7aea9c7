package server

import (
	"net/http"
	"slices"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
)

// paths are those of all calls of the API, and of the health service of gRPC.
func paths() []string {
	list := []string{healthCheck, healthWatch}
	pkg := caissonv1.File_caisson_v1_caisson_proto.Package()
	protoregistry.GlobalFiles.RangeFilesByPackage(pkg, func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			s := f.Services().Get(i)
			for j := range s.Methods().Len() {
				list = append(list, "/"+string(s.FullName())+"/"+string(s.Methods().Get(j).Name()))
			}
		}
		return true
	})
	return list
}

// knownCalls serves what h does, and refuses other paths as calls are refused.
func knownCalls(h http.Handler) http.Handler {
	writer, known := connect.NewErrorWriter(), paths()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path := r.URL.Path
		if slices.Contains(known, path) {
			b := &bareWriter{ResponseWriter: w, call: r, writer: writer}
			h.ServeHTTP(b, r)
			b.end()
			return
		}
		err := sbxerr.New(sbxerr.APIUsage, "server.call", "there is no call %q", sbxerr.Clip(path))
		if near := sbxerr.Nearest(path, known); near != "" {
			err = sbxerr.New(sbxerr.APIUsage, "server.call", "there is no call %q, did you mean %q?", sbxerr.Clip(path), near)
		}
		_ = writer.Write(w, r, failAs(connect.CodeUnimplemented, err)) // who does not read it knows no better
	})
}
