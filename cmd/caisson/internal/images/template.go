package images

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
)

func TemplateCommand(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "template",
		Short: "Manage templates, the results of set-ups of profiles",
		Args:  cobra.ArbitraryArgs, // unknownCommand has seen them
		RunE:  cli.ShowHelp,
	}
	cmd.AddCommand(templateLsCommand(a), templateBuildCommand(a), templateInspectCommand(a), templateRmCommand(a))
	return cmd
}

func templateLsCommand(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List the templates of profiles with a setup",
		Example: "  caisson template ls",
		Args:    cli.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return cli.Ask(cmd.Context(), a, (*api.Client).ListTemplates, &caissonv1.ListTemplatesRequest{}, func(r *caissonv1.ListTemplatesResponse) error {
				return cli.PrintList(a, r.Templates, []string{"PROFILE", "BASE", "STATE", "BUILT", "SIZE"}, func(t *caissonv1.Template) []string { return templateRow(a, t) })
			})
		},
	}
	a.OutputFlags(cmd)
	return cmd
}

func templateRow(a *cli.App, t *caissonv1.Template) []string {
	built, size := "", ""
	if t.BuiltAt != nil {
		built = a.AgeCell(t.BuiltAt)
		if a.Wide {
			built = cli.TimeCell(t.BuiltAt)
		}
	}
	if t.Image != nil {
		size = cli.SizeCell(t.Image.SizeBytes)
	}
	return []string{t.Profile, t.Base, t.State, built, size}
}

func templateBuildCommand(a *cli.App) *cobra.Command {
	req := &caissonv1.BuildTemplateRequest{}
	cmd := &cobra.Command{
		Use:   "build PROFILE",
		Short: "Build the template of a profile",
		Long: "Build the template of a profile by its setup in the daemon's configuration, where there is\n" +
			"none for what that says now. Requests with the profile do so, too, when they find none. This\n" +
			"is for root.",
		Example:           "  caisson template build py\n  caisson template build --no-cache py",
		Args:              cli.Exactly("PROFILE"),
		ValidArgsFunction: completeTemplates(a),
		RunE: func(cmd *cobra.Command, args []string) error {
			req.Profile = args[0]
			return a.With(cmd.Context(), func(client *api.Client) error { return buildTemplate(a, cmd.Context(), client, req) })
		},
	}
	cmd.Flags().BoolVar(&req.NoCache, "no-cache", false, "build it also where there is one, and run all commands again")
	a.OutputFlags(cmd)
	return cmd
}

func buildTemplate(a *cli.App, ctx context.Context, client *api.Client, req *caissonv1.BuildTemplateRequest) error {
	show := buildDisplay{app: a}
	t, err := client.BuildTemplate(ctx, req, show.event)
	show.flush()
	if err != nil {
		return err
	}
	if a.Output == cli.FormatJSON {
		return a.PrintJSONLine(templateLine{"template", a.Message(t)})
	}
	return a.PrintLine("%s %s", cli.Printable(t.Image.GetName()), cli.Printable(t.Image.GetDigest()))
}

// templateLine is the last line of a build as JSON.
type templateLine struct {
	Type     string `json:"type"`
	Template any    `json:"template"`
}

func templateInspectCommand(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:               "inspect PROFILE",
		Short:             "Show the template of a profile, with the log of its last build",
		Example:           "  caisson template inspect py",
		Args:              cli.Exactly("PROFILE"),
		ValidArgsFunction: completeTemplates(a),
		RunE: func(cmd *cobra.Command, args []string) error {
			return cli.Ask(cmd.Context(), a, (*api.Client).InspectTemplate, &caissonv1.InspectTemplateRequest{Profile: args[0]}, func(t *caissonv1.Template) error { return printTemplate(a, t) })
		},
	}
	a.OutputFlags(cmd)
	return cmd
}

func printTemplate(a *cli.App, t *caissonv1.Template) error {
	if a.Output == cli.FormatJSON {
		return a.PrintJSON(t)
	}
	built, took := "", ""
	if t.BuiltAt != nil {
		built, took = cli.TimeCell(t.BuiltAt), fmt.Sprintf("%.1fs", t.Took.AsDuration().Seconds())
	}
	for _, f := range [][2]string{
		{"profile", t.Profile}, {"state", t.State}, {"base", t.Base}, {"image", t.Image.GetName()}, {"digest", t.Image.GetDigest()}, {"built", built}, {"took", took}, {"error", t.Error},
	} {
		if f[1] == "" {
			continue
		}
		if err := a.PrintLine("%-8s %s", f[0], cli.Printable(f[1])); err != nil {
			return err
		}
	}
	if t.Log == "" {
		return nil
	}
	if err := a.PrintLine(""); err != nil {
		return err
	}
	for line := range strings.Lines(t.Log) {
		if err := a.PrintLine("%s", cli.Printable(strings.TrimRight(line, "\r\n"))); err != nil {
			return err
		}
	}
	return nil
}

func templateRmCommand(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:               "rm PROFILE...",
		Aliases:           []string{"remove"},
		Short:             "Remove the templates of profiles",
		Long:              "Remove the templates of profiles that no sandbox uses. The next request with such a profile\nbuilds one. This is for root.",
		Example:           "  caisson template rm py",
		Args:              cli.AtLeastOne("PROFILE"),
		ValidArgsFunction: completeTemplates(a),
		RunE: a.RemoveNamed(func(ctx context.Context, client *api.Client, name string) error {
			_, err := client.RemoveTemplate(ctx, &caissonv1.RemoveTemplateRequest{Profile: name})
			return err
		}),
	}
	a.OutputFlags(cmd)
	return cmd
}

// completeTemplates offers the names of profiles with a setup.
func completeTemplates(a *cli.App) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		return a.Complete(cmd, func(ctx context.Context, c *api.Client) ([]string, error) {
			r, err := c.ListTemplates(ctx, &caissonv1.ListTemplatesRequest{})
			return cli.Each(r.GetTemplates(), (*caissonv1.Template).GetProfile), err
		})
	}
}
