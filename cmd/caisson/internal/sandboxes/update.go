package sandboxes

import (
	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/settings"
	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
	"github.com/caisson-run/caisson/cmd/caisson/internal/specflags"
)

// updateFlags say what to change of a live sandbox.
type updateFlags struct {
	limits              specflags.LimitFlags
	ttl, idle, network  string
	onIdle              string
	labels, allow, deny []string
	publish             []string
}

func UpdateCommand(a *cli.App) *cobra.Command {
	var f updateFlags
	cmd := &cobra.Command{
		Use:               "update [flags] SANDBOX",
		Short:             "Change limits, labels and network policy of a sandbox",
		Example:           "  caisson update --ttl 2h -m 1G agent\n  caisson update --idle-timeout never -l team= agent\n  caisson update --allow github.com --allow pypi.org agent  # replaces\n  caisson update --allow '' agent                          # allows none",
		Args:              cli.Exactly("SANDBOX"),
		ValidArgsFunction: a.CompleteSandboxes,
		RunE: func(cmd *cobra.Command, args []string) error {
			p := cli.Parser{Flags: cmd.Flags()}
			req := f.request(&p)
			req.Ref = args[0]
			if cmd.Flags().NFlag() == 0 {
				p.Refuse(cli.Usage("there is nothing to update: %s --help shows the flags", cmd.CommandPath()))
			}
			if err := p.End(req); err != nil {
				return err
			}
			return cli.Ask(cmd.Context(), a, (*api.Client).Update, req, func(s *caissonv1.Sandbox) error { return printSandbox(a, s) })
		},
	}
	f.register(cmd)
	a.OutputFlags(cmd)
	return cmd
}

func (f *updateFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.SortFlags = false
	f.limits.Register(flags, func(row *settings.Limit) string { return row.Update })
	flags.StringVar(&f.ttl, "ttl", "", "remove the sandbox `DURATION` from now, or never")
	flags.StringVar(&f.idle, "idle-timeout", "", "the sandbox is idle after `DURATION` without work, or never")
	flags.StringVar(&f.onIdle, "on-idle", "", "`ACTION` on an idle sandbox: remove, or pause until somebody uses it")
	flags.StringArrayVarP(&f.labels, "label", "l", nil, "set label `K=V`; K= removes it")
	specflags.RegisterNetwork(cmd, &f.network, &f.allow, &f.deny)
	flags.StringArrayVarP(&f.publish, "publish", "p", nil, "have `PORT:PORT[@CLIENT]` reached by other clients; name all")
	flags.Lookup("network").Usage = "network `MODE`: allow or open"
}

func (f *updateFlags) request(p *cli.Parser) *caissonv1.UpdateRequest {
	p.NotEmpty("network", "on-idle")
	req := &caissonv1.UpdateRequest{
		Ttl:         specflags.OrNever(p, "ttl", f.ttl),
		IdleTimeout: specflags.OrNever(p, "idle-timeout", f.idle),
		Labels:      p.Labels(f.labels),
		Allow:       rules(p, "allow", f.allow),
		Deny:        rules(p, "deny", f.deny),
		Publish:     rules(p, "publish", f.publish),
	}
	f.limits.Change(p, req)
	if p.Flags.Changed("network") {
		req.Network = &f.network
	}
	if p.Flags.Changed("on-idle") {
		req.OnIdle = &f.onIdle
	}
	return req
}

// rules reads a list of rules that may be absent, or empty on purpose: the one
// rule "" is none.
func rules(p *cli.Parser, name string, list []string) *caissonv1.Rules {
	if !p.Flags.Changed(name) {
		return nil
	}
	if len(list) == 1 && list[0] == "" {
		list = nil
	}
	return &caissonv1.Rules{Rules: list}
}
