package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
)

const inspectLong = `Show details of a sandbox as JSON: each field that has a value, on one line. --posture adds
the comparison of the live sandbox with its declaration, --spec its OCI runtime specification,
--all both. These, --json and --format know every field.`

func (a *App) inspectCommand() *cobra.Command {
	var posture, spec, all bool
	cmd := &cobra.Command{
		Use:               "inspect [flags] SANDBOX",
		Short:             "Show details of a sandbox as JSON",
		Long:              inspectLong,
		Example:           "  caisson inspect agent\n  caisson inspect --all agent",
		Args:              Exactly("SANDBOX"),
		ValidArgsFunction: a.CompleteSandboxes,
		RunE: func(cmd *cobra.Command, args []string) error {
			return ask(cmd.Context(), a, (*api.Client).Inspect, &caissonv1.InspectRequest{Ref: args[0]}, func(d *caissonv1.InspectResponse) error {
				v := inspectViewOf(d)
				if !posture && !all {
					v.Posture = nil
				}
				if !spec && !all {
					v.OCISpec = nil
				}
				if posture || spec || all || a.form != nil {
					return a.PrintJSON(v)
				}
				return a.printFields(v, a.output == formatTable)
			})
		},
	}
	cmd.Flags().BoolVar(&posture, "posture", false, "add the comparison of the live sandbox with its declaration")
	cmd.Flags().BoolVar(&spec, "spec", false, "add the OCI runtime specification")
	cmd.Flags().BoolVarP(&all, "all", "a", false, "add everything that is known")
	a.jsonOnly(cmd)
	return cmd
}

// noValues are the JSON texts of fields without a value. A number has one.
var noValues = []string{"null", `""`, "[]", "{}", "false"}

// printFields prints one object with each of its fields on a line. brief leaves out those
// without a value.
func (a *App) printFields(v any, brief bool) error {
	var whole bytes.Buffer
	e := json.NewEncoder(&whole)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return ownOutput(err)
	}
	fields := json.NewDecoder(&whole)
	if _, err := fields.Token(); err != nil { // the brace
		return ownOutput(err)
	}
	var out bytes.Buffer
	between := "{\n"
	for fields.More() {
		name, err := fields.Token()
		if err != nil {
			return ownOutput(err)
		}
		var value json.RawMessage
		if err := fields.Decode(&value); err != nil {
			return ownOutput(err)
		}
		if brief && slices.Contains(noValues, string(value)) {
			continue
		}
		fmt.Fprintf(&out, "%s  %q: %s", between, name, value)
		between = ",\n"
	}
	out.WriteString("\n}\n")
	_, err := a.shown(a.Stdout).Write(out.Bytes())
	return ownOutput(err)
}
