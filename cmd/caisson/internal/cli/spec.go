package cli

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
)

func (a *App) specCommand() *cobra.Command {
	var f runFlags
	filter, pfc := false, false
	cmd := &cobra.Command{
		Use:     "spec [flags] -- CMD [ARG...]",
		Short:   "Show the OCI spec and limits of a run without running it",
		Long:    "Show the OCI spec, mounts, cgroup values and rules of a run with the same flags. Nothing\nis created or changed.",
		Example: "  caisson spec -- true\n  caisson spec --seccomp",
		RunE: func(cmd *cobra.Command, args []string) error {
			if pfc && !filter {
				return Usage("--pfc shows the filter in another form: give --seccomp --pfc")
			}
			if filter && len(args) == 0 && !f.shell {
				args = []string{"true"} // the filter is the same for every command
			}
			spec, err := f.spec(cmd.Flags(), args, a)
			if err != nil {
				return err
			}
			return ask(cmd.Context(), a, (*api.Client).Spec, &caissonv1.SpecRequest{Spec: spec, SeccompPfc: pfc}, func(r *caissonv1.SpecResponse) error {
				switch {
				case pfc && a.output == formatJSON:
					return a.PrintJSON(pfcView{r.SeccompProfile, r.SeccompPfc})
				case pfc:
					return a.printLines(strings.Split(strings.TrimSuffix(r.SeccompPfc, "\n"), "\n"))
				case filter && a.output == formatJSON:
					return a.PrintJSON(seccompViewOf(r))
				case filter:
					return a.printSeccomp(r)
				case a.output == formatJSON:
					return a.PrintJSON(specViewOf(r))
				}
				return a.printSpec(r)
			})
		},
	}
	f.register(cmd)
	cmd.Flags().BoolVar(&filter, "seccomp", false, "show only the seccomp filter with the reason for each rule")
	cmd.Flags().BoolVar(&pfc, "pfc", false, "with --seccomp: show the compiled filter as libseccomp's pseudo filter code")
	a.outputFlags(cmd)
	return cmd
}

// printSpec prints the parts of a spec under headings.
func (a *App) printSpec(r *caissonv1.SpecResponse) error {
	var spec bytes.Buffer
	if err := json.Indent(&spec, r.OciSpecJson, "", "  "); err != nil {
		return err
	}
	sections := []func() error{
		func() error { return a.PrintLine("# OCI spec\n%s", spec.String()) },
		func() error { return a.PrintLine("\n# mounts") },
		func() error { return a.printLines(r.Mounts) },
		func() error { return a.PrintLine("\n# cgroup values") },
		func() error { return a.printTable([]string{"FILE", "VALUE"}, cgroupRows(r.CgroupValues)) },
		func() error { return a.PrintLine("") },
		func() error { return a.printSeccomp(r) },
		func() error { return a.PrintLine("\n# network rules") },
		func() error { return a.printLines(r.NetworkRules) },
	}
	for _, section := range sections {
		if err := section(); err != nil {
			return err
		}
	}
	return nil
}

// printSeccomp prints the filter as a table of reasons.
func (a *App) printSeccomp(r *caissonv1.SpecResponse) error {
	if err := a.PrintLine("# seccomp profile %s", printable(r.SeccompProfile)); err != nil {
		return err
	}
	return a.printTable([]string{"ACTION", "SYSCALLS", "CONDITION", "WHY"}, each(r.SeccompRules, ruleRow))
}

func (a *App) printLines(lines []string) error {
	for _, line := range lines {
		if err := a.PrintLine("%s", printable(line)); err != nil {
			return err
		}
	}
	return nil
}

func cgroupRows(values map[string]string) [][]string {
	var rows [][]string
	for _, file := range slices.Sorted(maps.Keys(values)) {
		rows = append(rows, []string{file, values[file]})
	}
	return rows
}

func ruleRow(r *caissonv1.SeccompRule) []string {
	return []string{r.Action, strings.Join(r.Syscalls, " "), orDash(r.Condition), r.Why}
}
