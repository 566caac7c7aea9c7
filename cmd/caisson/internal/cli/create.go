package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/units"
)

const createLong = `Create a sandbox for many commands and print its ID. Use caisson exec to run commands in
it. It lives until you remove it, its --ttl passes, or it is idle for --idle-timeout. It is
then removed with the output of its commands, even if it is paused.

With --ensure, a live sandbox with this name and the same settings is used. If its settings
differ, the error names them. Changes by caisson update do not count. A sandbox with this
name that has ended is replaced.`

func (a *App) createCommand() *cobra.Command {
	var f SandboxFlags
	var nested, clean bool
	var nestedMax string
	req := &caissonv1.CreateRequest{}
	cmd := &cobra.Command{
		Use:     "create [flags]",
		Short:   "Create a sandbox for many commands",
		Long:    createLong,
		Example: "  caisson create --ensure --name agent --workspace . --idle-timeout 30m\n  caisson exec agent -- make test",
		Args:    Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			p := Parser{flags: cmd.Flags()}
			req.Spec = f.Spec(&p)
			req.Spec.Env = f.Environment(&p, a)
			p.NotEmpty("key")
			if req.Ensure && f.name == "" {
				p.Refuse(Usage("--ensure needs --name: it is what an existing sandbox is found by"))
			}
			if clean && !req.Ensure {
				p.Refuse(Usage("--clean needs --ensure: a new sandbox is clean"))
			}
			if req.Replace && req.Ensure {
				p.Refuse(Usage("--replace and --ensure exclude each other: --ensure keeps a live sandbox"))
			}
			if req.Replace && f.name == "" {
				p.Refuse(Usage("--replace needs --name: it is what an existing sandbox is found by"))
			}
			if nested || cmd.Flags().Changed("nested-max") {
				req.Spec.Nested = &caissonv1.Nested{Sandboxes: p.number("nested-max", nestedMax, units.ParseCount)}
			}
			if err := p.End(req); err != nil {
				return err
			}
			a.noteLinkedGit(req.Spec)
			return a.With(cmd.Context(), func(client *api.Client) error {
				s, err := pulled(cmd.Context(), a, client, f.pull, f.image, func() (*caissonv1.Sandbox, error) { return client.Create(cmd.Context(), req) })
				if err != nil {
					return err
				}
				a.warn(s.Warnings)
				if clean {
					if _, err := client.Clean(cmd.Context(), s.Id); err != nil {
						return err
					}
				}
				return a.printSandbox(s)
			})
		},
	}
	f.Register(cmd)
	f.RegisterLife(cmd)
	f.pull.register(cmd)
	cmd.Flags().BoolVar(&req.Ensure, "ensure", false, "use the live sandbox with this --name if its settings are the same")
	cmd.Flags().BoolVar(&clean, "clean", false, "end the processes of the sandbox that --ensure found, and empty its /tmp")
	cmd.Flags().BoolVar(&req.Replace, "replace", false, "end and remove the sandbox with this --name first, if there is one")
	cmd.Flags().StringVar(&req.IdempotencyKey, "key", "", "idempotency `KEY`: a repeated request with this key creates no second sandbox")
	cmd.Flags().BoolVar(&nested, "nested", false, "let commands in the sandbox create sandboxes, within as much again as it has itself")
	cmd.Flags().StringVar(&nestedMax, "nested-max", "", "allow at most `N` nested sandboxes; implies --nested")
	a.outputFlags(cmd)
	return cmd
}

// printSandbox prints the ID of a sandbox, or all of it.
func (a *App) printSandbox(s *caissonv1.Sandbox) error {
	if a.output == formatJSON {
		return a.PrintJSON(sandboxViewOf(s))
	}
	if s.GetReplaced() != "" {
		a.progress(fmt.Sprintf("caisson: it replaces the sandbox %s, which is removed", s.GetReplaced()))
	}
	return a.PrintLine("%s", s.GetId())
}
