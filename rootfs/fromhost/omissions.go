package fromhost

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// reason says why something of the software stays behind or is not as it came.
type reason string

// The reasons that the caller is told. Not told is what stays behind of every
// package: documentation, state of the host, and targets of links to those.
const (
	leftAbsent      reason = "listed but absent"
	leftHidden      reason = "not readable by everybody"
	leftSpecial     reason = "no directory, file or link"
	leftMount       reason = "on another file system: name it with --path"
	leftConfig      reason = "configuration changed on this host"
	leftSecret      reason = "name of a file with credentials"
	leftSetID       reason = "set-id bit cleared"
	leftLibrary     reason = "needed library not found"
	leftInterpreter reason = "interpreter not found"
	leftDependency  reason = "dependency not installed"
	notAsItCame     reason = "changed since the package was installed; --path DIR copies a directory as it is"
)

// maxExamples is how many names a warning gives.
const maxExamples = 5

// omissions collects what is left out.
type omissions map[reason]map[string]bool

func (o omissions) add(r reason, what string) {
	if o[r] == nil {
		o[r] = map[string]bool{}
	}
	o[r][what] = true
}

// warnings renders one line for each reason.
func (o omissions) warnings() []string {
	var lines []string
	for _, r := range slices.Sorted(maps.Keys(o)) {
		names := slices.Sorted(maps.Keys(o[r]))
		line := fmt.Sprintf("%s (%d): %s", r, len(names), strings.Join(names[:min(maxExamples, len(names))], ", "))
		if len(names) > maxExamples {
			line += ", …"
		}
		lines = append(lines, line)
	}
	return lines
}
