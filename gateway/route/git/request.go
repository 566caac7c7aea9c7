package git

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// suffix may stand after the name of a repository.
const suffix = ".git"

// The services of a server.
const (
	uploadPack  = "git-upload-pack"
	receivePack = "git-receive-pack"
)

// Kind is what a request is for.
type Kind int

// The kinds of requests.
const (
	Other Kind = iota
	Ask        // for refs and what the server can do, before a fetch or push
	Fetch
	Push   // its body begins with the refs that it updates
	Batch  // of Git LFS: a question for objects
	Object // of Git LFS: an object, or what belongs to its upload
)

// Request returns the kind of a request, and refuses one that does not pass. The path is
// decoded, below the upstream's; the query is as on the wire.
func (s Scope) Request(method, path, query string) (Kind, error) {
	kind, service, repository := parse(method, path, query)
	if kind == Other {
		return Other, errors.New("the route passes on fetches and pushes of git alone, by smart HTTP and Git LFS")
	}
	name := strings.TrimSuffix(strings.TrimPrefix(repository, "/"), suffix)
	switch {
	case checkName(name) != nil || !matchesAny(s.Repositories, name):
		return Other, fmt.Errorf("the route does not allow the repository %q", clip(name))
	case service == receivePack && !s.Write:
		return Other, fmt.Errorf("the route allows no pushes: it can only read the repository %q", clip(name))
	}
	return kind, nil
}

func parse(method, path, query string) (kind Kind, service, repository string) {
	if repository, found := strings.CutSuffix(path, "/info/refs"); found && method == http.MethodGet {
		for _, service := range []string{uploadPack, receivePack} {
			if query == "service="+service {
				return Ask, service, repository
			}
		}
	}
	for kind, service := range map[Kind]string{Fetch: uploadPack, Push: receivePack} {
		if repository, found := strings.CutSuffix(path, "/"+service); found && method == http.MethodPost && query == "" {
			return kind, service, repository
		}
	}
	return parseLFS(method, path, query)
}
