package dockerfile

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/moby/buildkit/frontend/dockerfile/parser"

	"github.com/caisson-run/caisson/api/sbxerr"
)

const op = "dockerfile.parse"

// Bounds of a Dockerfile.
const (
	maxBytes        = 1 << 20
	maxInstructions = 512
)

// instruction is one line that passed the list.
type instruction struct {
	name  string // in lower case
	line  int    // from 1
	text  string // as it is written
	words []string
	json  bool // words were written as a JSON array
	flags map[string]string
}

// allowed maps the instructions to their flags.
var allowed = map[string][]string{
	"from": nil, "run": nil, "copy": {"from", "chown", "chmod"}, "add": {"chown", "chmod"}, "env": nil, "workdir": nil,
	"user": nil, "entrypoint": nil, "cmd": nil, "arg": nil, "label": nil,
}

// lineError refuses a line of the file.
func lineError(line int, format string, args ...any) error {
	return sbxerr.New(sbxerr.Dockerfile, op, "line %d: %w", line, fmt.Errorf(format, args...))
}

// parse reads the instructions, or reports every line that is refused.
func parse(file []byte) ([]instruction, rune, error) {
	if len(file) > maxBytes {
		return nil, 0, sbxerr.New(sbxerr.Dockerfile, op, "the file has %d bytes: at most %d", len(file), maxBytes)
	}
	tree, err := parser.Parse(bytes.NewReader(file))
	if err != nil {
		return nil, 0, syntaxError(err)
	}
	if n := len(tree.AST.Children); n > maxInstructions {
		return nil, 0, sbxerr.New(sbxerr.Dockerfile, op, "the file has %d instructions: at most %d", n, maxInstructions)
	}
	var list []instruction
	var reasons sbxerr.Reasons
	for _, node := range tree.AST.Children {
		i, err := read(node)
		reasons.Add(err)
		list = append(list, i)
	}
	return list, tree.EscapeToken, reasons.Err()
}

func syntaxError(err error) error {
	at := new(parser.LocationError)
	if errors.As(err, &at) && len(at.Locations) > 0 && len(at.Locations[0]) > 0 && at.Locations[0][0].Start.Line > 0 {
		return lineError(at.Locations[0][0].Start.Line, "%s", sbxerr.Clip(err.Error()))
	}
	return sbxerr.New(sbxerr.Dockerfile, op, "%s", sbxerr.Clip(err.Error()))
}

// read checks one instruction against the list.
func read(node *parser.Node) (instruction, error) {
	i := instruction{name: strings.ToLower(node.Value), line: node.StartLine, text: node.Original, json: node.Attributes["json"], flags: map[string]string{}}
	flags, ok := allowed[i.name]
	if !ok {
		return i, lineError(i.line, "%s is not supported; there are %s", strings.ToUpper(sbxerr.Clip(node.Value)), strings.ToUpper(strings.Join(slices.Sorted(maps.Keys(allowed)), ", ")))
	}
	if len(node.Heredocs) > 0 {
		return i, lineError(i.line, "%s with a here-document is not supported: put the text into a file of the context", strings.ToUpper(i.name))
	}
	for _, f := range node.Flags {
		name, value, _ := strings.Cut(strings.TrimPrefix(f, "--"), "=")
		switch {
		case !slices.Contains(flags, name) && len(flags) == 0:
			return i, lineError(i.line, "%s has no flag --%s: none is supported", strings.ToUpper(i.name), sbxerr.Clip(name))
		case !slices.Contains(flags, name):
			return i, lineError(i.line, "%s --%s is not supported; there are --%s", strings.ToUpper(i.name), sbxerr.Clip(name), strings.Join(flags, ", --"))
		case value == "":
			return i, lineError(i.line, "%s --%s needs a value: --%s=VALUE", strings.ToUpper(i.name), name, name)
		}
		i.flags[name] = value
	}
	for n := node.Next; n != nil; n = n.Next {
		i.words = append(i.words, n.Value)
	}
	return i, i.check()
}

// check refuses instructions that lack something.
func (i instruction) check() error {
	least, most := 1, 1
	switch i.name {
	case "copy", "add":
		least, most = 2, maxInstructions
	case "from":
		most = 3
	case "run":
		least, most = 0, 1<<20 // see planner.run
	case "env", "arg", "label":
		most = 1 << 20
	case "entrypoint", "cmd":
		least, most = 0, 1<<20
	}
	if n := len(i.words); n < least || n > most {
		return lineError(i.line, "%s has %d arguments", strings.ToUpper(i.name), n)
	}
	if i.name == "from" && len(i.words) != 1 && (len(i.words) != 3 || !strings.EqualFold(i.words[1], "as")) {
		return lineError(i.line, "write FROM IMAGE or FROM IMAGE AS NAME")
	}
	if i.name == "add" {
		return i.checkLocal()
	}
	return nil
}

// checkLocal refuses what ADD does beyond COPY.
func (i instruction) checkLocal() error {
	for _, source := range i.words[:len(i.words)-1] {
		if strings.Contains(source, "://") || strings.HasPrefix(source, "git@") {
			return lineError(i.line, "ADD of %s is not supported: download it before the build, or in RUN with an allowed host", sbxerr.Clip(source))
		}
		for _, end := range []string{".tar", ".tgz", ".tar.gz", ".tar.xz", ".txz", ".tar.bz2", ".tbz2", ".tar.zst"} {
			if strings.HasSuffix(source, end) {
				return lineError(i.line, "ADD does not unpack %s: use COPY, and tar in RUN", sbxerr.Clip(source))
			}
		}
	}
	return nil
}
