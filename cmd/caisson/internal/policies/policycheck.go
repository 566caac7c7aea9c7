package policies

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
)

// lookupTime is how long policy check --resolve waits for resolvers.
const lookupTime = 5 * time.Second

func policyCheckCommand(a *cli.App) *cobra.Command {
	var f policyFlags
	var resolve bool
	cmd := &cobra.Command{
		Use:     "check [flags] URL",
		Short:   "Check whether a destination is allowed, and by which rule",
		Long:    "Check whether a destination is allowed, and by which rule. Nothing is connected.\nHOST and HOST:PORT work too. Exit with 0 if it is allowed, and with 1 if not.",
		Example: "  caisson policy check --sandbox agent https://github.com/\n  caisson policy check --resolve --allow '*.example.com' api.example.com:443",
		Args:    cli.Exactly("URL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			p := cli.Parser{Flags: cmd.Flags()}
			req := &caissonv1.CheckPolicyRequest{Policy: f.query(&p), Target: args[0]}
			if err := p.End(req); err != nil {
				return err
			}
			return a.With(cmd.Context(), func(c *api.Client) error { return checkPolicy(a, cmd.Context(), c, req, resolve) })
		},
	}
	cmd.Flags().StringVar(&f.sandbox, "sandbox", "", "policy of this `SANDBOX`")
	_ = cmd.RegisterFlagCompletionFunc("sandbox", a.CompleteSandboxes)
	f.register(cmd)
	cmd.Flags().BoolVar(&resolve, "resolve", false, "look the name up with this host's resolvers, and check its addresses")
	a.OutputFlags(cmd)
	return cmd
}

// checkPolicy prints the verdict on req, and exits with 1 for a refusal.
func checkPolicy(a *cli.App, ctx context.Context, c *api.Client, req *caissonv1.CheckPolicyRequest, resolve bool) error {
	v, err := c.CheckPolicy(ctx, req)
	if err == nil && resolve && leads(v) {
		if req.Addresses, err = lookUp(ctx, v.Host); err == nil {
			v, err = c.CheckPolicy(ctx, req)
		}
	}
	if err != nil {
		return err
	}
	if err := printVerdict(a, v); err != nil || isReached(v) {
		return err
	}
	return cli.ExitStatus(1)
}

// leads reports whether a resolver says where an allowed destination leads: neither an
// address, nor a mirror, nor a link.
func leads(v *caissonv1.CheckPolicyResponse) bool {
	_, err := netip.ParseAddr(v.Host)
	return v.Allowed && v.Reason == "" && err != nil && !strings.HasPrefix(v.Rule, "map ") && !strings.HasPrefix(v.Rule, "link ")
}

// isReached reports whether v allows the name, and an address of those that are known.
func isReached(v *caissonv1.CheckPolicyResponse) bool {
	return v.Allowed && (len(v.Addresses) == 0 || slices.ContainsFunc(v.Addresses, (*caissonv1.AddressVerdict).GetAllowed))
}

func lookUp(ctx context.Context, host string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, lookupTime)
	defer cancel()
	found, err := net.DefaultResolver.LookupHost(ctx, host)
	if err == nil && len(found) == 0 {
		err = errors.New("there are no addresses")
	}
	if err != nil {
		return nil, sbxerr.WithRemedy(sbxerr.EgressResolve, "caisson.policy", fmt.Errorf("look up %s: %w", host, err),
			"check the name and this host's resolvers, or leave --resolve away")
	}
	return found, nil
}

func printVerdict(a *cli.App, v *caissonv1.CheckPolicyResponse) error {
	if a.Output == cli.FormatJSON {
		return a.PrintJSON(v)
	}
	if !v.Allowed {
		return a.PrintLine("refused [%s]: %s port %d, by: %s\n%s\nremedy: %s", v.Code, v.Host, v.Port, v.Rule, v.Reason, v.Remedy)
	}
	lines := []string{fmt.Sprintf("allowed: %s port %d, by: %s", v.Host, v.Port, v.Rule)}
	if v.Reason != "" {
		lines = append(lines, v.Reason)
	}
	for _, r := range v.Addresses {
		line := fmt.Sprintf("  %s: allowed", r.Address)
		if !r.Allowed {
			line = fmt.Sprintf("  %s: refused [%s]: %s", r.Address, r.Code, r.Reason)
		}
		if r.Needs != "" {
			line += "; --allow " + r.Needs + " allows it"
		}
		lines = append(lines, line)
	}
	if len(v.Addresses) == 0 && leads(v) {
		lines = append(lines, "not resolved: --resolve checks the addresses of the name, too")
	}
	return a.PrintLine("%s", strings.Join(lines, "\n"))
}
