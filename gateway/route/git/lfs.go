package git

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
)

// LFSType is the type of what Git LFS asks and is told.
const LFSType = "application/vnd.git-lfs+json"

// The bounds of what is read of Git LFS, in bytes.
const (
	MaxBatch       = 1 << 20
	MaxBatchAnswer = 4 << 20
)

// lfsObject is the path of an object below a repository, as servers lay it out.
var lfsObject = regexp.MustCompile(`^(.+)/(?:info/lfs|gitlab-lfs)/objects/[0-9a-f]{64}(/[0-9]+|/verify)?$`)

// IsLFS reports whether a path is one of Git LFS.
func IsLFS(path string) bool {
	return strings.Contains(path, "/info/lfs/") || strings.Contains(path, "/gitlab-lfs/")
}

// parseLFS is parse for the calls of Git LFS: batches, objects, and the question for locks that
// comes before a push.
func parseLFS(method, path, query string) (kind Kind, service, repository string) {
	if method == http.MethodPost && query == "" {
		for end, k := range map[string]Kind{"/info/lfs/objects/batch": Batch, "/info/lfs/locks/verify": Object, "/info/lfs/verify": Object} {
			if repository, found := strings.CutSuffix(path, end); found {
				if k == Batch {
					return k, uploadPack, repository // ReadBatch sees whether it is for a push
				}
				return k, receivePack, repository
			}
		}
	}
	m := lfsObject.FindStringSubmatch(path)
	switch {
	case m == nil:
		return Other, "", ""
	case method == http.MethodGet && m[2] != "/verify":
		return Object, uploadPack, m[1]
	case method == http.MethodPut && m[2] != "/verify", method == http.MethodPost && m[2] == "/verify":
		return Object, receivePack, m[1]
	}
	return Other, "", ""
}

// batch is what a client of Git LFS asks for.
type batch struct {
	Operation string          `json:"operation"`
	Transfers []string        `json:"transfers"`
	Ref       json.RawMessage `json:"ref,omitempty"`
	Objects   json.RawMessage `json:"objects"`
	Hash      string          `json:"hash_algo,omitempty"`
}

// ReadBatch reads a request for objects, and refuses one to push where s does not allow that. It
// returns the request as it is sent on, which can be read in one way.
func (s Scope) ReadBatch(text []byte) ([]byte, error) {
	var b batch
	if err := json.Unmarshal(text, &b); err != nil {
		return nil, errors.New("the request of Git LFS is no JSON as it should be")
	}
	switch {
	case b.Operation != "download" && b.Operation != "upload":
		return nil, fmt.Errorf("the operation %q of Git LFS is none that the route passes on", clip(b.Operation))
	case b.Operation == "upload" && !s.Write:
		return nil, errors.New("the route allows no pushes, and so no upload by Git LFS")
	}
	b.Transfers = []string{"basic"} // others go by protocols of their own
	return json.Marshal(b)
}

// Relocated returns the answer to a batch with other addresses. to returns where an address
// leads, and whether by the route: such an action then has no headers to authenticate with.
func Relocated(text []byte, to func(href string) (string, bool)) ([]byte, error) {
	var answer map[string]json.RawMessage
	var objects []map[string]json.RawMessage
	if err := json.Unmarshal(text, &answer); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(answer["objects"], &objects); err != nil {
		return nil, err
	}
	for _, o := range objects {
		var actions map[string]map[string]any
		if o["actions"] == nil {
			continue
		}
		if err := json.Unmarshal(o["actions"], &actions); err != nil {
			return nil, err
		}
		for _, a := range actions {
			href, named := a["href"].(string)
			if !named {
				return nil, errors.New("an action leads nowhere")
			}
			at, by := to(href)
			if a["href"] = at; by {
				dropAuthorization(a)
			}
		}
		o["actions"], _ = json.Marshal(actions) // of what was JSON
	}
	answer["objects"], _ = json.Marshal(objects)
	return json.Marshal(answer)
}

func dropAuthorization(action map[string]any) {
	header, _ := action["header"].(map[string]any)
	for name := range header {
		if strings.EqualFold(name, "Authorization") {
			delete(header, name)
		}
	}
}
