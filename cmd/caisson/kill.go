package main

import (
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api"
)

// lastSignal is the highest signal number of Linux.
const lastSignal = 64

func (a *app) killCommand() *cobra.Command {
	var name string
	var all bool
	cmd := &cobra.Command{
		Use:               "kill [-s SIGNAL] [--all] SANDBOX EXEC",
		Short:             "Send a signal to a command",
		Args:              exactly("SANDBOX", "EXEC"),
		ValidArgsFunction: a.completeSandboxes,
		RunE: func(cmd *cobra.Command, args []string) error {
			signal, err := parseSignal(name)
			if err != nil {
				return err
			}
			err = a.with(cmd.Context(), func(client *api.Client) error {
				return client.Kill(cmd.Context(), args[0], args[1], signal, all)
			})
			if err != nil {
				return err
			}
			if a.output == formatJSON {
				return a.printJSON(struct {
					Exec   string `json:"exec"`
					Signal int    `json:"signal"`
				}{args[1], int(signal)})
			}
			return nil
		},
	}
	cmd.Flags().StringVarP(&name, "signal", "s", "TERM", "`SIGNAL` by name or number")
	cmd.Flags().BoolVar(&all, "all", false, "signal every process of the command")
	a.outputFlags(cmd)
	return cmd
}

// parseSignal reads TERM, SIGTERM or 15.
func parseSignal(s string) (syscall.Signal, error) {
	if n, err := strconv.Atoi(s); err == nil && n >= 1 && n <= lastSignal {
		return syscall.Signal(n), nil
	}
	name := strings.ToUpper(s)
	if !strings.HasPrefix(name, "SIG") {
		name = "SIG" + name
	}
	if n := unix.SignalNum(name); n != 0 {
		return n, nil
	}
	return 0, usage("--signal: %q is not a signal, give a name such as TERM or a number from 1 to %d", s, lastSignal)
}
