package sandboxes

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
)

const inspectLong = `Show details of a sandbox as JSON: each field that has a value, on one line. --posture adds
the comparison of the live sandbox with its declaration, --spec its OCI runtime specification,
--all both. These, --json and --format know every field.`

func InspectCommand(a *cli.App) *cobra.Command {
	var posture, spec, all bool
	cmd := &cobra.Command{
		Use:               "inspect [flags] SANDBOX",
		Short:             "Show details of a sandbox as JSON",
		Long:              inspectLong,
		Example:           "  caisson inspect agent\n  caisson inspect --all agent",
		Args:              cli.Exactly("SANDBOX"),
		ValidArgsFunction: a.CompleteSandboxes,
		RunE: func(cmd *cobra.Command, args []string) error {
			return cli.Ask(cmd.Context(), a, (*api.Client).Inspect, &caissonv1.InspectRequest{Ref: args[0]}, func(d *caissonv1.InspectResponse) error {
				if !posture && !all {
					d.Posture = nil
				}
				if !spec && !all {
					d.OciSpecJson = nil
				}
				if posture || spec || all || a.Form != nil {
					return a.PrintJSON(d)
				}
				return printFields(a, a.Message(d), a.Output == cli.FormatTable)
			})
		},
	}
	cmd.Flags().BoolVar(&posture, "posture", false, "add the comparison of the live sandbox with its declaration")
	cmd.Flags().BoolVar(&spec, "spec", false, "add the OCI runtime specification")
	cmd.Flags().BoolVarP(&all, "all", "a", false, "add everything that is known")
	a.JsonOnly(cmd)
	return cmd
}

// noValues are the JSON texts of fields without a value. A number has one.
var noValues = []string{"null", `""`, "[]", "{}", "false"}

// printFields prints one object with each of its fields on a line, and those of the sandbox in
// it. brief leaves out those without a value.
func printFields(a *cli.App, m cli.Message, brief bool) error {
	data, err := m.MarshalJSON()
	if err != nil {
		return cli.OwnOutput(err)
	}
	var out bytes.Buffer
	if err := writeFields(&out, data, "", brief); err != nil {
		return cli.OwnOutput(err)
	}
	out.WriteByte('\n')
	_, err = a.Shown(a.Stdout).Write(out.Bytes())
	return cli.OwnOutput(err)
}

func writeFields(out *bytes.Buffer, object []byte, indent string, brief bool) error {
	fields := json.NewDecoder(bytes.NewReader(object))
	if _, err := fields.Token(); err != nil { // the brace
		return err
	}
	between := "{\n"
	for fields.More() {
		name, err := fields.Token()
		if err != nil {
			return err
		}
		var value json.RawMessage
		if err := fields.Decode(&value); err != nil {
			return err
		}
		if brief && slices.Contains(noValues, string(value)) {
			continue
		}
		fmt.Fprintf(out, "%s%s  %q: ", between, indent, name)
		between = ",\n"
		if name != "sandbox" {
			out.Write(value)
		} else if err := writeFields(out, value, indent+"  ", brief); err != nil {
			return err
		}
	}
	out.WriteString("\n" + indent + "}")
	return nil
}
