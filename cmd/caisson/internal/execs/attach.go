package execs

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
)

const attachLong = `Attach to a running command. Print its output from the beginning, or from --offset and
--stderr-offset. Exit with its exit code. With -t, print the last 64 KiB without terminal
queries, and make the program redraw its screen.

Ctrl-C and SIGTERM go to the command. A second one, or 10 seconds, detaches from it. So does
a closed terminal, and with -it the key sequence ctrl-p,ctrl-q or that of --detach-keys.
A command started with exec -d then runs on.`

func AttachCommand(a *cli.App) *cobra.Command {
	var o api.AttachOptions
	var stdin, terminal bool
	var detachKeys string
	cmd := &cobra.Command{
		Use:               "attach [flags] SANDBOX EXEC",
		Short:             "Attach to a running command",
		Long:              attachLong,
		Example:           "  caisson attach agent 3\n  caisson attach -it agent 3",
		Args:              cli.Exactly("SANDBOX", "EXEC"),
		ValidArgsFunction: a.CompleteExecs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkOffsets(o.StdoutOffset, o.StderrOffset); err != nil {
				return err
			}
			keys, err := parseDetachKeys(detachKeys)
			if err != nil {
				return err
			}
			return Foreground(a, cmd.Context(), Task{
				detaches: true, detachKeys: keys,
				Terminal: terminal, Stdin: stdin, stdout0: o.StdoutOffset, stderr0: o.StderrOffset, Hints: attachHints,
				Consequence: "the command runs on", remedy: "caisson attach shows its output again, caisson kill ends it",
				Run: func(ctx context.Context, c *api.Client, size *caissonv1.WinSize, rio api.IO) (*caissonv1.Result, error) {
					if size != nil {
						if err := replayed(ctx, c, args[0], args[1], !cmd.Flags().Changed("offset"), &o, &rio); err != nil {
							return nil, err
						}
						rio.Resizes = startingWith(ctx, redrawSizes(size), rio.Resizes)
					}
					return c.Attach(ctx, args[0], args[1], o, rio)
				},
			})
		},
	}
	cmd.Flags().SortFlags = false
	cmd.Flags().BoolVarP(&stdin, "interactive", "i", false, "keep standard input open and forward it")
	cmd.Flags().BoolVarP(&terminal, "tty", "t", false, "resize the terminal of the command with this one")
	cmd.Flags().StringVar(&detachKeys, "detach-keys", defaultDetachKeys, "override the key sequence `KEYS` for detaching; empty is none")
	offsetFlags(cmd, &o.StdoutOffset, &o.StderrOffset)
	StreamFlags(a, cmd)
	return cmd
}

func offsetFlags(cmd *cobra.Command, stdout, stderr *int64) {
	cmd.Flags().Int64Var(stdout, "offset", 0, "skip the first `N` bytes of standard output")
	cmd.Flags().Int64Var(stderr, "stderr-offset", 0, "skip the first `N` bytes of standard error")
}

func checkOffsets(stdout, stderr int64) error {
	if stdout < 0 || stderr < 0 {
		return cli.Usage("an offset counts bytes from 0")
	}
	return nil
}

// redrawSizes are the sizes that make the program on a terminal draw its screen again: it is told
// of a change alone (ioctl_tty(2), TIOCSWINSZ).
func redrawSizes(size *caissonv1.WinSize) []api.Size {
	now := api.Size{Rows: uint16(size.Rows), Cols: uint16(size.Cols)}
	if now.Rows < 2 {
		return []api.Size{now}
	}
	return []api.Size{{Rows: now.Rows - 1, Cols: now.Cols}, now}
}

// startingWith passes the sizes of first on, and then those of rest.
func startingWith(ctx context.Context, first []api.Size, rest <-chan api.Size) <-chan api.Size {
	out := make(chan api.Size)
	go func() {
		for _, size := range first {
			select {
			case out <- size:
			case <-ctx.Done():
				return
			}
		}
		for {
			select {
			case size, ok := <-rest:
				if !ok {
					return
				}
				select {
				case out <- size:
				case <-ctx.Done():
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return out
}
