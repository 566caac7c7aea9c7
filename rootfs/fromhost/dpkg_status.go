package fromhost

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"strings"
)

// maxStanza bounds one line of dpkg's database. The longest ones are lists of
// dependencies and stay below 64 KiB.
const maxStanza = 1 << 20

// parseStatus reads dpkg's status file (deb822(5)): the packages of which all
// files are there, and the names of those that are only half installed.
func parseStatus(data []byte) (installed []*Package, broken []string, err error) {
	s := bufio.NewScanner(bytes.NewReader(data))
	s.Buffer(nil, maxStanza)
	fields := map[string]string{}
	last := ""
	flush := func() error {
		if len(fields) == 0 {
			return nil
		}
		p, state, err := packageOf(fields)
		switch {
		case err != nil:
			return err
		case state == stateInstalled:
			installed = append(installed, p)
		case state == stateBroken:
			broken = append(broken, p.Name)
		}
		clear(fields)
		last = ""
		return nil
	}
	for line := 1; s.Scan(); line++ {
		text := s.Text()
		var err error
		switch {
		case strings.TrimSpace(text) == "":
			err = flush()
		case text[0] == ' ' || text[0] == '\t':
			err = continueField(fields, last, text)
		default:
			last, err = startField(fields, text)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("line %d: %w", line, err)
		}
	}
	if err := errors.Join(s.Err(), flush()); err != nil {
		return nil, nil, err
	}
	return installed, broken, nil
}

// wanted are the fields that matter, in lower case: names of fields are not
// case sensitive. Descriptions are most of the file and are not kept.
var wanted = map[string]bool{
	"package": true, "status": true, "version": true, "architecture": true, "multi-arch": true,
	"depends": true, "pre-depends": true, "recommends": true, "provides": true, "conffiles": true,
}

func startField(fields map[string]string, line string) (string, error) {
	name, value, ok := strings.Cut(line, ":")
	name = strings.ToLower(strings.TrimSpace(name))
	if !ok || name == "" {
		return "", fmt.Errorf("%.40q is no field", line)
	}
	if !wanted[name] {
		return name, nil
	}
	if _, twice := fields[name]; twice {
		return "", fmt.Errorf("field %q is there twice", name)
	}
	fields[name] = strings.TrimSpace(value)
	return name, nil
}

func continueField(fields map[string]string, name, line string) error {
	switch {
	case name == "":
		return errors.New("a continued line comes first")
	case !wanted[name]:
		return nil
	case len(fields[name])+len(line) > maxStanza:
		return fmt.Errorf("field %q is too long", name)
	}
	fields[name] += "\n" + line
	return nil
}

type packageState int

const (
	stateAbsent packageState = iota // removed, perhaps with configuration left
	stateInstalled
	stateBroken // not all files are in place
)

func packageOf(fields map[string]string) (*Package, packageState, error) {
	p := &Package{
		Name: fields["package"], Version: fields["version"], Arch: fields["architecture"],
		foreign: fields["multi-arch"] == "foreign" || fields["multi-arch"] == "allowed",
		config:  parseConffiles(fields["conffiles"]),
	}
	// The name becomes part of a file name: info/NAME.list.
	if !packageName.MatchString(p.Name) || strings.Contains(p.Name, ":") {
		return nil, stateAbsent, fmt.Errorf("package name %.40q is malformed", p.Name)
	}
	if p.Arch != "" && !packageName.MatchString(p.Arch) {
		return nil, stateAbsent, fmt.Errorf("architecture %.40q of %s is malformed", p.Arch, p.Name)
	}
	state := stateOf(fields["status"])
	if state != stateInstalled {
		return p, state, nil
	}
	p.depends = append(parseRelations(fields["pre-depends"]), parseRelations(fields["depends"])...)
	p.recommends = parseRelations(fields["recommends"])
	for _, group := range parseRelations(fields["provides"]) {
		p.provides = append(p.provides, group...)
	}
	return p, state, nil
}

// stateOf reads "want error state" of dpkg-query(1).
func stateOf(status string) packageState {
	words := strings.Fields(status)
	if len(words) != 3 || words[1] != "ok" {
		return stateBroken
	}
	switch words[2] {
	case "installed", "triggers-awaited", "triggers-pending":
		return stateInstalled
	case "not-installed", "config-files":
		return stateAbsent
	}
	return stateBroken
}

// parseConffiles reads lines of "/path digest [obsolete]". A line without a
// digest keeps an empty one, which no content has.
func parseConffiles(s string) map[string]string {
	files := map[string]string{}
	for line := range strings.Lines(s) {
		words := strings.Fields(line)
		if len(words) < 2 || words[0][0] != '/' {
			continue
		}
		files[words[0]] = words[1]
	}
	return files
}

// parseRelations reads "a (>= 1) | b:any, c": groups of which all are needed,
// of alternatives each. What is malformed names a package that does not exist.
func parseRelations(s string) []anyOf {
	var groups []anyOf
	for group := range strings.SplitSeq(s, ",") {
		var alternatives anyOf
		for part := range strings.SplitSeq(group, "|") {
			if r := parseRelation(part); r.name != "" {
				alternatives = append(alternatives, r)
			}
		}
		if len(alternatives) > 0 {
			groups = append(groups, alternatives)
		}
	}
	return groups
}

func parseRelation(s string) relation {
	name, constraint, _ := strings.Cut(s, "(")
	// The qualifier (:any, :amd64) is left to the preference for one's own
	// architecture: dpkg has checked it when the package was installed.
	name, _, _ = strings.Cut(strings.TrimSpace(name), ":")
	constraint, _, _ = strings.Cut(constraint, ")")
	constraint = strings.TrimSpace(constraint)
	r := relation{name: name}
	if constraint == "" {
		return r
	}
	i := strings.IndexFunc(constraint, func(c rune) bool { return c != '<' && c != '>' && c != '=' })
	if i <= 0 {
		return relation{name: name, op: "=", version: constraint}
	}
	r.op, r.version = constraint[:i], strings.TrimSpace(constraint[i:])
	switch r.op { // the old spellings, still valid (deb-control(5))
	case "<":
		r.op = "<="
	case ">":
		r.op = ">="
	}
	return r
}
