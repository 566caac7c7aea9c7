package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
)

const createLong = `Create a sandbox for many commands and print its ID. Use caisson exec to run commands in
it. It lives until you remove it, its --ttl passes, or it is idle for --idle-timeout. It is
then removed with the output of its commands, even if it is paused.

With --ensure, a live sandbox with this name and the same settings is used. If its settings
differ, the error names them. Changes by caisson update do not count. A sandbox with this
name that has ended is replaced.`

func (a *app) createCommand() *cobra.Command {
	var f sandboxFlags
	var nested, clean bool
	var nestedMax string
	req := &caissonv1.CreateRequest{}
	cmd := &cobra.Command{
		Use:     "create [flags]",
		Short:   "Create a sandbox for many commands",
		Long:    createLong,
		Example: "  caisson create --ensure --name agent --workspace . --idle-timeout 30m\n  caisson exec agent -- make test",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			p := parser{flags: cmd.Flags()}
			req.Spec = f.spec(&p)
			req.Spec.Env = p.environment(f.envFile, f.env, a.lookupEnv)
			p.notEmpty("key")
			if req.Ensure && f.name == "" {
				p.refuse(usage("--ensure needs --name: it is what an existing sandbox is found by"))
			}
			if clean && !req.Ensure {
				p.refuse(usage("--clean needs --ensure: a new sandbox is clean"))
			}
			if req.Replace && req.Ensure {
				p.refuse(usage("--replace and --ensure exclude each other: --ensure keeps a live sandbox"))
			}
			if req.Replace && f.name == "" {
				p.refuse(usage("--replace needs --name: it is what an existing sandbox is found by"))
			}
			if nested || cmd.Flags().Changed("nested-max") {
				req.Spec.Nested = &caissonv1.Nested{Sandboxes: p.number("nested-max", nestedMax, parseCount)}
			}
			if err := p.end(req); err != nil {
				return err
			}
			return a.with(cmd.Context(), func(client *api.Client) error {
				s, err := pulled(cmd.Context(), a, client, f.pull, f.image, func() (*caissonv1.Sandbox, error) { return client.Create(cmd.Context(), req) })
				if err != nil {
					return err
				}
				for _, w := range s.Warnings {
					if strings.HasPrefix(w, imagePicked) {
						a.progress("caisson: " + w)
					}
				}
				a.warnUnisolated(s.Warnings)
				if clean {
					if _, err := client.Clean(cmd.Context(), s.Id); err != nil {
						return err
					}
				}
				return a.printSandbox(s)
			})
		},
	}
	f.register(cmd)
	f.registerLife(cmd)
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
func (a *app) printSandbox(s *caissonv1.Sandbox) error {
	if a.output == formatJSON {
		return a.printJSON(sandboxViewOf(s))
	}
	if s.GetReplaced() != "" {
		a.progress(fmt.Sprintf("caisson: it replaces the sandbox %s, which is removed", s.GetReplaced()))
	}
	return a.printLine("%s", s.GetId())
}
