package runtime

import (
	"encoding/json"
	"sync"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// filters holds each seccomp filter once, by its text. A filter is half of a
// specification, and sandboxes of one profile have the same. Nobody changes one.
type filters struct {
	mu     sync.Mutex
	byText map[string]*specs.LinuxSeccomp
}

// of returns the filter that text describes, nil where it describes none.
func (f *filters) of(text []byte) (*specs.LinuxSeccomp, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if known, ok := f.byText[string(text)]; ok || len(text) == 0 {
		return known, nil
	}
	var filter *specs.LinuxSeccomp
	if err := json.Unmarshal(text, &filter); err != nil {
		return nil, err
	}
	if f.byText == nil {
		f.byText = map[string]*specs.LinuxSeccomp{}
	}
	f.byText[string(text)] = filter
	return filter, nil
}

// keptSpec is a specification whose filter is not read yet.
type keptSpec struct {
	specs.Spec
	Linux *struct {
		specs.Linux
		Seccomp json.RawMessage `json:"seccomp"`
	} `json:"linux"`
}

// readSpec reads the specification of a sandbox at path.
func readSpec(path string, known *filters) (*specs.Spec, error) {
	var kept keptSpec
	if err := readJSON(path, &kept); err != nil {
		return nil, err
	}
	spec := kept.Spec
	if kept.Linux == nil { // nothing compares as declared then
		return &spec, nil
	}
	linux := kept.Linux.Linux // without the text, which it would keep in memory
	filter, err := known.of(kept.Linux.Seccomp)
	if err != nil {
		return nil, sbxerr.Wrap(sbxerr.StateDir, "runtime.record", err)
	}
	linux.Seccomp, spec.Linux = filter, &linux
	return &spec, nil
}
