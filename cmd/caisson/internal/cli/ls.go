package cli

import (
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
)

// How much of a text is in a table, in characters. A line of idCell of an ID and the narrow
// ones fits 80 columns; -o wide has all.
const (
	idCell      = 12
	nameCell    = 16
	narrowCell  = 14
	commandCell = 40
)

func (a *App) lsCommand() *cobra.Command {
	var f filterFlags
	var quiet bool
	cmd := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List sandboxes",
		Example: "  caisson ls\n  caisson ls -l team=blue --older-than 1h\n  caisson ls --format '{{.name}} {{.state}}'",
		Args:    Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			p := Parser{flags: cmd.Flags()}
			req := f.request(&p)
			if err := p.End(req); err != nil {
				return err
			}
			if quiet && a.output == formatJSON {
				return Usage("-q and --json exclude each other: IDs alone, or all that is known")
			}
			return ask(cmd.Context(), a, (*api.Client).List, req, func(r *caissonv1.ListResponse) error {
				if quiet {
					return a.printIDs(r.Sandboxes)
				}
				headings := []string{"ID", "NAME", "STATE", "EXIT", "IMAGE", "CREATED", "COMMAND"}
				if a.wide {
					headings = append(headings, "TTL", "IDLE", "OWNER", "SESSION", "TASK", "ISOLATION")
				}
				return printList(a, r.Sandboxes, sandboxViewOf, headings, a.sandboxRow)
			})
		},
	}
	f.register(cmd)
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "print only IDs")
	cmd.Flags().BoolP("all", "a", true, "list ended sandboxes too, as always")
	_ = cmd.Flags().MarkHidden("all") // it is there
	a.outputFlags(cmd)
	return cmd
}

func (a *App) printIDs(list []*caissonv1.Sandbox) error {
	for _, s := range list {
		if err := a.PrintLine("%s", s.Id); err != nil {
			return err
		}
	}
	return nil
}

func (a *App) sandboxRow(s *caissonv1.Sandbox) []string {
	exit, name := "-", s.Name
	if s.Result != nil {
		exit = strconv.Itoa(int(s.Result.ExitCode))
	}
	if name == s.Id {
		name = ""
	}
	command := strings.Join(s.Args, " ")
	if a.wide {
		return []string{
			s.Id, orDash(name), s.State, exit, orDash(s.Image), timeCell(s.CreatedAt), shorten(command, commandCell),
			a.ttlCell(s), a.idleCell(s), decimal(int64(s.OwnerUid)), orDash(s.Session), orDash(s.Task), orDash(s.Isolation),
		}
	}
	return []string{
		s.Id[:min(len(s.Id), idCell)], shorten(orDash(name), nameCell), s.State, exit, shorten(orDash(s.Image), nameCell), a.ageCell(s.CreatedAt), shorten(command, narrowCell),
	}
}

// ttlCell is what is left of a sandbox's time.
func (a *App) ttlCell(s *caissonv1.Sandbox) string {
	if s.ExpiresAt == nil {
		return "-"
	}
	return max(0, s.ExpiresAt.AsTime().Sub(a.now())).Round(time.Second).String()
}

// idleCell is how long no command ran, and for how long none may run.
func (a *App) idleCell(s *caissonv1.Sandbox) string {
	cell := "-"
	if s.IdleSince != nil {
		cell = max(0, a.now().Sub(s.IdleSince.AsTime())).Round(time.Second).String()
	}
	if s.IdleTimeout != nil {
		cell += "/" + s.IdleTimeout.AsDuration().String()
	}
	return cell
}
