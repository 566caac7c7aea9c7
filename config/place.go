package config

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"

	"go.yaml.in/yaml/v3"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// source is the file that a configuration was read from.
type source struct {
	file string
	root *yaml.Node
}

// Locate adds the file and its line to each refusal in err of a value that the file has.
// Such a refusal begins with its key.
func (c *Config) Locate(err error) error {
	if err == nil || c.source == nil {
		return err
	}
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		var located []error
		for _, one := range many.Unwrap() {
			located = append(located, c.Locate(one))
		}
		return errors.Join(located...)
	}
	if placed, ok := err.(*sbxerr.Error); ok {
		copied := *placed
		copied.Err = c.Locate(placed.Err)
		return &copied
	}
	if line := lineOf(c.source.root, keyPath.FindString(err.Error())); line > 0 {
		return fmt.Errorf("%s:%d: %w", c.source.file, line, err)
	}
	return err
}

// keyPath is a key at the beginning of a message, such as "pools[0].size".
var keyPath = regexp.MustCompile(`^[a-z_]+(\.[\w-]+|\[\d+\])*`)

// keyStep is one step of a path: a name, or a place in a list.
var keyStep = regexp.MustCompile(`[\w-]+`)

// lineOf is the line of the deepest node on path that there is, 0 for none.
func lineOf(n *yaml.Node, path string) (line int) {
	for _, step := range keyStep.FindAllString(path, -1) {
		at, child := childOf(n, step)
		if child == nil {
			break
		}
		line, n = at, child
	}
	return line
}

// childOf is the value of a key, or an element of a list, and the line where it begins.
func childOf(n *yaml.Node, step string) (line int, child *yaml.Node) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == step {
				return n.Content[i].Line, n.Content[i+1]
			}
		}
	case yaml.SequenceNode:
		if i, err := strconv.Atoi(step); err == nil && i < len(n.Content) {
			return n.Content[i].Line, n.Content[i]
		}
	}
	return 0, nil
}
