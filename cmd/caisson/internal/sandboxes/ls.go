// Package sandboxes has the verbs of sandboxes and snapshots.
package sandboxes

import (
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
)

func LsCommand(a *cli.App) *cobra.Command {
	var f cli.FilterFlags
	var quiet bool
	cmd := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List sandboxes",
		Example: "  caisson ls\n  caisson ls -l team=blue --older-than 1h\n  caisson ls --format '{{.name}} {{.state}}'",
		Args:    cli.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			p := cli.Parser{Flags: cmd.Flags()}
			req := f.Request(&p)
			if err := p.End(req); err != nil {
				return err
			}
			if quiet && a.Output == cli.FormatJSON {
				return cli.Usage("-q and --json exclude each other: IDs alone, or all that is known")
			}
			return cli.Ask(cmd.Context(), a, (*api.Client).List, req, func(r *caissonv1.ListResponse) error {
				if quiet {
					return printIDs(a, r.Sandboxes)
				}
				headings := []string{"ID", "NAME", "STATE", "EXIT", "IMAGE", "CREATED", "COMMAND"}
				if a.Wide {
					headings = append(headings, "TTL", "IDLE", "OWNER", "SESSION", "TASK", "ISOLATION")
				}
				return cli.PrintList(a, r.Sandboxes, headings, func(s *caissonv1.Sandbox) []string { return sandboxRow(a, s) })
			})
		},
	}
	f.Register(cmd)
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "print only IDs")
	cmd.Flags().BoolP("all", "a", true, "list ended sandboxes too, as always")
	_ = cmd.Flags().MarkHidden("all") // it is there
	a.OutputFlags(cmd)
	return cmd
}

func printIDs(a *cli.App, list []*caissonv1.Sandbox) error {
	for _, s := range list {
		if err := a.PrintLine("%s", s.Id); err != nil {
			return err
		}
	}
	return nil
}

func sandboxRow(a *cli.App, s *caissonv1.Sandbox) []string {
	exit, name := "-", s.Name
	if s.Result != nil {
		exit = strconv.Itoa(int(s.Result.ExitCode))
	}
	if name == s.Id {
		name = ""
	}
	command := strings.Join(s.Args, " ")
	if a.Wide {
		return []string{
			s.Id, cli.OrDash(name), stateCell(s), exit, cli.OrDash(s.Image), cli.TimeCell(s.CreatedAt), cli.Shorten(command, cli.CommandCell),
			ttlCell(a, s), idleCell(a, s), cli.Decimal(int64(s.OwnerUid)), cli.OrDash(s.Session), cli.OrDash(s.Task), cli.OrDash(s.Isolation),
		}
	}
	return []string{
		s.Id[:min(len(s.Id), cli.IdCell)], cli.Shorten(cli.OrDash(name), cli.NameCell), stateCell(s), exit, cli.Shorten(cli.OrDash(s.Image), cli.NameCell), a.AgeCell(s.CreatedAt), cli.Shorten(command, cli.NarrowCell),
	}
}

// stateCell marks a sandbox that was paused because it was idle: using it wakes it.
func stateCell(s *caissonv1.Sandbox) string {
	if s.PausedBy == "idle" {
		return s.State + " (idle)"
	}
	return s.State
}

// ttlCell is what is left of a sandbox's time.
func ttlCell(a *cli.App, s *caissonv1.Sandbox) string {
	if s.ExpiresAt == nil {
		return "-"
	}
	return max(0, s.ExpiresAt.AsTime().Sub(a.Now())).Round(time.Second).String()
}

// idleCell is how long no command ran, and for how long none may run.
func idleCell(a *cli.App, s *caissonv1.Sandbox) string {
	cell := "-"
	if s.IdleSince != nil {
		cell = max(0, a.Now().Sub(s.IdleSince.AsTime())).Round(time.Second).String()
	}
	if s.IdleTimeout != nil {
		cell += "/" + s.IdleTimeout.AsDuration().String()
	}
	return cell
}
