// Package policies has the verbs of network policies.
package policies

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
	"github.com/caisson-run/caisson/cmd/caisson/internal/specflags"
)

func PolicyCommand(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "policy",
		Short: "Show and check network policies and their log",
		Args:  cobra.ArbitraryArgs, // unknownCommand has seen them
		RunE:  cli.ShowHelp,
	}
	cmd.AddCommand(policyCheckCommand(a), policyExplainCommand(a), policyLogCommand(a), policyLearnCommand(a))
	return cmd
}

// policyFlags name a policy: that of a sandbox, or that which a sandbox would
// get that is made with the same flags.
type policyFlags struct {
	sandbox, profile, network string
	allow, deny               []string
}

func (f *policyFlags) register(cmd *cobra.Command) {
	cmd.Flags().SortFlags = false
	cmd.Flags().StringVar(&f.profile, "profile", "", "policy of a new sandbox with this `PROFILE` and the following flags")
	specflags.RegisterNetwork(cmd, &f.network, &f.allow, &f.deny)
}

func (f *policyFlags) query(p *cli.Parser) *caissonv1.PolicyQuery {
	p.NotEmpty("sandbox", "profile", "network")
	q := &caissonv1.PolicyQuery{Ref: f.sandbox, Profile: f.profile, Network: f.network, Allow: f.allow, Deny: f.deny}
	if f.sandbox != "" && (f.profile != "" || f.network != "" || len(f.allow)+len(f.deny) > 0) {
		p.Refuse(cli.Usage("a sandbox has its policy: leave --profile, --network, --allow and --deny away"))
	}
	return q
}

func policyExplainCommand(a *cli.App) *cobra.Command {
	var f policyFlags
	cmd := &cobra.Command{
		Use:               "explain [flags] [SANDBOX]",
		Short:             "List the rules of a network policy in the order of evaluation",
		Example:           "  caisson policy explain agent",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: a.CompleteSandboxes,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				f.sandbox = args[0]
			}
			p := cli.Parser{Flags: cmd.Flags()}
			req := &caissonv1.ExplainPolicyRequest{Policy: f.query(&p)}
			if err := p.End(req); err != nil {
				return err
			}
			return cli.Ask(cmd.Context(), a, (*api.Client).ExplainPolicy, req, func(r *caissonv1.ExplainPolicyResponse) error { return printPolicy(a, r) })
		},
	}
	f.register(cmd)
	a.OutputFlags(cmd)
	return cmd
}

func printPolicy(a *cli.App, r *caissonv1.ExplainPolicyResponse) error {
	if a.Output == cli.FormatJSON {
		return a.PrintJSON(r)
	}
	return a.PrintTable([]string{"RULE", "EFFECT"}, cli.Each(r.Lines, func(l *caissonv1.PolicyLine) []string { return []string{l.Rule, l.Effect} }))
}

