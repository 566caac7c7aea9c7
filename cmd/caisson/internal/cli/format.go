package cli

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
)

// Format is how a command tells its result: as a table or line to read, or as an object.
type Format string

const (
	FormatTable Format = "table"
	FormatJSON  Format = "json"
)

// formats are the values of -o. wide is a table with all columns, yaml and name are forms of
// the object that json is.
var formats = []string{"table", "wide", "json", "yaml", "name"}

// nameTemplate is -o name.
const nameTemplate = "{{.name}}"

// outputFlag is -o.
type outputFlag struct{ a *App }

// String, Set and Type implement pflag.Value.
func (f outputFlag) String() string {
	if f.a == nil {
		return ""
	}
	return string(f.a.Output)
}

func (f outputFlag) Set(s string) error {
	a := f.a
	a.Output, a.Wide, a.Form, a.template = FormatJSON, s == "wide", nil, false
	switch s {
	case "json":
		return nil
	case "yaml":
		if a.Form = a.Program.YAML; a.Form == nil {
			return errWhole
		}
		return nil
	case "table", "wide":
		a.Output = FormatTable
		return nil
	case "name":
		return templateFlag{a}.Set(nameTemplate)
	}
	a.Output = FormatTable
	if near := Nearest(s, formats); near != "" {
		return fmt.Errorf("it is not a format; did you mean %q?", near)
	}
	return fmt.Errorf("it is not a format, use one of %s", strings.Join(formats, ", "))
}

func (f outputFlag) Type() string { return "format" }

// jsonSwitch is --json, the short form of -o json.
type jsonSwitch struct{ a *App }

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
type templateFlag struct{ a *App }

func (f templateFlag) String() string { return "" }

func (f templateFlag) Set(s string) error {
	if f.a.Program.Template == nil {
		return errWhole
	}
	form, err := f.a.Program.Template(s)
	if err != nil {
		return err
	}
	f.a.Output, f.a.Form, f.a.template = FormatJSON, form, true
	return nil
}

func (f templateFlag) Type() string { return "template" }

// OutputFlags gives cmd -o, --json and --format.
func (a *App) OutputFlags(cmd *cobra.Command) {
	cmd.Flags().VarP(outputFlag{a}, "output", "o", "output `FORMAT`: "+strings.Join(formats[:len(formats)-1], ", ")+" or name")
	cmd.Flags().VarPF(jsonSwitch{a}, "json", "", "short for -o json").NoOptDefVal = "true"
	cmd.Flags().Var(templateFlag{a}, "format", "print by Go `TEMPLATE`, with the names of JSON, such as '{{.name}} {{json .labels}}'")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions( // the flag is there
		slices.Clone(formats), cobra.ShellCompDirectiveNoFileComp))
}
