package sandboxes

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/units"
	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
	"github.com/caisson-run/caisson/cmd/caisson/internal/images"
	"github.com/caisson-run/caisson/cmd/caisson/internal/specflags"
)

const createLong = `Create a sandbox for many commands and print its ID. Use caisson exec to run commands in
it. It lives until you remove it, its --ttl passes, or it is idle for --idle-timeout. It is
then removed with the output of its commands, even if it is paused.

With --ensure, a live sandbox with this name and the same settings is used. If its settings
differ, the error names them. Changes by caisson update do not count. A sandbox with this
name that has ended is replaced.`

func CreateCommand(a *cli.App) *cobra.Command {
	var f specflags.SandboxFlags
	var nested, clean bool
	var nestedMax string
	req := &caissonv1.CreateRequest{}
	cmd := &cobra.Command{
		Use:     "create [flags]",
		Short:   "Create a sandbox for many commands",
		Long:    createLong,
		Example: "  caisson create --ensure --name agent --workspace . --idle-timeout 30m\n  caisson exec agent -- make test",
		Args:    cli.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			p := cli.Parser{Flags: cmd.Flags()}
			req.Spec = f.Spec(&p)
			req.Spec.Env = f.Environment(&p, a)
			p.NotEmpty("key")
			if req.Ensure && f.Name == "" {
				p.Refuse(cli.Usage("--ensure needs --name: it is what an existing sandbox is found by"))
			}
			if clean && !req.Ensure {
				p.Refuse(cli.Usage("--clean needs --ensure: a new sandbox is clean"))
			}
			if req.Replace && req.Ensure {
				p.Refuse(cli.Usage("--replace and --ensure exclude each other: --ensure keeps a live sandbox"))
			}
			if req.Replace && f.Name == "" {
				p.Refuse(cli.Usage("--replace needs --name: it is what an existing sandbox is found by"))
			}
			if nested || cmd.Flags().Changed("nested-max") {
				req.Spec.Nested = &caissonv1.Nested{Sandboxes: p.Number("nested-max", nestedMax, units.ParseCount)}
			}
			if err := p.End(req); err != nil {
				return err
			}
			specflags.NoteLinkedGit(a, req.Spec)
			return a.With(cmd.Context(), func(client *api.Client) error {
				s, err := images.Pulled(cmd.Context(), a, client, f.Pull, f.Image, func() (*caissonv1.Sandbox, error) { return client.Create(cmd.Context(), req) })
				if err != nil {
					return err
				}
				a.Warn(s.Warnings)
				if clean {
					if _, err := client.Clean(cmd.Context(), s.Id); err != nil {
						return err
					}
				}
				return printSandbox(a, s)
			})
		},
	}
	f.Register(cmd)
	f.RegisterLife(cmd)
	f.Pull.Register(cmd)
	cmd.Flags().BoolVar(&req.Ensure, "ensure", false, "use the live sandbox with this --name if its settings are the same")
	cmd.Flags().BoolVar(&clean, "clean", false, "end the processes of the sandbox that --ensure found, and empty its /tmp")
	cmd.Flags().BoolVar(&req.Replace, "replace", false, "end and remove the sandbox with this --name first, if there is one")
	cmd.Flags().StringVar(&req.IdempotencyKey, "key", "", "idempotency `KEY`: a repeated request with this key creates no second sandbox")
	cmd.Flags().BoolVar(&nested, "nested", false, "let commands in the sandbox create sandboxes, within as much again as it has itself")
	cmd.Flags().StringVar(&nestedMax, "nested-max", "", "allow at most `N` nested sandboxes; implies --nested")
	a.OutputFlags(cmd)
	return cmd
}

// printSandbox prints the ID of a sandbox, or all of it.
func printSandbox(a *cli.App, s *caissonv1.Sandbox) error {
	if a.Output == cli.FormatJSON {
		return a.PrintJSON(s)
	}
	if s.GetReplaced() != "" {
		a.Progress(fmt.Sprintf("caisson: it replaces the sandbox %s, which is removed", s.GetReplaced()))
	}
	return a.PrintLine("%s", s.GetId())
}
