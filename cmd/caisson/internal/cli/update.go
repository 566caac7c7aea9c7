package cli

import (
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/settings"
)

// updateFlags say what to change of a live sandbox.
type updateFlags struct {
	limits              limitFlags
	ttl, idle, network  string
	labels, allow, deny []string
}

func (a *App) updateCommand() *cobra.Command {
	var f updateFlags
	cmd := &cobra.Command{
		Use:               "update [flags] SANDBOX",
		Short:             "Change limits, labels and network policy of a sandbox",
		Example:           "  caisson update --ttl 2h -m 1G agent\n  caisson update --idle-timeout never -l team= agent\n  caisson update --allow github.com --allow pypi.org agent  # replaces\n  caisson update --allow '' agent                          # allows none",
		Args:              Exactly("SANDBOX"),
		ValidArgsFunction: a.CompleteSandboxes,
		RunE: func(cmd *cobra.Command, args []string) error {
			p := Parser{flags: cmd.Flags()}
			req := f.request(&p)
			req.Ref = args[0]
			if cmd.Flags().NFlag() == 0 {
				p.Refuse(Usage("there is nothing to update: %s --help shows the flags", cmd.CommandPath()))
			}
			if err := p.End(req); err != nil {
				return err
			}
			return ask(cmd.Context(), a, (*api.Client).Update, req, a.printSandbox)
		},
	}
	f.register(cmd)
	a.outputFlags(cmd)
	return cmd
}

func (f *updateFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.SortFlags = false
	f.limits.register(flags, func(row *settings.Limit) string { return row.Update })
	flags.StringVar(&f.ttl, "ttl", "", "remove the sandbox `DURATION` from now, or never")
	flags.StringVar(&f.idle, "idle-timeout", "", "remove the sandbox when it is idle for `DURATION`, or never")
	flags.StringArrayVarP(&f.labels, "label", "l", nil, "set label `K=V`; K= removes it")
	registerNetwork(cmd, &f.network, &f.allow, &f.deny)
	flags.Lookup("network").Usage = "network `MODE`: allow or open"
}

func (f *updateFlags) request(p *Parser) *caissonv1.UpdateRequest {
	p.NotEmpty("network")
	req := &caissonv1.UpdateRequest{
		Ttl:         p.orNever("ttl", f.ttl),
		IdleTimeout: p.orNever("idle-timeout", f.idle),
		Labels:      p.labels(f.labels),
		Allow:       p.rules("allow", f.allow),
		Deny:        p.rules("deny", f.deny),
	}
	f.limits.change(p, req)
	if p.flags.Changed("network") {
		req.Network = &f.network
	}
	return req
}

// rules reads a list of rules that may be absent, or empty on purpose: the one
// rule "" is none.
func (p *Parser) rules(name string, list []string) *caissonv1.Rules {
	if !p.flags.Changed(name) {
		return nil
	}
	if len(list) == 1 && list[0] == "" {
		list = nil
	}
	return &caissonv1.Rules{Rules: list}
}

// orNever is duration where "never" may be said too, which is zero.
func (p *Parser) orNever(name, text string) *durationpb.Duration {
	if p.flags.Changed(name) && text == never {
		return durationpb.New(0)
	}
	return p.durationOr(name, text, durationExamples+", or never")
}

// never is the word for no end: a zero is none.
const never = "never"
