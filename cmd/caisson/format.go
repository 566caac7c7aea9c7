package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/template"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// format is how a command tells its result: as a table or line to read, or as an object.
type format string

const (
	formatTable format = "table"
	formatJSON  format = "json"
)

// formats are the values of -o. wide is a table with all columns, yaml and name are forms of
// the object that json is.
var formats = []string{"table", "wide", "json", "yaml", "name"}

// nameTemplate is -o name.
const nameTemplate = "{{.name}}"

// outputFlag is -o.
type outputFlag struct{ a *app }

// String, Set and Type implement pflag.Value.
func (f outputFlag) String() string {
	if f.a == nil {
		return ""
	}
	return string(f.a.output)
}

func (f outputFlag) Set(s string) error {
	a := f.a
	a.output, a.wide, a.yaml, a.template = formatJSON, s == "wide", s == "yaml", nil
	switch s {
	case "json", "yaml":
		return nil
	case "table", "wide":
		a.output = formatTable
		return nil
	case "name":
		return templateFlag{a}.Set(nameTemplate)
	}
	a.output = formatTable
	if near := nearest(s, formats); near != "" {
		return fmt.Errorf("it is not a format; did you mean %q?", near)
	}
	return fmt.Errorf("it is not a format, use one of %s", strings.Join(formats, ", "))
}

func (f outputFlag) Type() string { return "format" }

// jsonSwitch is --json, the short form of -o json.
type jsonSwitch struct{ a *app }

func (j jsonSwitch) String() string { return "false" }

func (j jsonSwitch) Set(s string) error {
	on, err := strconv.ParseBool(s)
	if err == nil && on {
		return outputFlag(j).Set("json")
	}
	return err
}

func (j jsonSwitch) Type() string { return "bool" }

// templateFlag is --format.
type templateFlag struct{ a *app }

func (f templateFlag) String() string { return "" }

func (f templateFlag) Set(s string) error {
	t, err := template.New("--format").Option("missingkey=error").Funcs(template.FuncMap{"json": templateJSON}).Parse(s)
	if err != nil {
		return err
	}
	f.a.output, f.a.template = formatJSON, &objectTemplate{t}
	return nil
}

func (f templateFlag) Type() string { return "template" }

// objectTemplate prints objects by a Go template, with the names that JSON has.
type objectTemplate struct{ *template.Template }

// print writes v, or each of its elements, on a line.
func (t *objectTemplate) print(w io.Writer, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return ownOutput(err)
	}
	var object any
	d := json.NewDecoder(strings.NewReader(string(data)))
	d.UseNumber() // 12345678 and not 1.2345678e+07
	if err := d.Decode(&object); err != nil {
		return ownOutput(err)
	}
	list, ok := object.([]any)
	if !ok {
		list = []any{object}
	}
	for _, one := range list {
		var line strings.Builder
		if err := t.Execute(&line, one); err != nil {
			return usage("%v; -o json shows the fields", strings.TrimPrefix(err.Error(), "template: "))
		}
		if _, err := fmt.Fprintln(w, line.String()); err != nil {
			return ownOutput(err)
		}
	}
	return nil
}

func templateJSON(v any) (string, error) {
	data, err := json.Marshal(v)
	return string(data), err
}

// printYAML writes v as a document, with the names and the order that JSON has.
func printYAML(w io.Writer, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return ownOutput(err)
	}
	var node yaml.Node
	if err := yaml.Unmarshal(data, &node); err != nil { // JSON is YAML
		return sbxerr.Wrap(sbxerr.Internal, "caisson.print", err)
	}
	blocks(&node)
	if _, err := io.WriteString(w, "---\n"); err != nil {
		return ownOutput(err)
	}
	e := yaml.NewEncoder(w)
	e.SetIndent(2)
	return ownOutput(e.Encode(&node))
}

// blocks drops the style of JSON, which is that of one line with quotes.
func blocks(n *yaml.Node) {
	n.Style = 0
	for _, c := range n.Content {
		blocks(c)
	}
}

// outputFlags gives cmd -o, --json and --format.
func (a *app) outputFlags(cmd *cobra.Command) {
	cmd.Flags().VarP(outputFlag{a}, "output", "o", "output `FORMAT`: "+strings.Join(formats[:len(formats)-1], ", ")+" or name")
	cmd.Flags().VarPF(jsonSwitch{a}, "json", "", "short for -o json").NoOptDefVal = "true"
	cmd.Flags().Var(templateFlag{a}, "format", "print by Go `TEMPLATE`, with the names of JSON, such as '{{.name}} {{json .labels}}'")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions( // the flag is there
		slices.Clone(formats), cobra.ShellCompDirectiveNoFileComp))
}
