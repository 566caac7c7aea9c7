package main

import (
	"net/http"
	"strings"

	"github.com/caisson-run/caisson/config"
)

// pulls are the methods and paths that pass to a registry of images: those that read its
// repositories, or some of them, unless r says otherwise.
func pulls(r config.Route) (methods, paths []string) {
	const api = "/v2/" // of the distribution specification
	methods, paths = r.Methods, r.Paths
	if len(methods) == 0 {
		methods = []string{http.MethodGet, http.MethodHead}
	}
	if len(r.Repositories) == 0 {
		if len(paths) == 0 {
			paths = []string{api + "**"}
		}
		return methods, paths
	}
	paths = append([]string{api}, paths...) // where clients ask what there is
	for _, repository := range r.Repositories {
		paths = append(paths, api+strings.TrimSuffix(strings.TrimSuffix(repository, "**"), "/")+"/**")
	}
	return methods, paths
}
