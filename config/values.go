package config

import (
	"fmt"
	"time"

	"github.com/invopop/jsonschema"
	"go.yaml.in/yaml/v3"

	"github.com/caisson-run/caisson/api/units"
)

// Duration is a time.Duration that reads and writes as "30s".
type Duration time.Duration

// UnmarshalYAML reads a duration in Go's form.
func (d *Duration) UnmarshalYAML(n *yaml.Node) error {
	v, err := time.ParseDuration(n.Value)
	if err != nil {
		return fmt.Errorf("line %d: %q is not a duration such as 30s", n.Line, n.Value)
	}
	*d = Duration(v)
	return nil
}

// MarshalYAML writes a duration in Go's form.
func (d Duration) MarshalYAML() (any, error) { return time.Duration(d).String(), nil }

// JSONSchema says how a Duration is written.
func (Duration) JSONSchema() *jsonschema.Schema {
	return &jsonschema.Schema{Type: "string", Examples: []any{"30s", "10m"}}
}

// Size is a number of bytes that reads as "512M".
type Size int64

// UnmarshalYAML reads a size as units.ParseSize does.
func (s *Size) UnmarshalYAML(n *yaml.Node) error {
	v, err := units.ParseSize(n.Value)
	if err != nil {
		return fmt.Errorf("line %d: %w", n.Line, err)
	}
	*s = Size(v)
	return nil
}

// MarshalYAML writes a size the shortest way that reads back.
func (s Size) MarshalYAML() (any, error) { return units.FormatSize(int64(s)), nil }

// JSONSchema says how a Size is written.
func (Size) JSONSchema() *jsonschema.Schema { return eitherWay("512M", "1.5G") }

// CPUs is a number of thousandths of a CPU that reads as "1.5".
type CPUs int64

// UnmarshalYAML reads a number of CPUs as units.ParseCPU does.
func (c *CPUs) UnmarshalYAML(n *yaml.Node) error {
	v, err := units.ParseCPU(n.Value)
	if err != nil {
		return fmt.Errorf("line %d: %w", n.Line, err)
	}
	*c = CPUs(v)
	return nil
}

// MarshalYAML writes a number of CPUs with its thousandths.
func (c CPUs) MarshalYAML() (any, error) { return fmt.Sprintf("%d.%03d", c/1000, c%1000), nil }

// JSONSchema says how a number of CPUs is written.
func (CPUs) JSONSchema() *jsonschema.Schema { return eitherWay("2", "1.5") }

// Account is the name or the number of a user or group of the host.
type Account string

// JSONSchema says how an Account is written.
func (Account) JSONSchema() *jsonschema.Schema { return eitherWay("1000", "ann") }

// eitherWay is what YAML may hold with or without quotes.
func eitherWay(examples ...any) *jsonschema.Schema {
	return &jsonschema.Schema{OneOf: []*jsonschema.Schema{{Type: "string"}, {Type: "number"}}, Examples: examples}
}
