package dockerfile

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/parser"

	"github.com/caisson-run/caisson/api/sbxerr"
)

const op = "dockerfile.parse"

// instruction is one that was read.
type instruction struct {
	line    int    // from 1
	text    string // as it is written
	command any    // one of the types of package instructions
}

func (i instruction) name() string {
	word, _, _ := strings.Cut(i.text, " ")
	return strings.ToUpper(sbxerr.Clip(word))
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

// read reads one instruction.
func read(node *parser.Node) (instruction, error) {
	i := instruction{line: node.StartLine, text: node.Original}
	if err := checkDepth(node); err != nil {
		return i, err
	}
	var err error
	if i.command, err = instructions.ParseInstruction(node); err != nil {
		return i, lineError(i.line, "%s", sbxerr.Clip(err.Error()))
	}
	return i, nil
}

// trigger reads an instruction that ONBUILD of another image names. line is that of FROM.
func trigger(text string, line int) (instruction, error) {
	i := instruction{line: line, text: "ONBUILD " + text}
	if len(text) > maxBytes {
		return i, lineError(line, "an ONBUILD of the image has %d bytes: at most %d", len(text), maxBytes)
	}
	tree, err := parser.Parse(strings.NewReader(text))
	if err != nil || len(tree.AST.Children) != 1 {
		return i, lineError(line, "an ONBUILD of the image is no instruction: %q", sbxerr.Clip(text))
	}
	read, err := read(tree.AST.Children[0])
	switch i.command = read.command; i.command.(type) {
	case *instructions.Stage, *instructions.OnbuildCommand:
		return i, lineError(line, "an ONBUILD of the image holds %s", read.name())
	}
	if err != nil {
		return i, lineError(line, "an ONBUILD of the image: %w", err)
	}
	return i, nil
}
