package watch

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
)

// groupings are what the accounts of sandboxes can be added up by.
var groupings = []string{"sandbox", "session", "profile", "route"}

// UsageCommand is the verb usage.
func UsageCommand(a *cli.App) *cobra.Command {
	by, budgets, r := "sandbox", false, &caissonv1.UsageRequest{}
	cmd := &cobra.Command{
		Use:   "usage",
		Short: "Show what requests by routes took",
		Long: "Show what requests by routes took: requests, bytes, tokens of models and their cost, of your\nsandboxes, live and gone. A ~ marks tokens of which a part is an estimate. --budgets shows\n" +
			"what counts against the budgets of sessions and hours.",
		Example: "  caisson usage\n  caisson usage --by session\n  caisson usage --session nightly --json",
		Args:    cli.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !slices.Contains(groupings, by) {
				return cli.Usage("--by %q is none of %s", by, strings.Join(groupings, ", "))
			}
			return cli.Ask(cmd.Context(), a, (*api.Client).Usage, r, func(r *caissonv1.UsageResponse) error {
				return printUsage(a, r.Usages, by, budgets)
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&by, "by", by, "add up by sandbox, session, profile or route")
	f.BoolVar(&budgets, "budgets", false, "show sessions and hours that have a budget, not sandboxes")
	f.StringVar(&r.Session, "session", "", "only of this session")
	f.StringVar(&r.Profile, "profile", "", "only of this profile")
	a.OutputFlags(cmd)
	return cmd
}

func printUsage(a *cli.App, all []*caissonv1.RouteUsage, by string, budgets bool) error {
	list := slices.DeleteFunc(all, func(u *caissonv1.RouteUsage) bool { return (u.Scope == "sandbox") == budgets })
	headings := []string{"SCOPE", "SESSION", "PROFILE", "ROUTE"}
	row := func(u *caissonv1.RouteUsage) []string { return []string{u.Scope, u.Session, u.Profile, u.Route} }
	if !budgets {
		list = addUp(list, by)
		switch by {
		case "sandbox":
			headings = []string{"SANDBOX", "ROUTE"}
			row = func(u *caissonv1.RouteUsage) []string { return []string{u.SandboxName, u.Route} }
		default:
			headings = []string{strings.ToUpper(by)}
			row = func(u *caissonv1.RouteUsage) []string { return []string{groupOf(u, by)} }
		}
	}
	headings = append(headings, "REQUESTS", "BYTES", "INPUT", "CACHED", "OUTPUT", "COST")
	return cli.PrintList(a, list, headings, func(u *caissonv1.RouteUsage) []string {
		mark := ""
		if u.EstimatedRequests > 0 {
			mark = "~"
		}
		return append(row(u), cli.Decimal(u.Requests), cli.SizeCell(u.Bytes), mark+cli.Decimal(u.InputTokens), cli.Decimal(u.CachedTokens), mark+cli.Decimal(u.OutputTokens), fmt.Sprintf("%.4f", u.Cost))
	})
}

func groupOf(u *caissonv1.RouteUsage, by string) string {
	switch by {
	case "session":
		return u.Session
	case "profile":
		return u.Profile
	case "route":
		return u.Route
	}
	return u.SandboxId + " " + u.Route
}

// addUp makes one of all that are of one group, in the order of the first of each.
func addUp(list []*caissonv1.RouteUsage, by string) (sums []*caissonv1.RouteUsage) {
	groups := map[string]*caissonv1.RouteUsage{}
	for _, u := range list {
		key := groupOf(u, by)
		sum := groups[key]
		if sum == nil {
			sum = &caissonv1.RouteUsage{Scope: u.Scope, UpdatedAt: u.UpdatedAt}
			switch by {
			case "session":
				sum.Session = u.Session
			case "profile":
				sum.Profile = u.Profile
			case "route":
				sum.Route = u.Route
			default:
				sum.SandboxId, sum.SandboxName, sum.Route, sum.Session, sum.Profile, sum.Owner = u.SandboxId, u.SandboxName, u.Route, u.Session, u.Profile, u.Owner
			}
			groups[key] = sum
			sums = append(sums, sum)
		}
		sum.Requests += u.Requests
		sum.Bytes += u.Bytes
		sum.InputTokens += u.InputTokens
		sum.CachedTokens += u.CachedTokens
		sum.StoredTokens += u.StoredTokens
		sum.OutputTokens += u.OutputTokens
		sum.ReasoningTokens += u.ReasoningTokens
		sum.Cost += u.Cost
		sum.EstimatedRequests += u.EstimatedRequests
		if u.UpdatedAt.AsTime().After(sum.UpdatedAt.AsTime()) {
			sum.UpdatedAt = u.UpdatedAt
		}
	}
	return sums
}
