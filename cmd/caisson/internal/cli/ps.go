package cli

import (
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
)

// execView is one command of a sandbox.
type execView struct {
	ID          string      `json:"id"`
	SandboxID   string      `json:"sandbox_id"`
	Args        []string    `json:"args"`
	State       string      `json:"state"`
	PID         int64       `json:"pid"`
	TTY         bool        `json:"tty"`
	Stdin       bool        `json:"stdin"`
	StartedAt   *time.Time  `json:"started_at"`
	EndedAt     *time.Time  `json:"ended_at"`
	StdoutBytes int64       `json:"stdout_bytes"`
	StderrBytes int64       `json:"stderr_bytes"`
	Result      *resultView `json:"result"`
}

func execViewOf(e *caissonv1.Exec) execView {
	return execView{
		ID: e.GetId(), SandboxID: e.GetSandboxId(), Args: orEmpty(e.GetArgs()), State: e.GetState(), PID: e.GetPid(),
		TTY: e.GetTty(), Stdin: e.GetStdin(), StartedAt: timeOf(e.GetStartedAt()), EndedAt: timeOf(e.GetEndedAt()),
		StdoutBytes: e.GetStdoutBytes(), StderrBytes: e.GetStderrBytes(), Result: resultViewOf(e.GetResult()),
	}
}

func (a *App) psCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "ps SANDBOX",
		Short:             "List commands of a sandbox",
		Example:           "  caisson ps agent",
		Args:              sandboxOfPS,
		ValidArgsFunction: a.CompleteSandboxes,
		RunE: func(cmd *cobra.Command, args []string) error {
			return ask(cmd.Context(), a, (*api.Client).Execs, args[0], func(list []*caissonv1.Exec) error {
				return printList(a, list, execViewOf, []string{"EXEC", "STATE", "EXIT", "PID", "STARTED", "STDOUT", "STDERR", "COMMAND"}, a.execRow)
			})
		},
	}
	a.outputFlags(cmd)
	return cmd
}

// sandboxOfPS says where the sandboxes are listed, for elsewhere ps lists these.
func sandboxOfPS(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return Usage("SANDBOX is missing: %s; caisson ls lists sandboxes", cmd.UseLine())
	}
	return Exactly("SANDBOX")(cmd, args)
}

func (a *App) execRow(e *caissonv1.Exec) []string {
	exit := "-"
	if e.Result != nil {
		exit = strconv.Itoa(int(e.Result.ExitCode))
	}
	command := strings.Join(e.Args, " ")
	if a.wide {
		return []string{e.Id, e.State, exit, decimal(e.Pid), timeCell(e.StartedAt), decimal(e.StdoutBytes), decimal(e.StderrBytes), command}
	}
	return []string{e.Id, e.State, exit, decimal(e.Pid), a.ageCell(e.StartedAt), sizeCell(e.StdoutBytes), sizeCell(e.StderrBytes), shorten(command, narrowCell*2)}
}
