package fromhost

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Kind is what an entry is.
type Kind string

// The kinds of entries. Nothing else of a host is ever copied.
const (
	Dir      Kind = "dir"
	File     Kind = "file"
	Symlink  Kind = "symlink"
	Hardlink Kind = "hardlink"
)

// Entry is one path of the image. All belong to uid and gid 0.
type Entry struct {
	Path    string `json:"path"` // absolute
	Kind    Kind   `json:"kind"`
	Mode    uint32 `json:"mode"`              // permission bits; never writable for group or others, never set-id
	Size    int64  `json:"size,omitempty"`    // of a file when the plan was made
	ModTime int64  `json:"mtime,omitempty"`   // of a file, seconds since 1970
	Link    string `json:"link,omitempty"`    // a symlink's text; a hardlink's path
	Source  string `json:"source,omitempty"`  // where the content is, below Plan.Root; empty: Content
	Content []byte `json:"content,omitempty"` // of a file that is new, or was read for the plan
	For     string `json:"for"`               // the package or path that wants it, or another reason

	id    inode
	whole bool // part of a requested directory: links to directories are followed
}

// inode tells hard links from equal files; zero for a file with one name.
type inode struct{ dev, ino uint64 }

// Plan says what an image will hold. It is sorted, so the same host gives the
// same plan.
type Plan struct {
	Root     string         `json:"root"` // of the host
	Entries  []Entry        `json:"entries"`
	Bytes    int64          `json:"bytes"` // content of all files
	Packages []*Package     `json:"packages"`
	LeftOut  map[Reason]int `json:"left_out"` // what stays behind, counted by reason
	Warnings []string       `json:"warnings"` // what the caller should know, a line each
	Env      []string       `json:"env"`      // PATH and LANG that suit the content, K=V
	limits   Limits
}

// Summary is one line on the size of the plan.
func (p *Plan) Summary() string {
	return fmt.Sprintf("%d packages, %d entries, %.1f MiB", len(p.Packages), len(p.Entries), float64(p.Bytes)/(1<<20))
}

// Reason says why something of the software stays behind or was changed.
type Reason string

// The reasons. The first three are what every package has; the others are
// also warned of.
const (
	LeftDocumentation Reason = "documentation"
	LeftState         Reason = "state of the host"
	LeftLinks         Reason = "target of a link stays behind"
	LeftAbsent        Reason = "listed but absent"
	LeftHidden        Reason = "not readable by everybody"
	LeftSpecial       Reason = "no directory, file or link"
	LeftConfig        Reason = "configuration changed on this host"
	LeftSecret        Reason = "name of a file with credentials"
	LeftSetID         Reason = "set-id bit cleared"
	LeftLibrary       Reason = "needed library not found"
	LeftInterpreter   Reason = "interpreter not found"
	LeftDependency    Reason = "dependency not installed"
)

// quiet reasons are counted but not warned of.
var quiet = []Reason{LeftDocumentation, LeftState, LeftLinks}

// maxExamples is how many names a warning gives.
const maxExamples = 5

// omissions collects what is left out.
type omissions map[Reason]map[string]bool

func (o omissions) add(r Reason, what string) {
	if o[r] == nil {
		o[r] = map[string]bool{}
	}
	o[r][what] = true
}

func (o omissions) counts() map[Reason]int {
	n := map[Reason]int{}
	for r, what := range o {
		n[r] = len(what)
	}
	return n
}

// warnings renders one line for each reason that is not quiet.
func (o omissions) warnings() []string {
	var lines []string
	for _, r := range slices.Sorted(maps.Keys(o)) {
		if slices.Contains(quiet, r) {
			continue
		}
		names := slices.Sorted(maps.Keys(o[r]))
		line := fmt.Sprintf("%s (%d): %s", r, len(names), strings.Join(names[:min(maxExamples, len(names))], ", "))
		if len(names) > maxExamples {
			line += ", …"
		}
		lines = append(lines, line)
	}
	return lines
}
