package main

import (
	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
)

const createLong = `Make a sandbox that lives until it is removed, its time is over, or no command
ran in it for too long, and print its ID. caisson exec runs commands in it. One
whose time is over is removed, paused or not, with what its commands wrote.

With --ensure, a live sandbox of the same name that was made with the same
settings is the answer; one with other settings is an error that names them.
What caisson update changed since does not count: it stays as it is.`

func (a *app) createCommand() *cobra.Command {
	var f sandboxFlags
	var nested bool
	var nestedMax string
	req := &caissonv1.CreateRequest{}
	cmd := &cobra.Command{
		Use:     "create [flags]",
		Short:   "Make a sandbox for many commands",
		Long:    createLong,
		Example: "  caisson create --ensure --name agent --workspace . --idle-timeout 30m\n  caisson exec agent -- make test",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			p := parser{flags: cmd.Flags()}
			req.Spec = f.spec(&p)
			req.Spec.Env = p.environment(f.env, a.lookupEnv)
			p.notEmpty("key")
			if req.Ensure && f.name == "" {
				p.refuse(usage("--ensure needs --name: it is what an existing sandbox is found by"))
			}
			if nested || cmd.Flags().Changed("nested-max") {
				req.Spec.Nested = &caissonv1.Nested{Sandboxes: p.number("nested-max", nestedMax, parseCount)}
			}
			if err := p.end(req); err != nil {
				return err
			}
			return ask(cmd.Context(), a, (*api.Client).Create, req, a.printSandbox)
		},
	}
	f.register(cmd)
	f.registerLife(cmd)
	cmd.Flags().BoolVar(&req.Ensure, "ensure", false, "take the live sandbox of this --name, if its settings are the same")
	cmd.Flags().StringVar(&req.IdempotencyKey, "key", "", "`KEY` of this request: a repeated one with the same key makes no second sandbox")
	cmd.Flags().BoolVar(&nested, "nested", false, "give it a socket by which it can make sandboxes of its own, within as much again as it has itself")
	cmd.Flags().StringVar(&nestedMax, "nested-max", "", "`N` of these sandboxes at most; implies --nested")
	a.outputFlags(cmd)
	return cmd
}

// printSandbox prints the ID of a sandbox, or all of it.
func (a *app) printSandbox(s *caissonv1.Sandbox) error {
	if a.output == formatJSON {
		return a.printJSON(sandboxViewOf(s))
	}
	return a.printLine("%s", s.GetId())
}