func policyLogCommand(a *cli.App) *cobra.Command {
	var follow bool
	cmd := &cobra.Command{
		Use:               "log [flags] SANDBOX",
		Short:             "Show the connection attempts of a sandbox and their results",
		Long:              "Show the connection attempts of a sandbox and their results, oldest first. With --json\neach attempt is one object per line. If older entries were dropped, a warning or an object\nof kind \"gap\" says so.",
		Example:           "  caisson policy log agent\n  caisson policy log --follow agent",
		Args:              cli.Exactly("SANDBOX"),
		ValidArgsFunction: a.CompleteSandboxes,
		RunE: func(cmd *cobra.Command, args []string) error {
			req := &caissonv1.TrafficRequest{Ref: args[0], Follow: follow}
			return a.With(cmd.Context(), func(client *api.Client) error { return tellTraffic(a, cmd.Context(), client, req) })
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "follow until the sandbox ends")
	a.OutputFlags(cmd)
	return cmd
}

// tellTraffic prints what a sandbox tried, and where there is nothing to print as
// nothing is recorded, that.
func tellTraffic(a *cli.App, ctx context.Context, client *api.Client, req *caissonv1.TrafficRequest) error {
	var held *caissonv1.TrafficResponse // until another follows
	again, some := 0, false
	err := client.Traffic(ctx, req, func(t *caissonv1.TrafficResponse) (err error) {
		some = true
		switch {
		case req.Follow || a.Output == cli.FormatJSON:
			return printTraffic(a, t, 0)
		case held != nil && repeats(t, held):
			again++
			return nil
		case held != nil:
			err = printTraffic(a, held, again)
		}
		held, again = t, 0
		return err
	})
	if err == nil && held != nil {
		return printTraffic(a, held, again)
	}
	if err != nil || some || req.Follow {
		return err
	}
	d, err := client.Inspect(ctx, &caissonv1.InspectRequest{Ref: req.Ref})
	if mode := d.GetSandbox().GetNetwork(); err == nil && mode == "none" {
		a.Progress(fmt.Sprintf("caisson: warning: in the network mode %q no log is kept of what a sandbox tries", mode))
	}
	return nil // what was asked for is told
}

// repeats reports whether t is another refusal of the same. A resolver asks for both kinds of
// address.
func repeats(t, held *caissonv1.TrafficResponse) bool {
	return t.Verdict == "refused" && t.Verdict == held.Verdict && t.Kind == held.Kind && t.Skipped == 0 &&
		t.Name == held.Name && t.Port == held.Port && (t.Type == held.Type || t.Kind == "lookup") && t.Address == held.Address && t.Code == held.Code
}

func printTraffic(a *cli.App, t *caissonv1.TrafficResponse, again int) error {
	if a.Output == cli.FormatJSON {
		return a.PrintJSONLine(t)
	}
	if t.Kind == "gap" {
		a.Progress("caisson: warning: " + t.Reason)
		return nil
	}
	line := fmt.Sprintf("%s %-10s %-8s %s", t.Time.AsTime().UTC().Format("2006-01-02 15:04:05.000"), t.Kind, t.Verdict, trafficTarget(t))
	carried := fmt.Sprintf("%d bytes out, %d in, %.1f ms", t.SentBytes, t.ReceivedBytes, cli.Milliseconds(t.Duration))
	switch {
	case t.Code != "" && t.Verdict == "cut":
		line += fmt.Sprintf(" [%s] %s, %s, %s", t.Code, t.Reason, cmp.Or(t.Address, t.Peer), carried)
	case t.Code != "":
		line += fmt.Sprintf(" [%s] %s", t.Code, t.Reason)
	case t.Kind == "connection" || t.Kind == "link":
		line += fmt.Sprintf(" by %s, %s, %s", t.Rule, t.Address, carried)
	case t.Kind == "request":
		line += fmt.Sprintf(" by %s, %s, %s", t.Rule, t.Reason, carried)
	case t.Kind == "inbound":
		line += ", " + carried
	}
	if t.Needs != "" {
		line += "; --allow " + t.Needs + " allows it"
	}
	if again > 0 {
		line += fmt.Sprintf(" (and %d times more after it)", again)
	}
	if t.Skipped > 0 {
		line += fmt.Sprintf(" (%d more before it, without a record)", t.Skipped)
	}
	return a.PrintLine("%s", cli.Printable(line))
}

// trafficTarget is where an attempt went, on the line of a table.
func trafficTarget(t *caissonv1.TrafficResponse) string {
	name, port := cmp.Or(t.Name, t.Address), strconv.Itoa(int(t.Port))
	switch t.Kind {
	case "connection", "link":
		return net.JoinHostPort(name, port)
	case "inbound":
		return fmt.Sprintf("port %d from %s", t.Port, t.Peer)
	case "packet":
		if t.Port != 0 {
			name = net.JoinHostPort(name, port)
		}
	}
	return name + " " + t.Type
}
