package host

import (
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
)

// CodeView is one row of the table of codes.
type CodeView struct {
	Code      sbxerr.Code  `json:"code"`
	Summary   string       `json:"summary"`
	Class     sbxerr.Class `json:"class"`
	HTTP      int          `json:"http"`
	Retryable bool         `json:"retryable"`
	Remedy    string       `json:"remedy"`
}

func ExplainCommand(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:               "explain [CODE]",
		Short:             "Explain an error code, or list all codes",
		Example:           "  caisson explain SBX-104\n  caisson explain",
		Args:              cli.AtMostOne,
		ValidArgsFunction: completeCodes,
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return explainAll(a)
			}
			row, err := findCode(args[0])
			if err != nil {
				return err
			}
			if a.Output == cli.FormatJSON {
				return a.PrintJSON(CodeView(row))
			}
			return a.PrintLine("%s  %s\n  class: %s\n  retry: %s\n  http: %d\n  remedy: %s",
				row.Code, row.Summary, row.Class, retryText(row.Retryable), row.HTTP, row.Remedy)
		},
	}
	a.OutputFlags(cmd)
	return cmd
}

func explainAll(a *cli.App) error {
	if a.Output == cli.FormatJSON {
		return a.PrintJSON(cli.Each(sbxerr.All(), func(d sbxerr.Description) CodeView { return CodeView(d) }))
	}
	return a.PrintTable([]string{"CODE", "SUMMARY", "CLASS", "REMEDY"}, cli.Each(sbxerr.All(), func(d sbxerr.Description) []string {
		return []string{string(d.Code), d.Summary, string(d.Class), d.Remedy}
	}))
}

// findCode accepts SBX-402, sbx-402 and 402.
func findCode(text string) (sbxerr.Description, error) {
	code := strings.ToUpper(text)
	if _, err := strconv.Atoi(code); err == nil {
		code = "SBX-" + code
	}
	if row, ok := sbxerr.Describe(sbxerr.Code(code)); ok {
		return row, nil
	}
	return sbxerr.Description{}, cli.Usage("%q is not an error code, give one such as SBX-402; caisson explain lists them all", text)
}

func retryText(retryable bool) string {
	if retryable {
		return "may succeed later without a change"
	}
	return "fails again without a change"
}

// completeCodes offers error codes.
func completeCodes(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return cli.Each(sbxerr.All(), func(d sbxerr.Description) string { return string(d.Code) + "\t" + d.Summary }), cobra.ShellCompDirectiveNoFileComp
}
