package host

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
	"github.com/caisson-run/caisson/cmd/caisson/internal/specflags"
)

func SpecCommand(a *cli.App) *cobra.Command {
	var f specflags.RunFlags
	filter, pfc := false, false
	cmd := &cobra.Command{
		Use:     "spec [flags] -- CMD [ARG...]",
		Short:   "Show the OCI spec and limits of a run without running it",
		Long:    "Show the OCI spec, mounts, cgroup values and rules of a run with the same flags. Nothing\nis created or changed.",
		Example: "  caisson spec -- true\n  caisson spec --seccomp",
		RunE: func(cmd *cobra.Command, args []string) error {
			if pfc && !filter {
				return cli.Usage("--pfc shows the filter in another form: give --seccomp --pfc")
			}
			if filter && len(args) == 0 && !f.Shell {
				args = []string{"true"} // the filter is the same for every command
			}
			spec, err := f.Spec(cmd.Flags(), args, a)
			if err != nil {
				return err
			}
			return cli.Ask(cmd.Context(), a, (*api.Client).Spec, &caissonv1.SpecRequest{Spec: spec, SeccompPfc: pfc}, func(r *caissonv1.SpecResponse) error {
				switch {
				case a.Output == cli.FormatJSON:
					return a.PrintJSON(r)
				case pfc:
					return a.PrintLines(strings.Split(strings.TrimSuffix(r.SeccompPfc, "\n"), "\n"))
				case filter:
					return printSeccomp(a, r)
				}
				return printSpec(a, r)
			})
		},
	}
	f.Register(cmd)
	cmd.Flags().BoolVar(&filter, "seccomp", false, "show only the seccomp filter with the reason for each rule")
	cmd.Flags().BoolVar(&pfc, "pfc", false, "with --seccomp: show the compiled filter as libseccomp's pseudo filter code")
	a.OutputFlags(cmd)
	return cmd
}

// printSpec prints the parts of a spec under headings.
func printSpec(a *cli.App, r *caissonv1.SpecResponse) error {
	var spec bytes.Buffer
	if err := json.Indent(&spec, r.OciSpecJson, "", "  "); err != nil {
		return err
	}
	sections := []func() error{
		func() error { return a.PrintLine("# OCI spec\n%s", spec.String()) },
		func() error { return a.PrintLine("\n# mounts") },
		func() error { return a.PrintLines(r.Mounts) },
		func() error { return a.PrintLine("\n# cgroup values") },
		func() error { return a.PrintTable([]string{"FILE", "VALUE"}, cgroupRows(r.CgroupValues)) },
		func() error { return a.PrintLine("") },
		func() error { return printSeccomp(a, r) },
		func() error { return a.PrintLine("\n# network rules") },
		func() error { return a.PrintLines(r.NetworkRules) },
	}
	for _, section := range sections {
		if err := section(); err != nil {
			return err
		}
	}
	return nil
}

// printSeccomp prints the filter as a table of reasons.
func printSeccomp(a *cli.App, r *caissonv1.SpecResponse) error {
	if err := a.PrintLine("# seccomp profile %s", cli.Printable(r.SeccompProfile)); err != nil {
		return err
	}
	return a.PrintTable([]string{"ACTION", "SYSCALLS", "CONDITION", "WHY"}, cli.Each(r.SeccompRules, ruleRow))
}

func cgroupRows(values map[string]string) [][]string {
	var rows [][]string
	for _, file := range slices.Sorted(maps.Keys(values)) {
		rows = append(rows, []string{file, values[file]})
	}
	return rows
}

func ruleRow(r *caissonv1.SeccompRule) []string {
	return []string{r.Action, strings.Join(r.Syscalls, " "), cli.OrDash(r.Condition), r.Why}
}
